"""The address of a landing zone in OneLake.

Public source: Microsoft Learn, *Connecting to Microsoft OneLake*: account ``onelake``, container workspace, first
folder item; both by GUID, or both by name, the item's with its type as suffix (O-01).
"""

from __future__ import annotations

from dataclasses import dataclass

from open_mirroring.remote.entra import EntraLogin

PUBLIC_ENDPOINT = "https://onelake.dfs.fabric.microsoft.com"
PUBLIC_FABRIC_ENDPOINT = "https://api.fabric.microsoft.com"
DEFAULT_PATH = "Files/LandingZone"


@dataclass(frozen=True)
class OneLakeZone:
    """The address of a landing zone in OneLake: workspace and item (both by GUID or both by name), and the login.

    *endpoint* is the base URL of OneLake's DFS API, *fabric_endpoint* that of the Fabric API. After *timeout_seconds*
    without an answer, the outcome of a call counts as unknown. Because of the login, workers get this object inside the
    function they run, never in the data of a job; ``repr`` shows no secret.
    """

    workspace: str
    item: str
    login: EntraLogin
    path: str = DEFAULT_PATH
    endpoint: str = PUBLIC_ENDPOINT
    timeout_seconds: float = 60.0
    fabric_endpoint: str = PUBLIC_FABRIC_ENDPOINT
