"""What all parts of a mirror file share: their base, the kinds of values in them, and the part about dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt

from open_mirroring.config import names

ConnectionName = Annotated[str, AfterValidator(names.check_connection_name)]
PathText = Annotated[str, AfterValidator(names.check_required_path)]
PlaceText = Annotated[str, AfterValidator(names.check_place)]
ColumnName = Annotated[str, AfterValidator(names.check_column)]
SqlType = Annotated[str, AfterValidator(names.check_sql_type)]
Positive = Annotated[StrictInt, Field(ge=1)]


class Section(BaseModel):
    """A part of a mirror file: frozen, unknown settings refused, values never shown in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


class DeadLetters(Section):
    """How many open dead letters are no loss."""

    tolerate: Annotated[StrictInt, Field(ge=0)] = Field(
        default=0,
        description="Up to this number of open dead letters are only reported: a run that leaves them is done like "
        "any other. The rows that they leave out of date differ from the source all the same.",
    )
