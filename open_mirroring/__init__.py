"""The core of the product, in plain Python: it decides what is true about an open mirrored database.

It holds positions, plans, protocols and verdicts, and it owns the ledger and the rules of the landing zone.
It imports neither Airflow nor Spark. So sensors, jobs, the command line and the explorer run the same code.
"""
