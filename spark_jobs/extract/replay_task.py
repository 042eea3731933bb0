"""Replays dead letters in a worker: decodes their messages again, with the present decoder and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from open_mirroring.changes.manifest import LetterPlace
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import REJECTED
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import Decoding, ReadTask
from spark_jobs.sources.contract.decoded import Decoder

_LETTERS_AT_ONCE = 10_000


@dataclass(frozen=True)
class ReplayTask:
    """Some dead letters, the files of the change log that contain them, and in *read* how to decode them."""

    letters: tuple[LetterPlace, ...]
    files: tuple[str, ...]
    read: ReadTask


def replay(task: ReplayTask) -> Part:
    """Decode the dead letters into the change log; a dead letter that still cannot be decoded stays open."""
    decoder = task.read.format.decoder(task.read.tables, task.read.schemas)
    messages = _messages(task, decoder)
    sound = decodable(decoder, [message for message, _ in messages])
    decoding = Decoding(task.read.format, task.read.tables, task.read.schemas, task.read.target)
    decoding.take(sound)
    read = {(message.origin, message.place) for message in sound}
    replayed = [at for message, places in messages if (message.origin, message.place) in read for at in places]
    return replace(decoding.finish(), replayed=replayed)


def decodable(decoder: Decoder, messages: Sequence[Any]) -> list[Any]:
    """The messages that can be decoded together without any of them becoming a dead letter."""
    left = list(messages)
    while left:
        refused = {(row.origin, row.place) for row in decoder.decode(left).rows if row.kind == REJECTED}
        if not refused:
            break
        sound = [message for message in left if (message.origin, message.place) not in refused]
        if len(sound) == len(left):
            return []  # a dead letter of somewhere else: nothing is known of these
        left = sound
    return left


def _messages(task: ReplayTask, decoder: Decoder) -> list[tuple[Any, list[LetterPlace]]]:
    """Each message once, sorted by coordinates, with the places of its dead letters."""
    wanted = set(task.letters)
    dataset = log_rows(task.read.target.root, task.files)
    columns = ["batch", "origin", "place", "tbl", "raw"]
    found: dict[tuple[str, int], tuple[Any, list[LetterPlace]]] = {}
    for part in dataset.to_batches(columns=columns, filter=pc.field("kind") == REJECTED, batch_size=_LETTERS_AT_ONCE):
        for line in part.to_pylist():
            at = LetterPlace(line["batch"], line["origin"], line["place"])
            if at not in wanted or line["raw"] is None:
                continue
            message = decoder.again(at.origin, at.place, line["raw"], line["tbl"])
            _, places = found.setdefault((at.origin, at.place), (message, []))
            if at not in places:
                places.append(at)
    return [found[at] for at in sorted(found)]
