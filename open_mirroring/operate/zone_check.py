"""Checks that the landing zone of a mirror can be published to, by trying it on store and target."""

from __future__ import annotations

from collections.abc import Callable

from open_mirroring.config import Mirror
from open_mirroring.config.problems import Problem, SettingPath
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.fabric.target import FabricTarget
from open_mirroring.landing_zone.conformance import deviations
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.opening import LocalZone
from open_mirroring.reconciliation.inspection import zone_address


def check_landing_zone(mirror: Mirror) -> list[Problem]:
    """Everything that keeps a zone in OneLake from being published to; a local one is not tried.

    The target's status is asked for as well, unless the mirror file says that no run does (``gate.status``). Without a
    plain answer nothing is proved, and that is a problem too.
    """
    try:
        address = zone_address(mirror)
    except TerminalError as error:
        return [mirror.problem_of(("landing_zone", "connection"), error)]
    if isinstance(address, LocalZone):
        return []
    trials: dict[SettingPath, Callable[[], None]] = {
        ("landing_zone",): lambda: prove_conformance(OneLakeStore(address)),
        **({("gate", "status"): FabricTarget(address).prove} if mirror.asks_status else {}),
    }
    problems = []
    for setting, trial in trials.items():
        try:
            trial()
        except MirroringError as error:
            problems.append(mirror.problem_of(setting, error))
    return problems


def prove_conformance(store: OneLakeStore) -> None:
    """Refuse a store that does anything otherwise than the publish protocol needs (``STORE_UNFIT``)."""
    found = deviations(store)
    if found:
        what = "; ".join(f"expected: {deviation.expected}; found: {deviation.found}" for deviation in found)
        way_out = "publish nothing there; take this to the service's support, or choose another region or address"
        raise TerminalError("STORE_UNFIT", what, where="conformance probe", way_out=way_out)
