"""One job of a mirror in Fabric's own Spark: the program of a Livy batch, uploaded to a lakehouse once.

Its arguments are where the key is, and the job as encrypted text; Airflow's operator passes both.
"""

from __future__ import annotations

import sys

from spark_jobs.sealed_job import main

if __name__ == "__main__":
    sys.exit(main())
