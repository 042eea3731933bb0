"""What a publisher does about a rename whose outcome it does not know, answer by answer (F-39)."""

from __future__ import annotations

import pytest

from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.publishing import FilePlace, Seen

FILES = (protocol.StagedFile("s/1", "e1", "d1"), protocol.StagedFile("s/2", "e2", "d2"))
INTENT = protocol.Intent(first_number=7, batch_from=3, work=protocol.Work("changes", 4), manifest=FILES)
ROW = protocol.TableRow(5, 1, "id", True, 6, 3, INTENT, marker_etag="m")
NOWHERE = (Seen(), Seen(), Seen(), Seen())


def after(*replies: protocol.Reply) -> protocol.State:
    """A publisher that found its row with a sealed intent, and what it was reported since."""
    state = protocol.step(protocol.start(), protocol.Owned(ROW))
    for reply in replies:
        state = protocol.step(state, reply)
    return state


def test_the_sealed_objects_are_renamed_one_after_the_other_whoever_sealed_them() -> None:
    """F-31, F-32, F-33."""
    assert after().request == protocol.Rename(7, FILES[0])
    assert after(protocol.Renamed()).request == protocol.Rename(8, FILES[1])
    assert after(protocol.Renamed(), protocol.Renamed()).request == protocol.Confirm(5)


@pytest.mark.parametrize("unsure", [protocol.Unknown(), protocol.RenameRefused()])
@pytest.mark.parametrize("hops", [0, 1, 2], ids=["in the folder", "processed", "ready to be deleted"])
def test_a_number_that_is_there_with_the_sealed_content_is_done_f39(unsure: protocol.Reply, hops: int) -> None:
    """F-39, O-05, O-08: wherever it has travelled since; nothing is written again."""
    state = after(unsure, Seen(), *[Seen()] * hops, Seen("e1", "d1"))
    assert state.request == protocol.Rename(8, FILES[1])


def test_a_number_that_is_absent_is_renamed_from_the_same_object_f39() -> None:
    """F-32, F-33, F-39, O-08: the source is still the sealed one: the same request again, and no number left out."""
    state = after(protocol.Unknown(), Seen("e1", "d1"), Seen(), Seen(), Seen())
    assert state.request == protocol.Rename(7, FILES[0])


@pytest.mark.parametrize("other", [Seen("x", "d9"), Seen("x", None)], ids=["of ours", "foreign"])
def test_a_number_with_other_content_stops_and_is_never_overwritten(other: Seen) -> None:
    """F-33, F-37, F-39: neither renamed again, nor skipped for the next number."""
    state = after(protocol.Unknown(), Seen("e1", "d1"), other)
    assert isinstance(state.request, protocol.Stop)
    assert state.request.code == protocol.CONFLICT


def test_what_no_place_can_show_stops_f39() -> None:
    """The object is gone and its number is nowhere: it is not staged again under the same seal."""
    nowhere = after(protocol.Unknown(), *NOWHERE)
    assert nowhere.request == protocol.Probe(FilePlace.FINAL, 8, FILES[1]), "a higher number would prove it"
    state = after(protocol.Unknown(), *NOWHERE, Seen(), Seen(), Seen(), protocol.Marker("id", "m"))
    assert isinstance(state.request, protocol.Stop)
    assert state.request.code == protocol.AMBIGUOUS
