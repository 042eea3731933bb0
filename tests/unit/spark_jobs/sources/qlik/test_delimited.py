"""Delimited text by any delimiter, quote and escape: every text comes back, and no damage makes other rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from random import Random

import pytest

from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.qlik import delimited
from spark_jobs.sources.qlik.dfm import CsvForm, DfmColumn

Row = tuple[str | None, ...]


def rows_of(content: str, form: CsvForm, width: int) -> list[Row]:
    columns = [DfmColumn(at, f"column {at}", "STRING") for at in range(1, width + 1)]
    batches = list(delimited.read_delimited(io.BytesIO(content.encode()), form, columns))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def written(rows: Sequence[Row], form: CsvForm) -> str:
    escape = form.escape or form.quote

    def spelled(text: str | None) -> str:
        if text is None:
            return form.null
        text = text if escape == form.quote else text.replace(escape, 2 * escape)
        return form.quote + text.replace(form.quote, escape + form.quote) + form.quote

    return "".join(form.delimiter.join(map(spelled, row)) + form.record_end for row in rows)


@pytest.mark.parametrize("seed", range(4))
def test_every_text_comes_back_whatever_the_delimiters_are(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    signs = "ab\"'\\,;|\n\r\x01\x02é𝄞 N#"
    for _ in range(400):
        monkeypatch.setattr(delimited, "BLOCK", random.choice([1, 3, 16, 1000]))
        quote = random.choice("\"'")
        form = CsvForm(
            random.choice([",", "||", "\x01", ";|"]),
            random.choice(["\n", "\r\n", "|\n", "\x02", "##", "\r"]),
            random.choice(["NULL", "~"]),
            quote,
            random.choice(["", quote, "\\"]),
        )
        width = random.randint(1, 4)

        def one() -> str | None:
            return random.choice([None, "".join(random.choices(signs, k=random.randint(0, 6)))])

        rows = [tuple(one() for _ in range(width)) for _ in range(random.randint(0, 6))]
        content = written(rows, form)
        content = content.removesuffix(form.record_end) if random.random() < 0.2 else content
        assert rows_of(content, form, width) == rows, (content, form)


@pytest.mark.parametrize("seed", range(4))
def test_damage_makes_no_rows_that_the_text_does_not_have(seed: int) -> None:
    random = Random(seed)
    form = CsvForm(",", "\n", "", '"', '"')
    for _ in range(400):
        texts = ["a", 'b "q"', "x,y", "l\nm", None, ""]
        content = written([tuple(random.choice(texts) for _ in range(3)) for _ in range(4)], form)
        at = random.randrange(len(content))
        content = content[:at] + random.choice(["", '"', ",", "\n"]) + content[at + random.randint(0, 1) :]
        try:
            found = rows_of(content, form, 3)
        except Refusal:
            continue
        wanted = [tuple(row) for row in csv.reader(io.StringIO(content, newline=""), strict=True)]
        assert [tuple(text or "" for text in row) for row in found] == wanted, content
