"""SQL Server's values: how their text is read, typed and landed."""
