"""What operators see and decide: status, metrics, checks before the first run, exit codes."""
