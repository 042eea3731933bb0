"""Reads the CloudEvents envelope of a message, which is one event or one piece of an event (C-10 to C-32, A4).

Three generations of the format (a, b and c) have the same type name (C-22). Generation a numbers the pieces of an event
by ``splitindex`` and ``splittotalcnt``, generations b and c by ``segmentindex`` and ``finalsegment``. Public source:
Microsoft Learn, *JSON Message format - change event streaming*, and CloudEvents 1.0.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import NamedTuple

import msgspec

from open_mirroring.changes.log_position import position_text
from spark_jobs.sources.contract.decoded import Refusal, shown

EVENT_TYPE = "com.microsoft.SQL.CES.DML.V1"
OPERATIONS = ("INS", "UPD", "DEL")

AVRO_CONTAINER = b"Obj\x01"
"""The first bytes of an Avro container file."""
_JSON_CONTENT = {"application/json", "application/avro-json"}
"""``application/avro-json`` is JSON text despite its name (C-16)."""

_LOGICAL_ID = re.compile(
    r"([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}):([0-9A-Fa-f]{20}):([0-9]{20})"
)
_NULL = msgspec.Raw(b"null")
_SURROGATE = re.compile(rb"\\u[dD][89A-Fa-f]")
_PLACE_AS_TEXT = re.compile(rb'"(?:segmentindex|finalsegment|splitindex|splittotalcnt)"\s*:\s*"')
_BLANKS = b" \t\r\n"
_MAX_INDEX = 2**31 - 1


class KeyPart(msgspec.Struct, gc=False):
    """One entry of ``pkkey``, which lists an event's key columns with their values.

    A value may be any scalar (C-45) except a fraction, because a fraction could lose digits.
    """

    columnname: str
    value: str | int | bool | None


class Transaction(msgspec.Struct, gc=False):
    """The fields of ``transaction`` that locate a change; the times in ``transaction`` are not read (C-48)."""

    commitlsn: str
    sequencenumber: int


class EventSource(msgspec.Struct, gc=False):
    """The table, columns and key of a change.

    *cols* is not parsed here: a table has few different column lists, so the decoder parses each of them once.
    """

    db: str
    schema: str
    tbl: str
    cols: msgspec.Raw
    pkkey: list[KeyPart] | None
    transaction: Transaction | None = None


class EventRow(msgspec.Struct, gc=False):
    """The row before (*old*) and after (*current*) the change, each as the JSON text of an object."""

    old: str | None
    current: str | None


class Data(msgspec.Struct, gc=False):
    """The member ``data`` of an event; one documentation page writes ``eventdata`` for ``eventrow`` (C-42)."""

    eventsource: EventSource
    eventrow: EventRow | None = None
    eventdata: EventRow | None = None

    @property
    def images(self) -> EventRow | None:
        """The row before and after the change, from ``eventrow`` or ``eventdata``.

        None if the event has neither of the two members, or both.
        """
        return None if self.eventrow and self.eventdata else self.eventrow or self.eventdata


class _Envelope(msgspec.Struct, gc=False):
    specversion: str
    type: str
    source: str
    id: str
    logicalid: str
    operation: str
    time: msgspec.Raw = _NULL
    datacontenttype: str | None = None
    data: str | Data | None = None
    data_base64: str | None = None
    segmentindex: int | None = None
    finalsegment: bool | None = None
    splitindex: int | None = None
    splittotalcnt: int | None = None


class _Typed(msgspec.Struct):
    type: str = EVENT_TYPE


class Split(NamedTuple):
    """The position of a message among the pieces of its event; pieces count from 0 or from 1 (C-52).

    Either *last* shows whether this piece is the last one, or *total* is the number of pieces, at least 2; the field
    that the message does not have is None.
    """

    piece: int
    last: bool | None
    total: int | None

    @property
    def whole(self) -> bool | None:
        """Whether the message is a complete event; None if only the message's content can show it.

        A last piece with the number 1 is ambiguous: it ends a split event that counts from 0, or it is an unsplit
        event that counts from 1.
        """
        if self.total is not None:
            return False
        if not self.last or self.piece > 1:
            return False
        return True if self.piece == 0 else None


UNSPLIT = Split(0, True, None)
"""An event that came in one message."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """A message with a valid envelope.

    *data* is a string (JSON), bytes (Avro), or :class:`Data` if it was a JSON object inside the envelope.

    *epoch* is the id of the stream (one enabling of streaming at the source), *lsn* and *sequence* order the stream's
    changes. All three come from ``logicalid``.
    """

    epoch: str
    lsn: str
    sequence: str
    operation: str
    split: Split
    data: str | bytes | Data
    time: msgspec.Raw = _NULL

    @property
    def logical_id(self) -> str:
        """The id that all pieces of an event share, spelled as in the change log (C-31).

        The stream's id (a GUID) is in lower case, the log sequence number in upper case.
        """
        return f"{self.epoch}:{self.lsn}:{self.sequence}"

    @property
    def committed(self) -> str | None:
        """When the change was committed; None if ``time`` is missing or invalid (C-15)."""
        try:
            return msgspec.json.decode(self.time, type=str)
        except msgspec.DecodeError:
            return None

    def position(self, sub: int) -> str:
        """The log position of the change (C-32); *sub* is 0 for removing a key and 1 for setting a row."""
        return position_text(self.lsn, self.sequence, sub)


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_data = msgspec.json.Decoder(Data).decode


def read_event(body: bytes) -> Event:
    """Reads the envelope of one message, JSON or Avro. Raises a Refusal if the message is not a change event."""
    if not body.strip(_BLANKS):
        raise Refusal("BODY_MISSING", "the message is empty")
    is_text = body[0] in _BLANKS or (0x20 < body[0] < 0x7F and not body.startswith(AVRO_CONTAINER))
    return _event(_read_json(body), is_avro=False) if is_text else _avro_event(body)


def _read_json(body: bytes) -> _Envelope:
    if not body.isascii():
        try:
            body.decode()  # the JSON reader checks only what it needs, and would accept bad bytes elsewhere
        except UnicodeDecodeError as error:
            raise Refusal("MESSAGE_INVALID", str(error)) from error
    try:
        return _decode_envelope(body)
    except msgspec.ValidationError as error:
        return _with_numbers_as_texts(body, error)
    except (msgspec.DecodeError, RecursionError) as error:
        piece = _with_half_a_character(body)
        if piece is None:
            raise Refusal("MESSAGE_INVALID", str(error)) from error
        return piece


def _with_numbers_as_texts(body: bytes, error: msgspec.ValidationError) -> _Envelope:
    """An event whose piece numbers a forwarder wrote as texts: ``"segmentindex": "0"`` (C-18)."""
    try:
        if _PLACE_AS_TEXT.search(body):
            return msgspec.json.decode(body, type=_Envelope, strict=False)
        _check_type(msgspec.json.decode(body, type=_Typed).type)
    except (msgspec.DecodeError, RecursionError):
        pass
    raise Refusal("MESSAGE_INVALID", str(error)) from error


def _check_type(found: str) -> None:
    if found != EVENT_TYPE:
        raise Refusal("MESSAGE_INVALID", f"type is {shown(found)}, not {EVENT_TYPE!r}")


def _with_half_a_character(body: bytes) -> _Envelope | None:
    """A piece that was cut inside a surrogate pair (C-54): valid except for the half at an end of its ``data``."""
    if not _SURROGATE.search(body):
        return None
    try:
        found = json.loads(body)
        envelope = msgspec.convert({name: found[name] for name in found if name != "time"}, _Envelope)
        envelope.time = msgspec.Raw(msgspec.json.encode(found.get("time")))
        data, envelope.data = envelope.data, ""
        msgspec.json.encode(envelope)  # fails if another field has half a character, too
        is_piece = isinstance(data, str) and _split(envelope) is not UNSPLIT
    except (ValueError, RecursionError, msgspec.MsgspecError, Refusal):
        return None
    envelope.data = data
    return envelope if is_piece else None


def _avro_event(body: bytes) -> Event:
    from spark_jobs.sources.ces import avro  # with fastavro, which no run over JSON needs

    is_container = body.startswith(AVRO_CONTAINER)
    fields = avro.read_container(body) if is_container else avro.read_envelope(avro.unframed(body))
    data = fields.pop("data", None)
    try:
        envelope = _decode_envelope(msgspec.json.encode(fields))
        envelope.data = json.dumps(data) if isinstance(data, dict) else data
    except (TypeError, ValueError) as error:
        raise Refusal("MESSAGE_INVALID", f"a record that holds no event: {error}") from error
    if not isinstance(envelope.data, str | bytes | None):
        raise Refusal("MESSAGE_INVALID", "data is neither text, bytes nor a record")
    return _event(envelope, is_avro=True)


def _avro_data(payload: bytes) -> Data:
    from spark_jobs.sources.ces import avro

    if not payload.startswith(AVRO_CONTAINER):
        return _decode_data(msgspec.json.encode(avro.read_data(payload)))
    try:
        return _decode_data(json.dumps(avro.read_container(payload)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise Refusal("MESSAGE_INVALID", f"a container file that holds no Data record: {error}") from error


def _event(envelope: _Envelope, is_avro: bool) -> Event:
    if envelope.specversion != "1.0":
        raise Refusal("MESSAGE_INVALID", f"specversion is {shown(envelope.specversion)}, not '1.0'")
    _check_type(envelope.type)
    match = _LOGICAL_ID.fullmatch(envelope.logicalid)
    if match is None:
        raise Refusal("MESSAGE_INVALID", f"logicalid {shown(envelope.logicalid)} is not guid:lsn:sequence")
    if envelope.operation not in OPERATIONS:
        raise Refusal("MESSAGE_INVALID", f"operation is {shown(envelope.operation)}, not INS, UPD or DEL")
    epoch, lsn, sequence = match.groups()
    split, data = _split(envelope), _payload(envelope, is_avro)
    return Event(epoch.lower(), lsn.upper(), sequence, envelope.operation, split, data, envelope.time)


def _split(envelope: _Envelope) -> Split:
    index, last = envelope.segmentindex, envelope.finalsegment
    if index == 0 and last:
        return UNSPLIT
    if index is not None and last is not None:
        if not 0 <= index <= _MAX_INDEX:
            raise Refusal("MESSAGE_INVALID", f"segmentindex {index} is out of range")
        return Split(index, last, None)
    index, total = envelope.splitindex, envelope.splittotalcnt
    if index is None or total is None:
        raise Refusal("MESSAGE_INVALID", "neither segmentindex and finalsegment nor splitindex and splittotalcnt")
    if not 0 <= index <= total <= _MAX_INDEX:
        raise Refusal("MESSAGE_INVALID", f"splitindex {index} of splittotalcnt {total} is out of range")
    return Split(index, None, total) if total > 1 else UNSPLIT


def _payload(envelope: _Envelope, is_avro: bool) -> str | bytes | Data:
    content, data = envelope.datacontenttype, envelope.data
    if content is not None and content not in _JSON_CONTENT:
        bare = content.split(";")[0].strip().lower()
        if bare not in _JSON_CONTENT and not (is_avro and bare.startswith("application/avro")):
            raise Refusal("MESSAGE_INVALID", f"datacontenttype is {shown(content)}")
    if envelope.data_base64 is not None:
        if data is not None:
            raise Refusal("MESSAGE_INVALID", "the event has both data and data_base64")
        try:
            return base64.b64decode(envelope.data_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("MESSAGE_INVALID", f"data_base64: {error}") from error
    if data is None:
        raise Refusal("MESSAGE_INVALID", "the event has no data")
    if isinstance(data, Data) and _split(envelope).whole is False:
        raise Refusal("MESSAGE_INVALID", "data is an object, but the message is one piece of several")
    return data


def read_data(payload: str | bytes | Data) -> Data:
    """Reads ``data`` of a complete event; the case of member names may differ from the published samples (C-97).

    Bytes that do not begin with a brace are read as an Avro record (C-62). Raises a Refusal if *payload* is neither a
    valid JSON object nor a valid Avro record.
    """
    if isinstance(payload, Data):
        return payload
    if isinstance(payload, bytes) and payload[:1] != b"{":
        return _avro_data(payload)
    try:
        text = payload if isinstance(payload, str) else payload.decode()
        try:
            return _decode_data(text)
        except msgspec.ValidationError:
            # One documentation page has `eventSource`. Images are nested texts, so no column's name is changed.
            lowered = json.loads(text, object_pairs_hook=lambda pairs: {name.lower(): value for name, value in pairs})
            return _decode_data(json.dumps(lowered))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal("MESSAGE_INVALID", str(error)) from error


def is_complete(payload: str | bytes | Data) -> bool:
    """Whether *payload* is one complete JSON object or Avro record, not a piece of an event (C-52)."""
    try:
        read_data(payload)
    except Refusal:
        try:
            return isinstance(msgspec.json.decode(payload), dict)  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
    return True
