"""Tables that joined by a pattern of the mirror file: their names, keys and columns as the source announced them.

Frozen: whatever the tables become later, this is what revision 0016 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "joined_table",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("source", sa.String(300), primary_key=True),
        sa.Column("schema_name", sa.String(150), nullable=False),
        sa.Column("table_name", sa.String(150), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
    )
