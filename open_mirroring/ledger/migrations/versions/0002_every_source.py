"""Sources with announced structures, and ranges of change sequences.

Frozen: whatever the tables become later, this is what revision 0002 made of 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("bound_range") as table:
        table.alter_column(
            "bound_to",
            type_=sa.String(length=40),
            existing_type=sa.BigInteger(),
            existing_nullable=False,
            postgresql_using="bound_to::text",
        )
    op.create_table(
        "source_schema",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=300), nullable=False),
        sa.Column("schema_id", sa.String(length=200), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "digest"),
    )
    op.create_table(
        "stream_start",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("origin", sa.String(length=1000), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "origin"),
    )
