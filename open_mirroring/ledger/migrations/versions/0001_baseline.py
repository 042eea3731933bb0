"""The baseline: the tables of the first released version.

It makes nothing: a new ledger gets the newest tables from :mod:`open_mirroring.ledger.tables` and the newest revision.
The first migration follows this one.
"""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing to do."""
