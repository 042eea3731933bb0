"""What operators see of a mirror and decide about it: status, metrics, checks before the first run, exit codes."""
