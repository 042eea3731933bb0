"""Up to which commit messages of tables that are not mirrored were ignored (G-140), and which columns are read (G-141).

Frozen: whatever the tables become later, this is what revision 0028 made of the one before it. What came before is not
known: the commits of what was ignored, and by which columns earlier rows were read.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("mirrored_table", sa.Column("takes", sa.Text))
    op.add_column("foreign_table", sa.Column("highest", sa.String(200)))
