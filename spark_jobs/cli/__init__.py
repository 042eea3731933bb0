"""The command line ``open-mirroring``: each command a function from its arguments to an exit code."""
