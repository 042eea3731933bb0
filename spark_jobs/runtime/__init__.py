"""Runs a job: its arguments, its Spark session, its tasks in workers, its exit code."""
