"""How mirrors are scheduled with Apache Airflow: DAGs from mirror files, the operators, sensor and trigger they use.

What is true is decided elsewhere (:mod:`open_mirroring`); here is only when it is asked, by whom, and who is told.
"""
