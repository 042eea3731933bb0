"""Values of SQL Server: how their text is read, typed, and written to the landing zone."""
