"""Where the source of a mirror is read, so that another place is told (G-142).

Frozen: whatever the tables become later, this is what revision 0029 made of the one before it. Where mirrors were read
before is not known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("mirror", sa.Column("reads", sa.Text))
