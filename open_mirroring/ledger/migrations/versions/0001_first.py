"""The first ledger."""

from alembic import op

from open_mirroring.ledger.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
