"""What control tables of the source tell of whole tables, and of its tasks (T-85, T-86).

Frozen: whatever the tables become later, this is what revision 0027 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "source_event",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("code", sa.String(40), primary_key=True),
        sa.Column("place", sa.String(240), primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
    )
    op.create_table(
        "source_task",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(300), primary_key=True),
        sa.Column("status", sa.String(300), nullable=False),
        sa.Column("status_at", sa.DateTime(timezone=True)),
        sa.Column("read_up_to", sa.DateTime(timezone=True)),
        sa.Column("pending", sa.BigInteger),
    )
