"""How jobs ended whose driver ran elsewhere (S-16).

Frozen: whatever the tables become later, this is what revision 0023 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "job_end",
        sa.Column("run", sa.String(64), primary_key=True),
        sa.Column("mirror", sa.String(64), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    )
