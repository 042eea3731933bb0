"""The hook of the connection type for OneLake: it registers the type in Airflow and tests a connection."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import BaseHook

from open_mirroring.config.connections import parsed
from open_mirroring.config.onelake import CONNECTION_TYPE, onelake_connection
from open_mirroring.errors import MirroringError
from open_mirroring.remote.entra import FABRIC_AUDIENCE, STORAGE_AUDIENCE, TokenSource
from open_mirroring_airflow.connections import content


class OneLakeHook(BaseHook):
    """A connection to OneLake and the Fabric API.

    Jobs do not go through it: they get the connection's content in their environment.

    Args:
        conn_id: name of the connection.
        kwargs: those of any hook.
    """

    conn_name_attr = "onelake_conn_id"
    default_conn_name = "onelake_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Open Mirroring: OneLake"

    def __init__(self, conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._name = conn_id

    def get_conn(self) -> Any:
        """The connection's content, checked.

        Raises:
            TerminalError: ``CONNECTION_INVALID``.
        """
        return onelake_connection(parsed(self._name, json.dumps(content(self.get_connection(self._name)))))

    def test_connection(self) -> tuple[bool, str]:
        """Whether Entra ID gives tokens for storage and for the API; nothing of either is called."""
        try:
            login = self.get_conn().login
            for audience in (STORAGE_AUDIENCE, FABRIC_AUDIENCE):
                TokenSource(login, audience).token()
        except MirroringError as error:
            return False, str(error)
        return True, "Entra ID gives tokens for OneLake and for the Fabric API; `open-mirroring check` tries the zone"
