"""Checks that a mirror can publish to its landing zone, by trial operations on the store and a status request."""

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
    """Return the problems that would prevent publishing to a landing zone in OneLake.

    A local landing zone is not tried. The target's status is requested as well, unless the mirror file turns status
    requests off (``gate.status``). A status request without a clear answer is a problem, too.
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
    """Raise ``STORE_UNFIT`` if the store is unfit, for example if a rename overwrites a file."""
    found = deviations(store)
    if found:
        what = "; ".join(f"expected: {deviation.expected}; found: {deviation.found}" for deviation in found)
        next_step = "publish nothing there; take this to the service's support, or choose another region or address"
        raise TerminalError("STORE_UNFIT", what, where="conformance probe", next_step=next_step)
