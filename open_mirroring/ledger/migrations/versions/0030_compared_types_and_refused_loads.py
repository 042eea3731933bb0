"""The `types` with which published columns were compared last (G-129), and why a table's initial load was refused.

Frozen: whatever the tables become later, this is what revision 0030 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("types", sa.Text))
    op.add_column("mirrored_table", sa.Column("load_refused", sa.Text))
