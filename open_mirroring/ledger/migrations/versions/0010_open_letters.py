"""Open dead letters, and tables that are not mirrored, by name.

Frozen: whatever the tables become later, this is what revision 0010 made of the one before it. The dead letters of
the batches before are counted from the change log by the next run: until then nobody says that there are none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("mirror", sa.Column("letters_counted", sa.Boolean()))
    op.add_column("rejected_change", sa.Column("looked_to", sa.BigInteger()))
    op.create_table(
        "open_letter",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=1000), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=True),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("epoch", sa.String(length=200), nullable=True),
        sa.Column("pos", sa.String(length=200), nullable=True),
        sa.Column("letters", sa.BigInteger(), nullable=False),
        sa.Column("looked_to", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "batch", "origin", "place"),
    )
    op.create_table(
        "foreign_table",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("first_batch", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_batch", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "name"),
    )
