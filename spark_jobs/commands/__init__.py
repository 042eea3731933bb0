"""The commands of ``open-mirroring``, each a function from its arguments to an exit code."""
