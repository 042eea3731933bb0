"""Every folder of the field's inputs: what is sound ends equal, what is not is reported, nothing is silent."""

from __future__ import annotations

from pathlib import Path

from tests.field.trial import Trial


def test_an_export_that_is_sound_is_mirrored(shared_data: Path, tmp_path: Path) -> None:
    trial = Trial.of("T_csv", shared_data, tmp_path)
    trial.run("initial-load")
    trial.run("tick")
    trial.apply()
    assert {row["id"] for row in trial.rows("dbo/ok")} == {1, 9}
