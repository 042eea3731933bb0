"""The address of a landing zone in OneLake.

Public source: Microsoft Learn, *Connecting to Microsoft OneLake*. The account is ``onelake``, the container a
workspace, the first folder an item. Both are given by GUID or both by name; an item's name has its type as suffix
(O-01).
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

    It holds the login, including the secret. Workers get it inside a function, which stays in memory, never in the data
    of a job, which may be written to a file. Its text shows no secret.

    Args:
        workspace: its GUID or its name.
        item: its GUID or its name with the suffix, in the same form as *workspace*.
        endpoint: scheme and host of the DFS endpoint.
        timeout_seconds: after this time without an answer, the outcome of a call counts as unknown.
        fabric_endpoint: scheme and host of the Fabric API, which reports the item's status.
    """

    workspace: str
    item: str
    login: EntraLogin
    path: str = DEFAULT_PATH
    endpoint: str = PUBLIC_ENDPOINT
    timeout_seconds: float = 60.0
    fabric_endpoint: str = PUBLIC_FABRIC_ENDPOINT
