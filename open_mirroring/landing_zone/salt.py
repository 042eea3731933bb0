"""The salt of columns that land as hashes (G-121).

Nothing writes a salt down. The ledger, and the files' footers, keep a value that is made of it slowly, which tells one
salt from another and not what it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

SHORTEST_SALT = 16
"""So many characters it has at least, or trying them all against what is kept of it would be cheap."""
_ROUNDS = 200_000


@dataclass(frozen=True)
class Salt:
    """What goes before each text that is hashed. Its own text shows nothing of it."""

    secret: str = field(repr=False)

    @cached_property
    def check(self) -> str:
        """A value that tells this salt from others; made slowly, so that trying salts against it is dear."""
        return hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"open_mirroring salt check", _ROUNDS)[:16].hex()

    def hash(self, text: str) -> str:
        """The hash of a text: SHA-256 of the salt and the text behind it, in UTF-8, as 64 hexadecimal digits."""
        return hashlib.sha256((self.secret + text).encode()).hexdigest()
