"""Published files by when they were confirmed: the page asks for those of one day, whatever the history is.

Frozen: whatever the tables become later, this is what revision 0021 made of the one before it.
"""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_index("published_file_confirmed_at", "published_file", ["confirmed_at"])
