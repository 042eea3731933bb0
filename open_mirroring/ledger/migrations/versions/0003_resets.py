"""Resets of single tables.

Frozen: whatever the tables become later, this is what revision 0003 made of 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("mirrored_table") as table:
        table.add_column(sa.Column("stream_epoch", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("log_from", sa.BigInteger(), nullable=False, server_default="0"))
        table.add_column(sa.Column("reset", sa.Text(), nullable=True))
    with op.batch_alter_table("mirrored_table") as table:
        # Rows that are there begin at 0; what new rows begin with is said by whoever inserts them.
        table.alter_column("stream_epoch", existing_type=sa.Integer(), existing_nullable=False, server_default=None)
        table.alter_column("log_from", existing_type=sa.BigInteger(), existing_nullable=False, server_default=None)
    op.create_table(
        "dropped_table",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=False),
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("dropped_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "source"),
    )
