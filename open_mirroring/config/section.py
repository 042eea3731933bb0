"""Parts shared by all sections of a mirror file: the base class, types of values, and the section `dead_letters`."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    ValidationInfo,
    field_validator,
)

from open_mirroring.config import names

ConnectionName = Annotated[str, AfterValidator(names.check_connection_name)]


def _of_path(connection: str | None, info: ValidationInfo) -> str | None:
    return names.check_connection_of(info.data.get("path", ""), connection)


ConnectionOfPath = Annotated[ConnectionName | None, AfterValidator(_of_path)]
"""The connection for `path`, the setting before it; None for a local path."""
PathText = Annotated[str, AfterValidator(names.check_path)]
PlaceText = Annotated[str, AfterValidator(names.check_place)]
TableName = Annotated[str, AfterValidator(names.check_source_name)]
ColumnName = Annotated[str, AfterValidator(names.check_column)]
ColumnNames = Annotated[tuple[ColumnName, ...], AfterValidator(names.check_distinct)]
ColumnList = Annotated[tuple[ColumnName, ...], Field(min_length=1), AfterValidator(names.check_distinct)]
SqlType = Annotated[str, AfterValidator(names.check_sql_type)]
SqlTypes = Annotated[dict[ColumnName, SqlType], AfterValidator(names.check_distinct)]
LandingTypes = Annotated[
    dict[ColumnName, Annotated[str, AfterValidator(names.check_landing_type)]], AfterValidator(names.check_distinct)
]
Positive = Annotated[StrictInt, Field(ge=1)]


class Section(BaseModel):
    """Base class of a section of a mirror file: immutable, refuses unknown settings, never shows values in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


class StoredPlace(Section):
    """An address in object storage, with the name of the connection for it."""

    path: Annotated[str, AfterValidator(names.check_stored_place)] = Field(description="Its address.")
    connection: ConnectionName = Field(description="Name of the connection to the storage.")

    def __str__(self) -> str:
        return self.path


FolderSetting = Annotated[
    Annotated[str, AfterValidator(names.check_path), Tag("(text)")] | Annotated[StoredPlace, Tag("(StoredPlace)")],
    Discriminator(lambda value: "(text)" if isinstance(value, str) else "(StoredPlace)"),
]
"""A setting that is a local folder, or an address in object storage with its connection."""


class ExtraColumns(Section):
    """Columns added to those of the source; each contains a property of the row's last change (G-118)."""

    commit_time: ColumnName | None = Field(
        default=None, description="When the change was committed, as far as its source says; a timestamp in UTC."
    )
    log_position: ColumnName | None = Field(
        default=None, description="The change's place in the one order of its table: a text that sorts as changes do."
    )
    operation: ColumnName | None = Field(
        default=None,
        description="insert, update, load for a row of an initial load, or correction; delete for a row that "
        "`on_delete: keep` keeps.",
    )
    transaction: ColumnName | None = Field(
        default=None, description="What the source calls the transaction: a commit LSN, or the id of a Qlik task."
    )
    deleted_at: ColumnName | None = Field(
        default=None,
        description="When a row was deleted that `on_delete: keep` keeps. Default: `_deleted_at`; other tables have no "
        "such column.",
    )
    source_table: ColumnName | None = Field(default=None, description="schema.table at the source, as `source` says.")

    @field_validator("*")
    @classmethod
    def _distinct(cls, name: str | None, info: ValidationInfo) -> str | None:
        names.check_landed_names(one for one in (*info.data.values(), name) if one is not None)
        return name

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        """The configured properties of a change, each paired with the name of its column at the target."""
        return tuple((content, name) for content, name in self.model_dump().items() if name is not None)


class DeadLetters(Section):
    """How many open dead letters (unreadable messages, and changes with an unfit value) are tolerated."""

    tolerate: Annotated[StrictInt, Field(ge=0)] = Field(
        default=0,
        description="Up to this number of open dead letters are only reported. The rows that they leave out of date "
        "differ from the source all the same.",
    )
