"""A job is handed to a driver elsewhere as text that one key opens, and its end is kept for who started it (S-16)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.operate.job_result import JobResult, record_end, recorded_end
from open_mirroring.operate.sealed_job import ARGUMENT_BYTES, JobOrder, opened, sealed
from tests.hand_made_mirror import HandMadeMirror

CANARY = "canary-7f3a9"
ORDER = JobOrder("run", "extract_changes", "shop.yaml", "mirror: shop\n", "/home", ["--start", "x"], {"A": CANARY})


def test_only_the_key_opens_what_was_sealed_s_16(tmp_path: Path) -> None:
    """S-16: another key, or one byte that differs, and nothing of it is believed."""
    key, key_file = Fernet.generate_key().decode(), tmp_path / "key"
    key_file.write_text(f"{key}\n")
    text = sealed(ORDER, key)
    assert opened(text, str(key_file)) == ORDER
    assert CANARY not in text and "shop" not in text
    altered = f"{text[:40]}{'A' if text[40] != 'A' else 'B'}{text[41:]}"
    for wrong in (altered, text[:-8], "", sealed(ORDER, Fernet.generate_key().decode())):
        with pytest.raises(TerminalError, match="INSTALLATION_INCOMPLETE"):
            opened(wrong, str(key_file))


@pytest.mark.parametrize("content", [None, "", "short", "ä" * 43 + "="])
def test_a_key_that_is_none_is_named_by_its_file_s_16(tmp_path: Path, content: str | None) -> None:
    """S-16: and its text is not in the message."""
    if content is not None:
        (tmp_path / "key").write_text(content)
    with pytest.raises(TerminalError, match="INSTALLATION_INCOMPLETE") as caught:
        opened("text", str(tmp_path / "key"))
    assert str(tmp_path / "key") in str(caught.value) and "short" not in str(caught.value)


def test_a_secret_of_a_vault_is_read_in_fabric_alone_s_16() -> None:
    """S-16: elsewhere its library is missing; where it is there, tests/dags/test_fabric_spark.py reads it."""
    with pytest.raises(TerminalError, match=r"INSTALLATION_INCOMPLETE.*ModuleNotFoundError.*shop\.vault"):
        opened("text", "https://shop.vault.azure.net/secrets/job-key")


def test_what_no_argument_can_hold_is_refused_s_16() -> None:
    """S-16: random text, for it does not become smaller."""
    text = "".join(Fernet.generate_key().decode() for _ in range(ARGUMENT_BYTES // 40))
    with pytest.raises(TerminalError, match="INSTALLATION_INCOMPLETE"):
        sealed(ORDER._replace(text=text), Fernet.generate_key().decode())


def test_an_end_is_kept_for_a_week_by_the_name_of_its_run_s_16(tmp_path: Path) -> None:
    """S-16: one that never came is None, not the end of another run."""
    made = HandMadeMirror(tmp_path)
    result = tmp_path / "result.json"
    result.write_text('{"error": ["CODE", "what"]}')
    record_end(made.ledger, "one", "shop", 1, result)
    record_end(made.ledger, "two", "shop", 137, tmp_path / "nothing")
    assert recorded_end(made.ledger, "one") == (1, JobResult(error=("CODE", "what")))
    assert recorded_end(made.ledger, "two") == (137, JobResult())
    assert recorded_end(made.ledger, "three") is None
    with made.ledger.begin() as db:
        db.execute(t.job_end.update().where(t.job_end.c.run == "one").values(ended_at=datetime.now(UTC) - timedelta(8)))
    record_end(made.ledger, "four", "shop", 0, result)
    assert recorded_end(made.ledger, "one") is None and recorded_end(made.ledger, "two") is not None
