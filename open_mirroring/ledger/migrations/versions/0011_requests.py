"""Requests: whoever asks again for what was asked for once gets the first one's answer.

Frozen: whatever the tables become later, this is what revision 0011 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "decision_request",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(600), primary_key=True),
        sa.Column("action", sa.String(30), nullable=False),
        sa.Column("source", sa.String(300), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("outcome", sa.Text()),
    )
