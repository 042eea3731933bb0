"""What a change is: its place in the one order of its table, and which change decides a key. Pure."""
