"""Holds what all parts of a mirror file share: their base class, the kinds of values, the part about dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, StrictInt, Tag, ValidationInfo

from open_mirroring.config import names

ConnectionName = Annotated[str, AfterValidator(names.check_connection_name)]


def _of_path(connection: str | None, info: ValidationInfo) -> str | None:
    return names.check_connection_of(info.data.get("path", ""), connection)


ConnectionOfPath = Annotated[ConnectionName | None, AfterValidator(_of_path)]
"""The connection to what `path`, the setting before it, names; none for a local path."""
PathText = Annotated[str, AfterValidator(names.check_required_path)]
PlaceText = Annotated[str, AfterValidator(names.check_place)]
ColumnName = Annotated[str, AfterValidator(names.check_column)]
SqlType = Annotated[str, AfterValidator(names.check_sql_type)]
LandingType = Annotated[str, AfterValidator(names.check_landing_type)]
Positive = Annotated[StrictInt, Field(ge=1)]


class Section(BaseModel):
    """A part of a mirror file: frozen, unknown settings refused, values never shown in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


class StoredPlace(Section):
    """A place in object storage, with the name of the connection to it."""

    path: Annotated[str, AfterValidator(names.check_stored_place)] = Field(description="Its address.")
    connection: ConnectionName = Field(description="Name of the connection to the storage.")

    def __str__(self) -> str:
        return self.path


FolderSetting = Annotated[
    Annotated[str, AfterValidator(names.check_required_path), Tag("(text)")]
    | Annotated[StoredPlace, Tag("(StoredPlace)")],
    Discriminator(lambda value: "(text)" if isinstance(value, str) else "(StoredPlace)"),
]
"""A local folder, or a place in object storage."""


class DeadLetters(Section):
    """How many open dead letters are no loss."""

    tolerate: Annotated[StrictInt, Field(ge=0)] = Field(
        default=0,
        description="Up to this number of open dead letters are only reported: a run that leaves them is done like "
        "any other. The rows that they leave out of date differ from the source all the same.",
    )
