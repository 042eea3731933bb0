"""Initial loads: cut a table into chunks, and read them in workers."""
