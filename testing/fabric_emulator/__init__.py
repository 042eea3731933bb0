"""A stand-in for the Microsoft Fabric mirroring service, for a landing zone in a local folder.

It applies the numbered files of a landing zone to real Delta tables, by the documented rules. Every rule names its
source: an id with *Microsoft Learn* (the landing zone format and its best practices), *field* (seen at the real service
by one observer), or *assumed* (undocumented; if another choice makes sense, a setting selects it).

``fabric_emulator.web`` puts it behind OneLake's DFS endpoint and the Fabric REST API.

The only part of the product that the emulator uses are the names of the landing zone's layout.
"""

from fabric_emulator.failures import EmulatorError
from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.table_mirror import Applied

__all__ = ["Applied", "EmulatorError", "MirroringService", "Settings"]
