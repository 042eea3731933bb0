"""Reads the Avro records of one structure one after another, and spells their rows by columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.contract.fast_decoder import RowFields
from spark_jobs.sources.qlik.message.followed import Followed
from spark_jobs.sources.qlik.message.headers import Headers, read_headers

_encode_lines = msgspec.json.Encoder().encode_lines


class Spot(NamedTuple):
    """Where the record of a message stands in a block: the message's number and place, the record's start and end."""

    number: int
    place: int
    start: int
    end: int


def record_rows(followed: Followed, content: bytes, spots: Sequence[Spot]) -> list[RowFields]:
    """The rows of those messages that are proven to be plain changes.

    Args:
        followed: the structure of all of them, of a mirrored table.
        content: where their records stand.
        spots: which records.
    """
    schema = followed.writer
    if schema is None:
        return []
    sure: list[tuple[Spot, Headers]] = []
    images: list[dict[str, Any]] = []
    records = schema.records(content, [(spot.start, spot.end) for spot in spots])
    for spot, record in zip(spots, records, strict=True):
        if record is None:
            continue
        data, before = record["data"], record.get("beforeData")
        image, other = (before, None) if data is None else (data, before)
        if image is None or not _same_key(image, other, followed.key):
            continue
        try:
            headers = read_headers(record, followed.sequence_digits)
        except Refusal:
            continue
        if other is not None and any(image[name] != other[name] for name in followed.unchanged(headers)):
            continue
        is_sure = followed.is_sure(headers, has_data=data is not None, has_before=before is not None)
        if is_sure and (other is None or schema.has_texts(other)):
            sure.append((spot, headers))
            images.append(image)
    try:
        schema.spell(images)
    except ValueError:
        return []  # the exact decoder says which value it is
    rows = []
    for (spot, headers), image, line in zip(sure, images, _encode_lines(images).splitlines(), strict=True):
        row = followed.row(spot.number, spot.place, headers, [image[name] for name in followed.key], line)
        if row is not None:
            rows.append(row)
    return rows


def _same_key(image: Mapping[str, Any], other: Mapping[str, Any] | None, key: Sequence[str]) -> bool:
    """Whether an image has a key, and another one, if there is one, has the same."""
    for name in key:
        value = image[name]
        if value is None or (other is not None and other[name] != value):
            return False
    return True
