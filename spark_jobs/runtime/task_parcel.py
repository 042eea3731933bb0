"""Encrypts the tasks of a job, so that only its own workers can read them.

Spark keeps tasks, and functions of more than a megabyte, in a file for a moment, and it shows plans on its page and in
its event log. None of these may hold a secret (S-04). The key travels inside a function, in memory only.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from cryptography.fernet import Fernet
from pyspark.cloudpickle import dumps


@dataclass(frozen=True)
class ParcelKey:
    """The key of one job, made for it and forgotten with it."""

    _key: bytes = field(default_factory=Fernet.generate_key, repr=False)

    def packed(self, value: Any) -> str:
        """The value as text of letters, digits, ``-``, ``_`` and ``=``."""
        return Fernet(self._key).encrypt(dumps(value)).decode()

    def unpacked(self, text: str) -> Any:
        """The value that was packed by this key."""
        return pickle.loads(Fernet(self._key).decrypt(text))
