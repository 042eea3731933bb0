"""Files in object storage: their addresses, logins, and the few operations that are needed."""
