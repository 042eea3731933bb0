"""The whole pipeline on one machine: a shop's database, its change events, Airflow, Spark, the mirror, and a judge."""
