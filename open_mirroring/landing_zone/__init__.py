"""The landing zone: names, files, columns, row markers, and the stores that hold it."""
