"""Tables that begin with the newest full load that their source sent, and who said that it shall count.

Frozen: whatever the tables become later, this is what revision 0024 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("newest_load", sa.Text()))
    op.add_column("mirrored_table", sa.Column("reload_accepted", sa.Text()))
