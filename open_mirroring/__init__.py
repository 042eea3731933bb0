"""What is true about an open mirrored database: the core, in plain Python.

The core decides (positions, plans, protocols, verdicts) and owns the ledger and the landing zone's rules.
It imports neither Airflow nor Spark, so that sensors, jobs, the command line and the explorer run the same code.
"""
