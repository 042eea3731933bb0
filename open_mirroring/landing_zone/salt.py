"""The salt of hashed columns (G-121).

It is never stored. Ledger and footers have a check value, computed slowly from it: it distinguishes salts without
revealing them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

SHORTEST_SALT = 16
"""The minimum length in characters. A shorter salt could be found by trying all values against the stored check value.
"""
_ROUNDS = 200_000


@dataclass(frozen=True)
class Salt:
    """The prefix of each text that is hashed. Its own text does not show it."""

    secret: str = field(repr=False)

    @cached_property
    def check(self) -> str:
        """A value that distinguishes this salt from others. It is slow to compute, so guessing salts is expensive."""
        return hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"open_mirroring salt check", _ROUNDS)[:16].hex()

    def hash(self, text: str) -> str:
        """SHA-256 of the salt followed by the text, in UTF-8, as 64 hexadecimal digits."""
        return hashlib.sha256((self.secret + text).encode()).hexdigest()
