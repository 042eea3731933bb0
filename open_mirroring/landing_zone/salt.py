"""The secret salt of hashed columns (G-121).

The salt is never stored. Ledger and footers contain a check value of the salt, which shows whether the salt was
changed. The check value is so slow to compute that guessing the salt is expensive.
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
    """A secret that is put before each string to be hashed; ``repr`` hides the secret."""

    secret: str = field(repr=False)

    @cached_property
    def check(self) -> str:
        """The check value of the salt: equal for equal salts, and slow to compute, so that guessing is expensive."""
        return hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"open_mirroring salt check", _ROUNDS)[:16].hex()

    def hash(self, text: str) -> str:
        """Return the SHA-256 of the salt followed by *text*, in UTF-8, as 64 hexadecimal digits."""
        return hashlib.sha256((self.secret + text).encode()).hexdigest()
