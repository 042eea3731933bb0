"""The runtime of a job: its arguments, its Spark session, tasks in workers, its exit code."""
