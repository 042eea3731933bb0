"""Every protective rule of extracting, taken away: ports and machines put around the real machine."""

from __future__ import annotations

from open_mirroring.protocols import extracting as x

from .canonical import CURRENT
from .extract_ports import ChangeLog, LogFile, Maintenance, files_of
from .machines import ExtractMachine


class CommitsOnAnyState(ChangeLog):
    """A commit is taken on top of whatever the log has become, as a blind append would be."""

    conditional = False


class SearchesByFiles(ChangeLog):
    """The log is asked for the batch's files, not for its application transaction."""

    def manifest(self, live: tuple[LogFile, ...], batch: x.Batch) -> str | None:
        return batch.manifest if batch.manifest and files_of(batch.manifest) in live else None


class TouchesOpenBatch(Maintenance):
    """Maintenance rewrites and deletes whatever the log allows, whether its batch is completed or not."""

    def may_touch(self, batch: int, completed: int) -> bool:
        return True


class ReadsLogBeforeLedger(Maintenance):
    """Maintenance reads the log first: a batch may be committed and completed before it reads the ledger."""

    ledger_first = False


class BelievesTheFirstAnswer(ExtractMachine):
    """A commit that is answered as done is not read back."""

    def step(self, state: x.State, reply: x.Reply) -> x.State:
        if isinstance(state.request, x.CommitLog) and isinstance(reply, x.Committed):
            return believing_the_log(x.step(state, reply))
        return x.step(state, reply)


class TakesUnknownForDone(ExtractMachine):
    """A commit without an answer counts as done."""

    def step(self, state: x.State, reply: x.Reply) -> x.State:
        if isinstance(state.request, x.CommitLog) and isinstance(reply, x.Unknown):
            return believing_the_log(x.step(state, reply))
        return x.step(state, reply)


class CommitsWithoutLooking(ExtractMachine):
    """A sealed batch is committed on top of the newest state without asking whether it is there already."""

    def step(self, state: x.State, reply: x.Reply) -> x.State:
        if isinstance(reply, x.LogOpened) and not isinstance(state.request, x.CommitLog):
            reply = x.LogOpened(reply.snapshot, None)
        after = x.step(state, reply)
        # One commit is believed, else the writer would never end.
        return believing_the_log(after) if isinstance(state.request, x.CommitLog) else after


class CommitsUnsealed(ExtractMachine):
    """What was written is committed at once; the seal is only pretended."""

    def step(self, state: x.State, reply: x.Reply) -> x.State:
        after = x.step(state, reply)
        if not isinstance(after.request, x.Seal) or after.row is None or after.row.batch is None:
            return after
        batch = x.Batch(after.row.batch.number, after.row.batch.ranges, after.request.manifest)
        return x.step(after, x.Owned(x.MirrorRow(after.row.version, after.row.committed, batch)))


def believing_the_log(state: x.State) -> x.State:
    """The writer answers for the log itself: the batch is there."""
    if not isinstance(state.request, x.OpenLog):
        return state
    return x.step(state, x.LogOpened(CURRENT, state.request.batch.manifest))
