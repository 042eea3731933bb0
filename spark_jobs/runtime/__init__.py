"""How a job runs: its arguments, its Spark session, tasks in workers, its exit code."""
