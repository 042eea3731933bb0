"""Change event streaming: CloudEvents of SQL Server and Azure SQL."""
