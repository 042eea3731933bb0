"""The landing zone: names of its files and folders, columns, row markers, and its storage (local folder or OneLake)."""
