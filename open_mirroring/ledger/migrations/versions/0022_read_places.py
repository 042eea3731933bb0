"""Which places of each partition were read; of mirrors that have read before, nobody noted which.

Frozen: whatever the tables become later, this is what revision 0022 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    made = op.create_table(
        "read_place",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("partition", sa.String(300), primary_key=True),
        sa.Column("runs", sa.Text, nullable=False),
    )
    assert made is not None
    mirror = sa.table("mirror", sa.column("name", sa.String), sa.column("committed", sa.BigInteger))
    begun = sa.select(mirror.c.name, sa.literal(""), sa.literal("[]")).where(mirror.c.committed > 0)
    op.execute(made.insert().from_select(["mirror", "partition", "runs"], begun))
