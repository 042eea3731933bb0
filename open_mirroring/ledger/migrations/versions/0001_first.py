"""The first ledger.

Frozen: whatever the tables become later, this is what revision 0001 made.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "mirror",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("committed", sa.BigInteger(), nullable=False),
        sa.Column("open_number", sa.BigInteger(), nullable=True),
        sa.Column("open_ranges", sa.Text(), nullable=True),
        sa.Column("open_manifest", sa.Text(), nullable=True),
        sa.Column("open_bound_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_code", sa.String(length=64), nullable=True),
        sa.Column("stop_what", sa.Text(), nullable=True),
        sa.Column("homeless_rejects", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "log_batch",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("ranges", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "number"),
    )
    op.create_table(
        "batch_table",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.String(length=200), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("min_pos", sa.String(length=200), nullable=False),
        sa.Column("max_pos", sa.String(length=200), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "source", "batch", "epoch"),
    )
    op.create_table(
        "bound_range",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=1000), nullable=False),
        sa.Column("bound_to", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "name"),
    )
    op.create_table(
        "open_fragment",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("identity", sa.String(length=300), nullable=False),
        sa.Column("epoch", sa.String(length=200), nullable=False),
        sa.Column("pos", sa.String(length=200), nullable=False),
        sa.Column("since_batch", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "identity"),
    )
    op.create_table(
        "mirrored_table",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=False),
        sa.Column("folder", sa.String(length=300), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(length=36), nullable=False),
        sa.Column("established", sa.Boolean(), nullable=False),
        sa.Column("marker_etag", sa.String(length=200), nullable=False),
        sa.Column("confirmed", sa.BigInteger(), nullable=False),
        sa.Column("published_batch", sa.BigInteger(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=True),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("load_state", sa.String(length=10), nullable=False),
        sa.Column("load_plan", sa.Text(), nullable=True),
        sa.Column("stream_from", sa.String(length=200), nullable=True),
        sa.Column("stop_code", sa.String(length=64), nullable=True),
        sa.Column("stop_what", sa.Text(), nullable=True),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("mirror", "folder"),
        sa.UniqueConstraint("mirror", "source"),
    )
    op.create_table(
        "column_list",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("cols", sa.Text(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("first_pos", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "digest"),
    )
    op.create_table(
        "stream_epoch",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.String(length=200), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "epoch"),
    )
    op.create_table(
        "rejected_change",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.String(length=200), nullable=False),
        sa.Column("pos", sa.String(length=200), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "epoch", "pos", "key_digest"),
    )
    op.create_table(
        "published_file",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("first_position", sa.String(length=200), nullable=False),
        sa.Column("last_position", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("batch_from", sa.BigInteger(), nullable=False),
        sa.Column("batch_to", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "generation", "number"),
    )
    op.create_table(
        "publication",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("batch_from", sa.BigInteger(), nullable=False),
        sa.Column("batch_to", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "generation", "version"),
    )
    op.create_table(
        "verdict",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("verdict", sa.String(length=10), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("confirmed", sa.BigInteger(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("table_id"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=True),
        sa.Column("event", sa.String(length=64), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
