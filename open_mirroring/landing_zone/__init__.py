"""The rules of the landing zone: names, files, columns and row markers; and the stores that hold it."""
