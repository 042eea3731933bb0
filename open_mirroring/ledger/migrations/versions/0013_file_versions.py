"""Versions of source files: one that was read and is written anew is noticed.

Frozen: whatever the tables become later, this is what revision 0013 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("bound_range", sa.Column("version", sa.String(300), nullable=True))
    op.add_column("bound_range", sa.Column("digest", sa.String(64), nullable=True))
