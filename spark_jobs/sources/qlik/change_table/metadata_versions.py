"""Tells whether the metadata file beside a data file is still the one by which it was read (G-32).

It says what the values of the data file are. One that is put there later in its place would change their meaning, and
nobody would look: the data file is as it was. So behind the version of a data file the ledger has that of its metadata
file, and a digest of it. A data file without a metadata file has neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.changes.manifest import FileVersion
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.transports.source_folders import SourceFile

_BETWEEN = "|"


class Metadata(NamedTuple):
    """A metadata file as it was seen last; empty texts where nobody noted it."""

    version: str = ""
    digest: str = ""

    @classmethod
    def of(cls, seen: FileVersion | None) -> Metadata:
        """What was noted with a data file."""
        noted = "" if seen is None else seen.version.partition(_BETWEEN)[2]
        version, _, digest = noted.rpartition(_BETWEEN)
        return cls(version, digest)

    def is_another(self, root: Place, file: SourceFile) -> bool:
        """Whether another content stands there now; only a file with another version is looked into."""
        return bool(self.digest) and self.version != file.version and self.digest != metadata_digest(root / file.name)

    def behind(self, own: FileVersion) -> FileVersion:
        """What is noted of a data file together with this."""
        return own._replace(version=_BETWEEN.join((own.version, *self)))


def metadata_digest(path: Place) -> str:
    """The digest of a metadata file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def of_data_file(seen: FileVersion) -> FileVersion:
    """What was noted of the data file alone."""
    return seen._replace(version=seen.version.partition(_BETWEEN)[0])


def of_data_files(seen: Mapping[str, FileVersion]) -> dict[str, FileVersion]:
    """What was noted of the data files alone."""
    return {name: of_data_file(one) for name, one in seen.items()}
