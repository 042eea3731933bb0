"""Shows operators what they decide about: status, metrics, checks before the first run; and maps ends to exit codes."""
