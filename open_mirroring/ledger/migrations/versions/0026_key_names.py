"""Key columns that have another name at the target: what the mirror file said when the table was established.

Frozen: whatever the tables become later, this is what revision 0026 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("key_names", sa.Text()))
