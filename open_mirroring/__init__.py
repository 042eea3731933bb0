"""The core of the product, in plain Python: it decides what is true about an open mirrored database.

The core contains positions, plans, protocols and verdicts, and owns the ledger and the rules of the landing zone. The
core imports neither Airflow nor Spark, so that sensors, jobs and the command line run the same code.
"""
