"""The folder of a demo, and the paths in it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.failures import DemoFailed

ROOT = Path(__file__).resolve().parent.parent
MIRROR = "shop"
_OWN = ".demo"
_PLACES = 9


class DemoFolder:
    """The paths of all files of one demo, below *root*."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = root / "source.db"
        self.capture = root / "capture"
        self.export = root / "export"
        self.last_export = root / "last_export"
        self.target = root / "target"
        self.broker = root / "broker"
        self.mirrors = root / "mirrors"
        self.landing_zone = root / "landing_zone"
        self.change_log = root / "change_log"
        self.tables = root / "tables"
        self.airflow_home = root / "airflow"
        self.logs = root / "logs"


@contextmanager
def claim(folder: Path) -> Iterator[DemoFolder]:
    """An empty demo folder, locked until the block ends; what an earlier demo left there is removed.

    While *folder* is in use by another demo, ``<folder>-2`` is taken, and so on.

    Raises:
        DemoFailed: when the folder holds something that no demo has put there, or all are in use.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _PLACES + 1):
        chosen = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        # Beside the folder, because the folder itself is removed. The kernel frees the lock, however the demo ends.
        with chosen.with_name(f"{chosen.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield _prepare(chosen)
            return
    raise DemoFailed(f"{folder} and the {_PLACES - 1} folders after it are all in use by running demos")


def _prepare(root: Path) -> DemoFolder:
    if root.exists():
        if any(root.iterdir()) and not (root / _OWN).is_file():
            raise DemoFailed(f"{root} holds something that no demo has put there; name another --folder")
        shutil.rmtree(root)
    place = DemoFolder(root)
    root.mkdir()
    (root / _OWN).touch()
    inputs = (place.capture, place.target, place.broker)
    for made in (place.mirrors, place.airflow_home, place.logs, place.landing_zone, place.tables, *inputs):
        made.mkdir()
    return place


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of another Airflow or mirror, with the demo's programs first."""
    # Without compiled modules each of Airflow's and Spark's processes would compile thousands of files anew.
    foreign = ("AIRFLOW", "OPEN_MIRRORING_", "_AIRFLOW", "PYSPARK_", "SPARK_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    # The plugins, too: Airflow would add them last, behind those of a checkout that is installed.
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "testing")))
    own = {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    # What talks to 127.0.0.1 must not be sent to a proxy.
    direct = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1", "localhost")))
    return {**kept, **own, "NO_PROXY": direct, "no_proxy": direct, **more}
