"""Inputs that people reported from the field, run through the command line: each ends equal, or is reported."""
