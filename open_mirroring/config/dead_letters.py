"""What a mirror file says about dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from open_mirroring.config.section import Section


class DeadLetters(Section):
    """How many open dead letters are no loss."""

    tolerate: Annotated[StrictInt, Field(ge=0)] = Field(
        default=0,
        description="Up to so many open dead letters are told and nothing more: a run that leaves them is done like "
        "any other. The rows that they leave out of date differ from the source all the same.",
    )
