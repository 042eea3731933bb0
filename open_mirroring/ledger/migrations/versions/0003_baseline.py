"""The baseline: the revision of the ledger's tables in the first version to be released.

This migration changes nothing: a new ledger gets the newest tables from :mod:`open_mirroring.ledger.tables`, and is
marked with the newest revision. The first real migration follows the baseline. Until the release, every change of the
tables raises the number of the baseline itself, so that a ledger with earlier tables is refused, and not misread.
"""

revision = "0003"
down_revision = None


def upgrade() -> None:
    """Does nothing, because the baseline changes no table."""
