"""The web page: what an operator sees in a browser, and the decisions that an operator can make there.

The page is one FastAPI app over the ledgers of all mirrors, mounted in Airflow or served by ``open-mirroring ui``. The
app has no logic of its own: verdicts and decisions come from the functions that the command line uses.
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
