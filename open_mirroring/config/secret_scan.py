"""Finds values that look like secrets in a mirror file.

Mirror files only name connections; the secrets are in environment variables (I30). If it is doubtful whether a value is
a secret, the scan refuses the value. Messages of the scan never show a value.
"""

from __future__ import annotations

import re

NEXT_STEP = "take it out, change it where it is valid (it was in a file), and name a connection that holds the new one"

_KEY = re.compile(
    r"passw(or)?d|passphrase|^pwd$|secret|token|credential|^sas$|sas(url|uri|key)|(account|access|api|private)key"
    r"|connectionstring|connstr"
)

# A URL with user:password@, key=value strings, cloud keys, private keys, JSON web tokens, bearer tokens.
_VALUE = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://[^\s:/@?\#"'\[]*:[^\s]+@
    | (password|passwd|pwd|sslpassword|client_?secret|secret|token
        |(shared)?access_?key|account_?key|api_?key|(?<![a-z])sig|SharedAccessSignature)\s*=\s*[^\s=]
    | \bAWS_SECRET|\bAKIA[0-9A-Z]{16}\b
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
    | \bBearer\s+[A-Za-z0-9._~+/-]{8,}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def key_smells(key: str) -> bool:
    """Whether a setting of the name *key* would hold a secret: ``password``, ``sas_token``, ``AccountKey``, …."""
    return _KEY.search(re.sub(r"[^a-z0-9]", "", key.casefold())) is not None


def text_smells(text: str) -> bool:
    """Whether a string looks like a secret: a URL with a password, ``AccountKey=…``, a private key."""
    return _VALUE.search(text) is not None
