"""Tables that are built anew from the log: the place above which every row that still lives has its newest change.

Frozen: whatever the tables become later, this is what revision 0020 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("lives_above", sa.String(220)))
