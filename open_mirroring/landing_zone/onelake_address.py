"""The address of a landing zone in OneLake, as plain values.

Public source: Microsoft Learn, *Connecting to Microsoft OneLake*: the account is ``onelake``, the container a
workspace, the first folder an item; either both by GUID, or both by name, the item's with its type as suffix (O-01).
"""

from __future__ import annotations

from dataclasses import dataclass

from open_mirroring.remote.entra import EntraLogin

PUBLIC_ENDPOINT = "https://onelake.dfs.fabric.microsoft.com"
PUBLIC_FABRIC_ENDPOINT = "https://api.fabric.microsoft.com"
DEFAULT_PATH = "Files/LandingZone"


@dataclass(frozen=True)
class OneLakeZone:
    """A landing zone in an item of a workspace.

    It holds the login, secret included, because it is given to workers: in a function, which stays in memory, never
    in the data of a job, which may be written to a file. Its text shows no secret.

    Args:
        workspace: its GUID, or its name.
        item: its GUID, or its name with the suffix; as *workspace* is.
        login: who signs in.
        path: the zone's folder in the item.
        endpoint: scheme and host of the DFS endpoint.
        timeout_seconds: after so long without an answer the outcome of a call counts as unknown.
        fabric_endpoint: scheme and host of the Fabric API, which tells how the item is.
    """

    workspace: str
    item: str
    login: EntraLogin
    path: str = DEFAULT_PATH
    endpoint: str = PUBLIC_ENDPOINT
    timeout_seconds: float = 60.0
    fabric_endpoint: str = PUBLIC_FABRIC_ENDPOINT
