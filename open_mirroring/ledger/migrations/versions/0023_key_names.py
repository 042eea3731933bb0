"""Key columns that have another name at the target: what the mirror file said when the table was established.

Frozen: whatever the tables become later, this is what revision 0023 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("key_names", sa.Text()))
