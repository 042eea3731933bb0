"""Where each column list was seen, what operators said of columns that are gone, and which ones publications met.

Frozen: whatever the tables become later, this is what revision 0014 made of the one before it. Lists of earlier batches
have no places but their first position.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "column_range",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("epoch", sa.String(200), primary_key=True),
        sa.Column("first", sa.String(220), nullable=False),
        sa.Column("last", sa.String(220), nullable=False),
        sa.Column("whole_first", sa.String(220), nullable=False),
        sa.Column("whole_last", sa.String(220), nullable=False),
    )
    op.create_table(
        "column_decision",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("column", sa.String(300), primary_key=True),
        sa.Column("up_to", sa.String(240), primary_key=True),
        sa.Column("renamed_to", sa.String(300)),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "gone_column",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True),
        sa.Column("column", sa.String(300), primary_key=True),
        sa.Column("since", sa.String(240), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
