"""How a generation that was built from the log alone reads columns of earlier rows.

Frozen: whatever the tables become later, this is what revision 0015 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "former_column",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True),
        sa.Column("step", sa.Integer(), primary_key=True),
        sa.Column("column", sa.String(300), nullable=False),
        sa.Column("up_to", sa.String(240), nullable=False),
        sa.Column("now", sa.String(300)),
    )
