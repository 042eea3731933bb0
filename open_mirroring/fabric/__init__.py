"""Calls the Fabric REST API: creates and starts the mirrored database, and reads its status and that of its tables."""
