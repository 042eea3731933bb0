"""The baseline: the tables of the first version to be released.

It makes nothing: a new ledger gets the newest tables from :mod:`open_mirroring.ledger.tables` and the newest revision.
The first migration follows this one. Until the release a change of the tables raises the baseline's own number, so that
a ledger of an earlier state is refused, and not misread.
"""

revision = "0003"
down_revision = None


def upgrade() -> None:
    """Nothing to do."""
