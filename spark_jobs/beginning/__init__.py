"""How a mirror file is begun, and compared with its source: by what the source tells of its tables."""
