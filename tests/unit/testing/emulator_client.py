"""A client of the served emulator that sends exactly what a test says, and nothing of its own."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from fabric_emulator.web import EmulatorServer

STORAGE = "https://storage.azure.com"
FABRIC = "https://api.fabric.microsoft.com"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        return self.headers.get("x-ms-error-code")

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests to *server*, one after the other; paths are taken below the landing zone unless they start with
    a slash."""

    def __init__(self, server: EmulatorServer) -> None:
        self.server = server
        self.tokens = {audience: self.server.tokens.issue(audience) for audience in (STORAGE, FABRIC)}

    def path(self, path: str) -> str:
        return quote(path if path.startswith("/") else f"/{self.server.landing_zone_path}/{path}")

    def send(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        audience: str | None = STORAGE,
    ) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=300)
        try:
            token = {"Authorization": f"Bearer {self.tokens[audience]}"} if audience else {}
            address = self.path(path) + (f"?{query}" if query else "")
            length = {"Content-Length": str(len(body))}
            connection.request(method, address, body, {**token, **length, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def create(self, path: str, kind: str = "file", **headers: str) -> Answer:
        return self.send("PUT", path, f"resource={kind}", headers=_named(headers))

    def append(self, path: str, content: bytes, position: int = 0) -> Answer:
        return self.send("PATCH", path, f"action=append&position={position}", content)

    def flush(self, path: str, position: int, **headers: str) -> Answer:
        return self.send("PATCH", path, f"action=flush&position={position}", headers=_named(headers))

    def upload(self, path: str, content: bytes) -> str:
        """A whole file; returns its ETag."""
        answers = [self.create(path), self.append(path, content), self.flush(path, len(content))]
        assert [answer.status for answer in answers] == [201, 202, 200]
        return answers[-1].etag

    def rename(self, source: str, target: str, **headers: str) -> Answer:
        return self.send("PUT", target, headers={"x-ms-rename-source": self.path(source), **_named(headers)})

    def read(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=_named(headers))

    def head(self, path: str, **headers: str) -> Answer:
        return self.send("HEAD", path, headers=_named(headers))

    def delete(self, path: str, query: str = "recursive=true") -> Answer:
        return self.send("DELETE", path, query)

    def list(self, directory: str = "", query: str = "recursive=true", workspace: str | None = None) -> Answer:
        """A listing of a folder below the landing zone, or of any with a workspace."""
        if workspace is None:
            workspace, zone = self.server.landing_zone_path.split("/", 1)
            directory = f"{zone}/{directory}".rstrip("/")
        return self.send("GET", f"/{workspace}", f"resource=filesystem&directory={quote(directory)}&{query}")

    def names(self, directory: str = "") -> list[str]:
        """Paths below the landing zone's folder *directory*, relative to the zone."""
        zone = self.server.landing_zone_path.split("/", 1)[1]
        return [path["name"].removeprefix(f"{zone}/") for path in self.list(directory).json()["paths"]]

    def fabric(self, method: str, path: str = "", document: Any = None) -> Answer:
        """A call of the Fabric REST API, below the workspace's mirrored databases unless it starts with a slash."""
        if not path.startswith("/"):
            path = f"/v1/workspaces/{self.server.workspace_id}/mirroredDatabases{'/' if path else ''}{path}"
        path, _, query = path.partition("?")
        body = b"" if document is None else json.dumps(document).encode()
        return self.send(method, path, query, body, audience=FABRIC)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
