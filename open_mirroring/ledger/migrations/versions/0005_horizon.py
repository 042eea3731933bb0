"""Horizons, dead letters that are settled, and what a broker had.

Frozen: whatever the tables become later, this is what revision 0005 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "settled_letter",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=1000), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("settled_in", sa.BigInteger(), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "batch", "origin", "place"),
    )
    op.create_table(
        "mirror_horizon",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror"),
    )
    op.create_table(
        "table_horizon",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("major", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "generation"),
    )
    op.create_table(
        "source_offsets",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=1000), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "name"),
    )
