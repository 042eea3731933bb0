"""Key columns that land as the mirror file says: what it said when the first change was logged by the key.

Frozen: whatever the tables become later, this is what revision 0019 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("key_types", sa.Text()))
