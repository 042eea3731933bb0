"""The target's rules: names and files, columns and markers, and the store they live in."""
