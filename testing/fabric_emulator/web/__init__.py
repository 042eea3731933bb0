"""The emulator over HTTP: OneLake as a store, the Fabric REST API and an Entra-like token endpoint on one port.

It uses only the standard library. The endpoints follow the public descriptions: Azure Data Lake Storage Gen2 *Path*
operations (REST reference), *OneLake parity and integration* (Microsoft Learn), the Fabric REST API specification
``mirroredDatabase`` and the OAuth 2.0 client credentials flow of Microsoft Entra ID. Undocumented codes are the
emulator's own and marked *assumed*.
"""

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault, Faults

__all__ = ["EmulatorServer", "Fault", "Faults"]
