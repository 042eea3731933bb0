"""Tables of delimited text.

Frozen: whatever the tables become later, this is what revision 0006 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("text_format", sa.Text()))
