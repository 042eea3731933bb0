"""How complete the log is after each batch, and up to which position a table is published.

Frozen: whatever the tables become later, this is what revision 0004 made of the one before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("log_batch", sa.Column("completeness", sa.Text()))
    op.add_column("mirrored_table", sa.Column("published_position", sa.String(length=220)))
    op.add_column("mirrored_table", sa.Column("waiting_rows", sa.BigInteger()))
    op.add_column("publication", sa.Column("position_to", sa.String(length=220)))
