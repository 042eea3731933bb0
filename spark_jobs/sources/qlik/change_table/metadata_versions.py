"""Detects that the metadata file of a data file, which gives its values their meaning, has changed (G-32).

The ledger stores its version and digest after the version of the data file.
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
    """A metadata file as last seen; empty texts if it was not recorded."""

    version: str = ""
    digest: str = ""

    @classmethod
    def of(cls, seen: FileVersion | None) -> Metadata:
        """The part of a data file's record about its metadata file."""
        noted = "" if seen is None else seen.version.partition(_BETWEEN)[2]
        version, _, digest = noted.rpartition(_BETWEEN)
        return cls(version, digest)

    def is_another(self, root: Place, file: SourceFile) -> bool:
        """Whether the content has changed; a file of unchanged version is not opened."""
        return bool(self.digest) and self.version != file.version and self.digest != metadata_digest(root / file.name)

    def behind(self, own: FileVersion) -> FileVersion:
        """The record of a data file together with this."""
        return own._replace(version=_BETWEEN.join((own.version, *self)))


def metadata_digest(path: Place) -> str:
    """The digest of a metadata file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def of_data_file(seen: FileVersion) -> FileVersion:
    """The part of the record about the data file alone."""
    return seen._replace(version=seen.version.partition(_BETWEEN)[0])


def of_data_files(seen: Mapping[str, FileVersion]) -> dict[str, FileVersion]:
    """The parts of the records about the data files alone."""
    return {name: of_data_file(one) for name, one in seen.items()}
