"""Writers that are plugged into the suite."""
