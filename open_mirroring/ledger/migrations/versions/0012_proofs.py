"""Proofs: what comparing tables with their source came to.

Frozen: whatever the tables become later, this is what revision 0012 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "proof",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("proved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.String(length=10), nullable=False),
        sa.Column("published_batch", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.String(length=220), nullable=True),
        sa.Column("rows_source", sa.BigInteger(), nullable=False),
        sa.Column("rows_target", sa.BigInteger(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("extra", sa.BigInteger(), nullable=False),
        sa.Column("different", sa.BigInteger(), nullable=False),
        sa.Column("doubled", sa.BigInteger(), nullable=False),
        sa.Column("unproven", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
