"""A stand-in for the Microsoft Fabric mirroring service, for a landing zone in a local folder.

It applies the numbered files of a landing zone to real Delta tables, by the documented rules. Every rule names where
it comes from: an id with *Microsoft Learn* (the landing zone format and its best practices), *field* (seen at the
real service by one observer), or *assumed* (nobody documents it; a setting chooses otherwise where a choice makes
sense).

``fabric_emulator.web`` puts it behind OneLake's DFS endpoint and the Fabric REST API.

The emulator knows nothing of the product that fills the zone but the names of the landing zone's layout.
"""

from fabric_emulator.failures import EmulatorError
from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.table_mirror import Applied

__all__ = ["Applied", "EmulatorError", "MirroringService", "Settings"]
