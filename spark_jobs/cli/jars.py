"""The command ``jars``: downloads the jars that Spark needs, in fixed versions; a wheel does not contain them."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from open_mirroring.errors import TerminalError
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.spark_jars import jars_folder

_PINS = Path(__file__).resolve().parents[1] / "runtime" / "jars"


def jars(arguments: argparse.Namespace) -> Exit:
    """Download missing jars from Maven Central and verify the checksum of each.

    No other jar gets into the folder. Raises ``INSTALLATION_INCOMPLETE`` if a download fails or a checksum differs,
    after printing the cause.
    """
    folder: Path = (arguments.folder or jars_folder()).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for pin in _PINS.iterdir():
        # A folder that an earlier version filled has that version's pins.
        if not (folder / pin.name).exists() or not pin.samefile(folder / pin.name):
            shutil.copy(pin, folder)
    done = subprocess.run(["sh", folder / "fetch", sys.executable], check=False)
    if done.returncode != 0:
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            "the jars are not there, or are not those that are pinned",
            where=str(folder),
            next_step="fix what is reported above, then: open-mirroring jars",
        )
    print(folder)
    return Exit.DONE
