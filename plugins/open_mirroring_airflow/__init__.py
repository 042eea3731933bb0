"""Schedules mirrors with Apache Airflow: the DAGs of mirror files, and the operators, sensor and trigger in them.

The core (:mod:`open_mirroring`) decides what is true. This package only decides when to ask, who asks and who is
notified.
"""
