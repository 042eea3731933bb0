"""The command ``ui``: serves the web page without Airflow. Starts no JVM."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import uvicorn

from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.page import LoopbackDoor, MirrorShelf, Surroundings, TokenDoor, build_app
from open_mirroring.remote.http_service import is_loopback

TOKEN = "OPEN_MIRRORING_UI_TOKEN"
"""The environment variable with the page's token. It is no argument, because all users of a machine see these."""
_TOKEN_LENGTH = 16


def ui(arguments: argparse.Namespace) -> Exit:
    """Serve the page until interrupted; a token is required unless the page is served on a loopback address."""
    token = os.environ.get(TOKEN, "")
    if not token and not is_loopback(arguments.host):
        raise UsageError(
            f"{arguments.host} can be reached from other machines, but who may look and decide is not set",
            f"set {TOKEN} to a secret of {_TOKEN_LENGTH} characters or more, or leave --host out",
        )
    if token and len(token) < _TOKEN_LENGTH:
        raise UsageError(f"{TOKEN} has fewer than {_TOKEN_LENGTH} characters", "take a longer secret")
    places = arguments.mirrors or [Path("mirrors")]
    for place in places:
        if not place.exists():
            raise UsageError(f"there is no {place}", "name a mirror file, or a folder of them")
    app = build_app(Surroundings(MirrorShelf(places), TokenDoor(token) if token else LoopbackDoor()))
    address = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    print(f"the page: http://{address}:{arguments.port}/ (Ctrl-C ends it)", flush=True)
    # Addresses may hold the token, so none is logged.
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning", access_log=False)
    return Exit.DONE
