"""The setting `structures`: column types of tables whose source announces no types, as in some Qlik messages (K-61)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, StringConstraints, ValidationInfo, field_validator

from open_mirroring.config import names
from open_mirroring.config.section import ColumnName, PathText, Section

QlikType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*( ?\([0-9]{1,5}(, ?[0-9]{1,3})?\))?$")]
QlikColumns = Annotated[dict[ColumnName, QlikType], Field(min_length=1), AfterValidator(names.check_distinct)]


class GivenStructure(Section):
    """The structure of one table, used to decode the table's messages.

    In the mirror file it is given by one of `metadata` (a metadata message), `columns` and `avro` (an Avro schema), or
    by both `columns` and `avro`.
    """

    table: Annotated[str, AfterValidator(names.check_source_name)] = Field(
        description="The table, as `source` of a mirrored table spells it."
    )
    schema_id: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_.-]{1,64}$")] | None = Field(
        default=None,
        description="The id (`messageSchemaId`) that its messages name. Unset: that of the metadata; without one it "
        "counts for messages of this table without a known id.",
    )
    registry_number: Annotated[StrictInt, Field(ge=0, lt=2**32)] | None = Field(
        default=None, description="The number of its schema, where messages come in a schema registry's frame."
    )
    version: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="Of several structures of a table the largest counts. Default: the metadata's, or 0."
    )
    metadata: PathText | None = Field(
        default=None, description="JSON file with a metadata message of the table, in its envelope or bare."
    )
    avro: PathText | None = Field(
        default=None, description="File with the Avro schema of its data messages (data, beforeData, headers) as JSON."
    )
    key: tuple[ColumnName, ...] = Field(default=(), description="With columns: the table's primary key, in order.")
    columns: QlikColumns | None = Field(
        default=None,
        description="All its columns in their order, each with its Qlik type: INT4, WSTRING(100), NUMERIC(18,2).",
    )

    @property
    def source_name(self) -> names.SourceName:
        return names.split_source_name(self.table)

    @field_validator("registry_number")
    @classmethod
    def _number(cls, number: int | None, info: ValidationInfo) -> int | None:
        if number is not None and info.data.get("schema_id") is not None:
            what = "a schema has an id of the task or a number of the registry"
            raise names.unfit(what, "leave one of `schema_id` and `registry_number` out")
        return number

    @field_validator("avro")
    @classmethod
    def _avro(cls, avro: str | None, info: ValidationInfo) -> str | None:
        if avro is not None and info.data.get("metadata") is not None:
            raise names.unfit("metadata holds the Avro schema of its messages itself", "leave `avro` or `metadata` out")
        return avro

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
        if columns is None and info.data.get("metadata", "") is None and info.data.get("avro", "") is None:
            raise names.unfit("its columns are unknown", "set `metadata`, `avro` or `columns`")
        if columns is not None and info.data.get("metadata") is not None:
            raise names.unfit("metadata names the columns itself", "leave `columns` or `metadata` out")
        missing = [name for name in info.data.get("key", ()) if columns is not None and name not in columns]
        if missing:
            raise names.unfit(f"the key column {missing[0]!r} is not among `columns`", "add it, spelled alike")
        return columns
