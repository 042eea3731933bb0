"""Says what an operator can do about a dead letter, by its code.

A dead letter is a message that could not be read, or a change whose values do not fit their columns. It is kept with
its coordinates and the reason, and nothing else waits for it. If its table and key are known, only that key is out of
date, until a later change of it arrives. If its table is unknown, any table of the mirror may lack a change.
"""

from __future__ import annotations

_FORMAT = "compare the message with the published format of its source; if the source has a newer one, "
_AGAIN = "deliver a sound copy of it: copies of what was read already are dropped"
_KEY = (
    "compare `key` in the mirror file with the table's primary key, in names and spelling; the table is stopped, for "
    "which of its rows was meant is not known"
)
_LATER_ROW = "until a later change of its key arrives, the target shows the row as it was before"
_ROW = f"find out what wrote the row; {_LATER_ROW}; touching the row at the source sends such a change"
_PIECES = "deliver all pieces again together: complete ones are joined"
_FILES = "deliver both together under a new name, then resume the table: what was read already is dropped"

HEALED_BY_COPY = frozenset(
    {
        *("AVRO_MALFORMED", "AVRO_SCHEMA_INVALID", "METADATA_MISSING", "METADATA_INVALID", "MESSAGE_FORMAT_CUSTOM"),
        *("BODY_NOT_UTF8", "JSON_MALFORMED", "FRAMING_UNKNOWN", "ENVELOPE_INVALID", "TYPE_VERSION_UNKNOWN"),
        *("MESSAGE_TYPE_UNKNOWN", "CONTENT_TYPE_UNKNOWN", "DATA_MISSING", "DATA_MALFORMED", "LOGICALID_INVALID"),
        *("OPERATION_UNKNOWN", "POSITION_MISMATCH", "TABLE_CASE", "TOO_LARGE"),
        *("FRAGMENT_CONFLICT", "FRAGMENTS_INCOMPLETE", "WRAPPER_MALFORMED"),
        *("DFM_INVALID", "DFM_CONTRADICTS", "DFM_COUNT_DIFFERS", "FILE_DAMAGED", "FORMAT_UNSUPPORTED"),
        *("NULL_AMBIGUOUS", "FILE_UNKNOWN", "FILE_INCOMPLETE"),
    }
)
"""Dead letters that hide whole changes of a table, and that a sound copy heals, should it be delivered later, or a
replay by a decoder that knows more."""

NO_MESSAGE = frozenset(
    {
        *("CAPTURE_DAMAGED", "FILE_UNKNOWN", "LINES_DAMAGED", "WRAPPER_MALFORMED"),
        *("DFM_INVALID", "DFM_CONTRADICTS", "DFM_COUNT_DIFFERS", "FILE_DAMAGED", "FORMAT_UNSUPPORTED"),
        *("NULL_AMBIGUOUS", "FILE_INCOMPLETE"),
    }
)
"""Dead letters of files, not of messages: no decoder can make anything of their bytes, only reading the file again."""

WAYS_OUT = {
    # The transport found no message in the bytes.
    "CAPTURE_DAMAGED": "look whether the Capture file is complete at the source, and copy it again under its name: a "
    "longer file is read anew as a whole, and what was read already is dropped",
    "LINES_DAMAGED": "look whether the file is complete at the source, and deliver it again under a new name: what was "
    "read already is dropped",
    "FILE_UNKNOWN": "deliver the file again under a name with the ending of what it holds, unpacked if it is packed "
    "otherwise than by gzip; or, if it does not belong to the source, keep it elsewhere and accept the dead letter",
    "WRAPPER_MALFORMED": "see that every line is a JSON object with topic, partition, offset and value, or say "
    "`layout: bare` in the mirror file if lines are messages; then deliver the lines again in a new file",
    # The message is none of the format.
    "BODY_MISSING": "find out who sends messages without content to this stream; a change is in none of them",
    "BODY_NOT_UTF8": f"find out what altered the message on its way; {_AGAIN}",
    "JSON_MALFORMED": f"find out what cut or altered the message on its way; {_AGAIN}",
    "AVRO_MALFORMED": f"find out what cut or altered the message on its way; {_AGAIN}",
    "FRAMING_UNKNOWN": "see that only the source of this mirror writes to this stream, and that no converter stands "
    "between them: messages have to arrive as they were sent",
    "ENVELOPE_INVALID": f"{_FORMAT}update this product; else find out who else writes to this stream",
    "TYPE_VERSION_UNKNOWN": f"{_FORMAT}update this product and deliver the messages again",
    "CONTENT_TYPE_UNKNOWN": "set the stream's encoding to JSON or Avro at the source, and deliver the messages again",
    "DATA_MISSING": f"{_FORMAT}update this product; else find out what emptied the message",
    "DATA_MALFORMED": f"{_FORMAT}update this product; else find out what altered the message; {_AGAIN}",
    "LOGICALID_INVALID": f"{_FORMAT}update this product; without its logicalid a change has no place in the order",
    "OPERATION_UNKNOWN": f"{_FORMAT}update this product and deliver the messages again",
    "POSITION_MISMATCH": "find out what altered the message: logicalid and transaction block have to say the same; "
    + _AGAIN,
    "TOO_LARGE": "find out what wrote so long a message: the source sends 1 MB at most and cuts longer events",
    # The row in it is none of its table.
    "COLUMNS_INVALID": f"compare the message's columns with the table; {_LATER_ROW}",
    "ROW_MALFORMED": _ROW,
    "KEY_MISSING": _KEY,
    "KEY_CHANGED": "name the new primary key as `key` in the mirror file, and reset the table with a load: the table "
    "is stopped, for by the old key two rows may be one",
    "KEY_NARROWER": "name all columns of the announced key as `key` in the mirror file; or, if no two rows of the "
    "table ever have one value of it, say `key_is_unique: true`, replay the dead letters and resume the table",
    "KEY_INVALID": f"{_KEY}; a key type that loses digits in the target, such as datetime2(7), cannot be mirrored",
    # It is no row of a change table.
    "HEADER_MISSING": "select at least change_seq and change_oper in the task's Store Changes settings, or mend the "
    "prefix; then reload the table",
    "HEADER_AMBIGUOUS": "name the `columns` that shall be mirrored, without this one, and replay the dead letters; or "
    "give the task's header columns another prefix, and `header_prefix` with it",
    "TABLE_TRUNCATED": "reset the table and load it anew: the rows that were truncated are still at the target",
    "OPERATION_MISMATCH": "find out what wrote the row: change_oper and operation have to say the same; "
    "touching the row at the source sends a new change",
    "MASK_TOO_LONG": "see that rows and column list come from one version of the change table, and that the mask is "
    f"read in its own order; {_LATER_ROW}",
    # Its file is not what the metadata file beside it says.
    "DFM_INVALID": f"have the task write its metadata file, or copy it again; {_FILES}",
    "DFM_CONTRADICTS": f"find the metadata file that belongs to the data file; {_FILES}",
    "DFM_ERRORS": "look into the task's log for the records that it could not write, mend the cause, and load the "
    "table anew: which rows are missing is not known",
    "DFM_COUNT_DIFFERS": "look whether the data file is complete at the target, and whether its first line is a header "
    f"line; {_FILES}",
    "FILE_DAMAGED": f"look whether the data file is complete at the target; {_FILES}",
    "FILE_INCOMPLETE": "look whether the task or the copying has failed; copy the data file or its metadata file, "
    "whichever is missing or empty, to its place, and resume the table: the file is read once it is whole",
    "FORMAT_UNSUPPORTED": "set `encoding` under `source` if the file is not UTF-8; else change delimiters, quotes, NULL"
    f" or compression at the file target, as the reason says; {_FILES}",
    "NULL_AMBIGUOUS": "set a quote character, or a text of its own for NULL, at the file target: an empty field may be "
    f"NULL or an empty text; {_FILES}",
    # The message of a Qlik task does not say what it is, or where it belongs.
    "MESSAGE_TYPE_UNKNOWN": f"{_FORMAT}update this product and deliver the messages again",
    "METADATA_INVALID": f"{_FORMAT}update this product; else find out what altered the metadata message, and let the "
    "task send it again: changes that follow it wait",
    "METADATA_MISSING": "let the Qlik task publish its metadata messages to a topic of this mirror, or give the "
    "structure under `structures` in the mirror file; then replay the dead letters, and resume the table if it is "
    "stopped; raise `fragment_timeout_hours` if metadata only comes late",
    "MESSAGE_FORMAT_CUSTOM": "take the custom *Message Format* out of the settings of the Qlik task and of its tables, "
    "so that messages have the sections data, beforeData and headers; then let the task send the changes again, or "
    "reload the table, and resume it",
    "TABLE_UNTOLD": "set *Message key* of the task's target to *Schema and table name*, or include schema and table in "
    "the headers; or, if a topic holds one table alone, name it as `topic` of that table; then replay the dead letters",
    "AVRO_SCHEMA_INVALID": "let the Qlik task publish metadata messages with the Avro schema of its data messages, or "
    "give the mirror that schema under `structures`; then replay the dead letters",
    "SCHEMA_AMBIGUOUS": "let each task publish to topics of its own, with an envelope or a schema registry, so that "
    "each message tells its schema; then deliver the changes again",
    "TABLE_CASE": "spell `source` in the mirror file as the source does, then replay the dead letters; if both names "
    "are tables of their own, accept those of the one that is not mirrored",
    "WRONG_TOPIC": "compare `topics` in the mirror file with the target topics of the Qlik task; then deliver the "
    "changes again in their own topic",
    "HEADERS_INVALID": f"{_FORMAT}update this product; else find out what altered the headers; {_AGAIN}",
    "SEQUENCE_INVALID": "see that only the task writes into the change table or topic: without its sequence a change "
    f"has no place in the order; {_LATER_ROW}; if messages have another number of digits throughout, set "
    "`sequence_digits`",
    "PKKEY_CONTRADICTED": "find out what altered the message, or writes to this stream: pkkey and row name two "
    "rows, and either may be out of date; deliver a sound copy and resume the table, or reload it",
    "MASK_INVALID": f"set `mask_order` to how the source orders the bytes of its masks; else see whether the "
    f"metadata of the table is up to date; {_LATER_ROW}",
    "MASK_CONTRADICTED": f"set `mask_order` to how the source orders the bytes of its masks; if NULLs in updates of "
    f"change tables stand for what did not change, set `sparse_updates`; else {_ROW}",
    "OLD_KEY_MISSING": "have the source send what was before: @include_old_values = 1 for change events, before "
    "images (`beforeData`) in a Qlik task; a key changed, or may have, and the row of the old key cannot be removed; "
    "if keys of this table never change, say `keys_never_change: true` and replay the dead letters; else the table is "
    "stopped until it is reloaded",
    # Its pieces do not come together.
    "BEFORE_IMAGE_MISSING": "have the task store before and after images, or look for rows and files that are missing; "
    "which row the update left is not known, so reset the table and load it anew",
    "UPDATE_MISSING": "look for rows and files that are missing at the source; which row the update meant is not "
    "known, so reset the table and load it anew",
    "BEFORE_IMAGE_CONFLICT": "see that only one task writes into the change table; reset the table and load it anew",
    "FRAGMENT_CONFLICT": f"see that only one stream group feeds this path; {_PIECES}",
    "FRAGMENTS_INCOMPLETE": f"look whether a partition or a file is missing at the source; {_PIECES}; raise "
    "`fragment_timeout_hours` if they only come late",
    # Its values do not fit when they are typed.
    "VALUE_INVALID": f"compare the value with its column's type at the source; {_LATER_ROW}; touching the row at the "
    "source sends such a change, or list `columns` without this one and reset the table",
    "VALUE_CUT": "the source cuts values at 1 MB: list `columns` without this one and reset the table, or have a proof "
    "correct the row from the source, and accept the letter",
    "KEY_NULL": f"give the table a `key` of columns that are never NULL; {_LATER_ROW}",
}
"""What to do, by code; the reason beside the code says what exactly was found."""
