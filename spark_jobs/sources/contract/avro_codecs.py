"""Distinguishes an Avro container that is damaged from one whose compression this machine has no library for."""

from __future__ import annotations

import re

from open_mirroring.errors import TerminalError

_MISSING = re.compile(r"(\w+) codec is supported but you need to install one of the following libraries: \((.+)\)")


def refuse_missing_codec(error: BaseException) -> None:
    """Raise our own error where reading a container failed because a library is missing: the container is sound."""
    if found := _MISSING.search(str(error)):
        package = found[2].rstrip(",").replace("'", "")
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"the file is compressed with {found[1]}, and the Python package {package} is not installed on the machine "
            "that reads it. Nothing of it was read, and nothing is lost",
            way_out=f"install {package} on every machine that reads the source (`pip install 'fastavro[codecs]'`), "
            "then run again",
        ) from error
