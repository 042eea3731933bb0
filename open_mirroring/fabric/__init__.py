"""Calls the Fabric REST API: creates and starts the mirrored database, and reads the status of database and tables."""
