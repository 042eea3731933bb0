"""Tables that joined and wait for a yes: what is asked stays noted, whatever other stop takes the place of that one.

Frozen: whatever the tables become later, this is what revision 0018 made of the one before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("joined_table", sa.Column("asks", sa.Text()))
    op.execute(
        "UPDATE joined_table SET asks = (SELECT stop_what FROM mirrored_table WHERE mirrored_table.mirror = "
        "joined_table.mirror AND mirrored_table.source = joined_table.source AND stop_code = 'NEW_TABLE')"
    )
