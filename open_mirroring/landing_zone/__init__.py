"""The landing zone: names of files and folders, columns, row markers, and the storage (a folder or OneLake)."""
