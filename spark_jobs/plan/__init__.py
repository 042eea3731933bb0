"""Plans which changes of a table are published next: applies the plan rule to rows of the change log."""
