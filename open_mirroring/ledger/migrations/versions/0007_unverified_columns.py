"""Columns that came into being behind rows which were published.

Frozen: whatever the tables become later, this is what revision 0007 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "unverified_column",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True),
        sa.Column("column", sa.String(300), primary_key=True),
        sa.Column("since", sa.String(200), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
    )
