"""A staged object is proved before anybody relies on it: read back from the store, whatever the store did with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from open_mirroring.errors import MirroringError
from open_mirroring.landing_zone.data_file import Footer, write_data_file
from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.schema import LandingColumn, file_schema
from open_mirroring.landing_zone.store import ObjectInfo
from open_mirroring.publishing import StagedFile
from spark_jobs.staging import create_staged

SCHEMA = file_schema([LandingColumn("id", "int64"), LandingColumn("name", "string")], ["id"], marker=True)
NAME = "dbo.schema/t/_stage-1/00000000000000000001.a.0000"


class Unfaithful(LocalStore):
    """A store that says it created an object and has made something else of it."""

    def __init__(self, root: Path, harm: str) -> None:
        super().__init__(root)
        self._harm = harm

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        assert isinstance(content, Path)
        data = content.read_bytes()
        if self._harm == "cut":
            return super().create(path, data[:-1])
        if self._harm == "torn":
            # As long as announced, so that only reading it tells.
            created = super().create(path, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        else:
            created = super().create(path, data)
        if self._harm == "swept":
            self.delete(path)
        return created


def staged(store: LocalStore, tmp_path: Path, marker: int = 4) -> StagedFile:
    rows = pa.table([pa.array([1, 2]), pa.array(["a", None]), pa.array([marker] * 2, pa.int32())], schema=SCHEMA)
    local = tmp_path / "local.parquet"
    written = write_data_file(local, rows, SCHEMA, Footer("shop", "t", 1, 1, 0, 1, "changes"))
    return create_staged(store, NAME, local, written, SCHEMA, ["id"], "a", "b")


def test_a_sound_object_is_named_with_its_etag_and_digest(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "zone")
    file = staged(store, tmp_path)
    found = store.stat(NAME)
    assert found is not None
    assert (file.object_name, file.etag, file.rows, file.size) == (NAME, found.etag, 2, found.size)


@pytest.mark.parametrize(
    ("harm", "code"), [("cut", "STAGED_GONE"), ("swept", "STAGED_GONE"), ("torn", "DATA_FILE_INVALID")]
)
def test_an_object_that_is_not_what_was_written_is_never_sealed(tmp_path: Path, harm: str, code: str) -> None:
    """F-38, I11: nothing partial or damaged gets a number."""
    with pytest.raises(MirroringError, match=code):
        staged(Unfaithful(tmp_path / "zone", harm), tmp_path)


def test_markers_are_proved_in_what_came_back(tmp_path: Path) -> None:
    """F-50, F-51: a keyed table never gets an insert that looks for no key."""
    with pytest.raises(MirroringError, match="DATA_FILE_INVALID"):
        staged(LocalStore(tmp_path / "zone"), tmp_path, marker=0)


def test_a_staging_name_is_used_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "zone")
    first = staged(store, tmp_path)
    with pytest.raises(MirroringError, match="STAGED_NAME_TAKEN"):
        staged(store, tmp_path)
    found = store.stat(NAME)
    assert found is not None
    assert found.etag == first.etag
