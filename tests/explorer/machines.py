"""The real machines, as the worlds drive them; ablations put themselves around these."""

from __future__ import annotations

from typing import Any

from open_mirroring.protocols import extracting as x
from open_mirroring.protocols import publishing as p


class PublishMachine:
    """The real publish machine, unmodified; states of ablations may wrap its states."""

    def start(self) -> Any:
        """A writer that has just begun."""
        return p.start()

    def step(self, state: Any, reply: p.Reply) -> Any:
        """The state after a reply."""
        return p.step(state, reply)

    def request(self, state: Any) -> p.Request:
        """What the state asks."""
        return state.request

    def real(self, state: Any) -> p.State:
        """The state of the real machine inside."""
        return state


class ExtractMachine:
    """The real extract machine, unmodified."""

    def start(self) -> x.State:
        """A writer that has just begun."""
        return x.start()

    def step(self, state: x.State, reply: x.Reply) -> x.State:
        """The state after a reply."""
        return x.step(state, reply)
