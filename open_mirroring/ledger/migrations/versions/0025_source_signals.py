"""What control tables of the source tell of its tables (T-81).

Frozen: whatever the tables become later, this is what revision 0025 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "source_signal",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("source", sa.String(300), primary_key=True),
        sa.Column("code", sa.String(40), primary_key=True),
        sa.Column("what", sa.Text, nullable=False),
    )
