"""The first ledger.

Frozen: whatever the tables become later, this is what revision 0011 made. No release wrote an earlier one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
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
        sa.Column("letters_counted", sa.Boolean(), nullable=True),
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
        sa.Column("completeness", sa.Text(), nullable=True),
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
        sa.Column("bound_to", sa.String(length=40), nullable=False),
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
        sa.Column("stream_epoch", sa.Integer(), nullable=False),
        sa.Column("log_from", sa.BigInteger(), nullable=False),
        sa.Column("reset", sa.Text(), nullable=True),
        sa.Column("published_position", sa.String(length=220), nullable=True),
        sa.Column("waiting_rows", sa.BigInteger(), nullable=True),
        sa.Column("text_format", sa.Text(), nullable=True),
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
        sa.Column("looked_to", sa.BigInteger(), nullable=True),
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
        sa.Column("position_to", sa.String(length=220), nullable=True),
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
    op.create_table(
        "dropped_table",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=False),
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("dropped_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "source"),
    )
    op.create_table(
        "settled_letter",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=1000), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("settled_in", sa.BigInteger(), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "batch", "origin", "place"),
    )
    op.create_table(
        "mirror_horizon",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror"),
    )
    op.create_table(
        "table_horizon",
        sa.Column("table_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("major", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "generation"),
    )
    op.create_table(
        "source_offsets",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=1000), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "name"),
    )
    op.create_table(
        "unverified_column",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True),
        sa.Column("column", sa.String(300), primary_key=True),
        sa.Column("since", sa.String(200), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "open_letter",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=1000), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(length=300), nullable=True),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("epoch", sa.String(length=200), nullable=True),
        sa.Column("pos", sa.String(length=200), nullable=True),
        sa.Column("letters", sa.BigInteger(), nullable=False),
        sa.Column("looked_to", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "batch", "origin", "place"),
    )
    op.create_table(
        "foreign_table",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("first_batch", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_batch", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mirror", "name"),
    )
    op.create_table(
        "decision_request",
        sa.Column("mirror", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(600), primary_key=True),
        sa.Column("action", sa.String(30), nullable=False),
        sa.Column("source", sa.String(300), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("outcome", sa.Text()),
    )
