"""The web page: what an operator sees in a browser, and the decisions that can be made there.

One FastAPI app over the ledgers of all mirrors, mounted in Airflow or served by ``open-mirroring ui``. It has no logic
of its own: verdicts and decisions come from the same functions as those of the command line.
"""

from open_mirroring.page.app import Link, Surroundings, build_app
from open_mirroring.page.doors import AccessDenied, Door, LoopbackDoor, TokenDoor, Visitor
from open_mirroring.page.shelf import MirrorShelf

__all__ = [
    "AccessDenied",
    "Door",
    "Link",
    "LoopbackDoor",
    "MirrorShelf",
    "Surroundings",
    "TokenDoor",
    "Visitor",
    "build_app",
]
