"""Which changes of a table are published next: the plan rule over rows of the change log."""
