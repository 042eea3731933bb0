"""Plans which changes of a table are published next: the newest change of each key."""
