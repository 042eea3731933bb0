"""Every protective rule of publishing, taken away: ports and machines put around the real machine.

The machine's code is never changed; its requests and replies are. Each class says which rule is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from open_mirroring.protocols import publishing as p

from .machines import PublishMachine
from .publish_ports import FINAL, Content, Store, Zone


class IgnoresSourceEtag(Store):
    """Renames whatever object has the name: no ``x-ms-source-if-match``."""

    def source_fits(self, zone: Zone, file: p.StagedFile) -> bool:
        return zone.etag_of(file) is not None

    def may_yet_rename(self, zone: Zone, file: p.StagedFile) -> bool:
        return True


class OverwritesTarget(Store):
    """Renames onto an existing file: no ``If-None-Match: *``."""

    def target_free(self, zone: Zone, number: int) -> bool:
        return True


class StagesOutside(Store):
    """Staging lies beside the table's folder and survives its deletion."""

    def folder_deleted(self, life: int, zone: Zone) -> Zone:
        return Zone(life, None, False, zone.staged, made=zone.made + 1)


class LinksThenUnlinks(Store):
    """A rename in two steps: a crash between them leaves the source behind."""

    def torn_rename(self, zone: Zone, number: int, file: p.StagedFile, content: Content) -> Zone | None:
        if not self.source_fits(zone, file) or not self.target_free(zone, number):
            return None
        return zone.with_file(number, (content, FINAL))


class CreatesMarkerInPlace(Store):
    """The marker is written under its own name: a crash leaves it there without its content."""

    def torn_marker(self, zone: Zone) -> Zone | None:
        return zone._replace(marker="") if zone.marker is None else None


class SealsNothing(PublishMachine):
    """Each owner renames what it staged itself: no seal."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        after = p.step(state, reply)
        if not isinstance(after.request, p.Seal):
            return after
        intent = replace(after.row.intent, manifest=after.request.manifest)
        return p.step(after, p.Owned(replace(after.row, intent=intent)))


class SkipsMarker(PublishMachine):
    """The folder's identity is not read."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        after = p.step(state, reply)
        if isinstance(after.request, p.ReadMarker) and after.row.established:
            return p.step(after, p.Marker(after.row.incarnation, after.row.marker_etag))
        return after


class IgnoresMarkerEtag(PublishMachine):
    """The folder is known by the id in its marker alone, whichever object holds it."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        if isinstance(reply, p.Marker) and state.row.established:
            reply = replace(reply, etag=state.row.marker_etag)
        return p.step(state, reply)


@dataclass(frozen=True)
class Checking:
    """A writer that reads the marker before it stages."""

    inner: p.State


class ReadsMarkerBeforeStagingOnly(SkipsMarker):
    """The folder's identity is read too early: before the upload instead of after it."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        if isinstance(state, Checking):
            row = state.inner.row
            assert row is not None
            match reply:
                case p.Marker(incarnation, etag) if (row.incarnation, row.marker_etag) == (incarnation, etag):
                    return state.inner
                case p.Marker():
                    return replace(state.inner, request=p.Stop(1, p.INCARNATION_CHANGED, "read before staging"))
            return state
        after = super().step(state, reply)
        return Checking(after) if isinstance(after.request, p.Stage) else after

    def request(self, state: Any) -> p.Request:
        return p.ReadMarker() if isinstance(state, Checking) else state.request

    def real(self, state: Any) -> p.State:
        return state.inner if isinstance(state, Checking) else state


class TakesUnknownForDone(PublishMachine):
    """A rename without an answer counts as done."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        unknown = isinstance(state.request, p.Rename) and isinstance(reply, p.Unknown)
        return p.step(state, p.Renamed() if unknown else reply)


class RenamesBackwards(PublishMachine):
    """The files of an intent are renamed from the last number to the first."""

    def request(self, state: Any) -> p.Request:
        request = state.request
        if not isinstance(request, (p.Rename, p.Probe)):
            return request
        intent = state.row.intent
        at = len(intent.manifest) - 1 - (state.higher or state.at)
        return replace(request, number=intent.first_number + at, file=intent.manifest[at])

    def step(self, state: Any, reply: p.Reply) -> Any:
        if isinstance(reply, p.Seen) and reply.there:
            asked, meant = self.request(state), state.request
            if reply.digest == asked.file.digest:  # type: ignore[union-attr]
                reply = p.Seen(reply.etag, meant.file.digest)
                if meant.place is p.FilePlace.SOURCE:
                    reply = p.Seen(meant.file.etag, meant.file.digest)
        return p.step(state, reply)


class IgnoresDigest(PublishMachine):
    """Any file under the number will do."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        if isinstance(reply, p.Seen) and reply.there and state.request.place is not p.FilePlace.SOURCE:
            reply = p.Seen(reply.etag, state.request.file.digest)
        return p.step(state, reply)


class IgnoresHigherNumbers(PublishMachine):
    """A higher number that is visible proves nothing about a lower one."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        return p.step(state, p.Seen() if isinstance(state.request, p.Probe) and state.higher else reply)


class NeverReadsSource(PublishMachine):
    """A refused rename looks for its number only, and believes that the sealed object is still there."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        return believing_the_source(p.step(state, reply), there=True)


class ReSealsAtOnce(PublishMachine):
    """A sealed object that is gone is staged and sealed anew, whatever became of its number."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        after = p.step(state, reply)
        looked = isinstance(state.request, p.Probe) and state.request.place is p.FilePlace.SOURCE
        return staging_anew(after) if looked and isinstance(reply, p.Seen) and not after.source_there else after


class ReSealsOnAbsence(PublishMachine):
    """A sealed object that is gone, its number nowhere, is staged and sealed anew: no evidence of higher numbers."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        after = p.step(state, reply)
        gone_on = after.higher or isinstance(after.request, p.ReadMarker)
        return staging_anew(after) if isinstance(state.request, p.Probe) and gone_on else after


class ReSealsBlindly(ReSealsOnAbsence):
    """As before, and the source is not even read: it is taken for gone."""

    def step(self, state: Any, reply: p.Reply) -> Any:
        return believing_the_source(super().step(state, reply), there=False)


@dataclass(frozen=True)
class Looking:
    """A writer that looks at the four places in an order of its own, before it thinks."""

    inner: p.State
    left: tuple[p.FilePlace, ...]
    seen: tuple[tuple[p.FilePlace, p.Seen], ...] = ()


class ProbesInOrder(PublishMachine):
    """The places are read in another order than the one in which a file travels."""

    def __init__(self, order: tuple[p.FilePlace, ...], inner: PublishMachine | None = None) -> None:
        self._order = order
        self._inner = inner or PublishMachine()

    def step(self, state: Any, reply: p.Reply) -> Any:
        if not isinstance(state, Looking):
            after = self._inner.step(state, reply)
            began = isinstance(after.request, p.Probe) and after.request.place is p.FilePlace.SOURCE
            return Looking(after, self._order) if began else after
        if not isinstance(reply, p.Seen):
            return state
        seen = (*state.seen, (state.left[0], reply))
        if len(state.left) > 1:
            return Looking(state.inner, state.left[1:], seen)
        after, answers = state.inner, dict(seen)
        while isinstance(after.request, p.Probe) and not after.higher and after.request.place in answers:
            after = self._inner.step(after, answers.pop(after.request.place))
        return after

    def request(self, state: Any) -> p.Request:
        if not isinstance(state, Looking):
            return state.request
        return replace(state.inner.request, place=state.left[0])  # type: ignore[type-var]

    def real(self, state: Any) -> p.State:
        return state.inner if isinstance(state, Looking) else state


def staging_anew(state: p.State) -> p.State:
    """The writer goes back to staging for an intent that is sealed already."""
    assert state.row is not None and state.row.intent is not None
    row = replace(state.row, intent=replace(state.row.intent, manifest=None))
    return p.State(p.Stage(row), row=row)


def believing_the_source(state: p.State, *, there: bool) -> p.State:
    """The writer answers the question for the source itself."""
    request = state.request
    if not isinstance(request, p.Probe) or request.place is not p.FilePlace.SOURCE:
        return state
    return p.step(state, p.Seen(request.file.etag, request.file.digest) if there else p.Seen())
