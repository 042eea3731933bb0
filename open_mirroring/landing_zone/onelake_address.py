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
    """A landing zone in an item of a workspace, both by GUID or both by name.

    It holds the login: workers get it inside a function, which stays in memory, never in the data of a job. Its text
    shows no secret. *endpoint* is scheme and host of DFS, *fabric_endpoint* of the Fabric API; after *timeout_seconds*
    without an answer the outcome of a call counts as unknown.
    """

    workspace: str
    item: str
    login: EntraLogin
    path: str = DEFAULT_PATH
    endpoint: str = PUBLIC_ENDPOINT
    timeout_seconds: float = 60.0
    fabric_endpoint: str = PUBLIC_FABRIC_ENDPOINT
