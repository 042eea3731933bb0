"""How the JVMs of tests start quickly: little compiling, and classes loaded from an archive made once.

Two of three seconds of such a JVM go by before it does anything; tests start dozens of them. See JEP 310 and 350
(class data sharing of application classes).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LIKE_A_JOB = """
from spark_jobs.runtime.session import build_session
spark = build_session("classes")
rows = spark.range(10).selectExpr("id", "cast(id as string) text")
assert rows.groupBy("text").count().count() == 10
assert spark.sparkContext.parallelize(range(4), 2).map(str).collect() == ["0", "1", "2", "3"]
spark.stop()
"""
DELTA = (
    "-Dspark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "-Dspark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog "
    "-Dspark.databricks.delta.snapshotPartitions=1"
)
"""What a test's session has beyond a job's: tables are written by Spark as a service could write them."""


@cache
def java_options() -> str:
    """What ``SPARK_SUBMIT_OPTS`` is for a quick start; the archive is made where there is none of these very jars.

    A JVM that cannot use the archive starts without it, so the worst that a stale one costs is time.
    """
    archive = ROOT / ".cache" / f"classes-{_jars()}.jsa"
    if not archive.exists():
        _make(archive)
    return f"{_PLAIN} -XX:SharedArchiveFile={archive} -Xshare:auto"


def _jars() -> str:
    names = sorted(path.name for path in (ROOT / "jars").glob("*.jar"))
    return hashlib.sha256(repr((names, sys.prefix, os.environ.get("JAVA_HOME"))).encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / "made.jsa"
        options = f"{_PLAIN} -XX:ArchiveClassesAtExit={made}"
        environment = {
            **os.environ,
            "SPARK_SUBMIT_OPTS": options,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        command = [sys.executable, "-c", _LIKE_A_JOB]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600, cwd=ROOT)
        made.replace(archive)


if __name__ == "__main__":
    java_options()
