"""The address of a landing zone in OneLake.

In the terms of Azure Storage the account is ``onelake``, the container the workspace, and the first folder the item.
Workspace and item are either both given by GUID or both by name; the name of an item ends with its type (O-01). Public
source: Microsoft Learn, *Connecting to Microsoft OneLake*.
"""

from __future__ import annotations

from dataclasses import dataclass

from open_mirroring.remote.entra import EntraLogin

PUBLIC_ENDPOINT = "https://onelake.dfs.fabric.microsoft.com"
PUBLIC_FABRIC_ENDPOINT = "https://api.fabric.microsoft.com"
DEFAULT_PATH = "Files/LandingZone"


@dataclass(frozen=True)
class OneLakeZone:
    """The address of a landing zone in OneLake: workspace, item and login.

    Workspace and item are both given by GUID or both by name. *endpoint* is the base URL of OneLake's DFS API,
    *fabric_endpoint* the base URL of the Fabric API. After *timeout_seconds* without an answer, the outcome of a call
    counts as unknown. The address contains the login. So workers get the address inside the function that they run,
    never in the data of a job. ``repr`` shows no secret.
    """

    workspace: str
    item: str
    login: EntraLogin
    path: str = DEFAULT_PATH
    endpoint: str = PUBLIC_ENDPOINT
    timeout_seconds: float = 60.0
    fabric_endpoint: str = PUBLIC_FABRIC_ENDPOINT
