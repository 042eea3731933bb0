"""The documentation that Airflow shows for each DAG; ``docs/reference/dags.md`` is made from the same texts."""

from __future__ import annotations

from string import Template

from open_mirroring.operate import operations

_ONE_WRITER = """
**One writer.** `max_active_runs=1` keeps scheduled runs apart, but no order rests on it: any number of overlapping
runs, retries and cleared tasks ends in the same files.
"""

REPLICATE = Template(
    """
Carries what is new at the source of the mirror **$mirror** into its landing zone. The ledger, not the run's date,
decides what is read and published next.

| Task | Does |
|---|---|
| `extract` | reads everything never read into the change log, as one batch; for all tables, whatever the gate says |
| `gate` | waits deferred, at most $gate_minutes minutes, until a table may publish; then succeeds in any case |
| `publish` | publishes the tables that pass; skipped when none does |
$reconcile

**Starts** by `schedule` of the mirror file: by time, or when new data arrives as well. The second kind is shown as
*asset triggered*; its event names what was seen at the source.

**Green with a HOLD note**: tables wait because the target lags, is paused, or an initial load is not complete.
Extraction went on; publishing catches up by itself.

**Red**: the message of `reconcile` names each stopped table with its code and the next step. The others were published.

**Alerts.** A failed task sends a message to `alerts.connection` of the mirror file, if that is set, and to the log;
with `alerts.deadline_minutes`, so does a run that takes longer.

**Params.** $params Extraction always reads for all tables.

**Backfill.** Run `airflow backfill create --dag-id ${mirror}__replicate --from-date … --to-date … --max-active-runs 1
--reprocess-behavior completed`. It first binds what was never bound of each interval, then does the usual tick. With
`--dag-run-conf '{"reread": true}'` it reads again what was bound. An interval before the horizon is refused.
"""
    + _ONE_WRITER
)

INITIAL_LOAD = Template(
    """
Loads the rows that the tables of the mirror **$mirror** had before their stream, straight into the landing zone. Only
by hand. It resumes where it stopped, and does nothing for tables that are loaded.

**Params.** $params Until a table is loaded its changes are logged and wait: `${mirror}__replicate` shows it on HOLD.

| Task | Does |
|---|---|
| `load` | loads and publishes the rows |
$reconcile
"""
    + _ONE_WRITER
)

RECONCILE = Template(
    """
The deep check of the mirror **$mirror**: footers, rows and digests of all files in the table's folders against ledger
and log. It changes no file. A table that does not agree is stopped in the ledger, and the run **fails** naming it.

**Params.** $params
"""
)


RELOAD_APPROVAL = (
    "Drop {{ params.table }} of the mirror $mirror at the target and build it from scratch?",
    "Readers of the target see no table, or a part of it, until the load is complete. Its changes are read and logged "
    "meanwhile; the other tables of the mirror go on.",
)
"""The text of the approval task of a reload: the question, and what each answer does."""

RELOAD_TABLE = Template(
    """
Resets **one** table of the mirror **$mirror**: its folder is deleted, so that the target drops it; then it is built
again, by its `initial_load` or from the log. For a changed `key`, `target` or column type change the mirror file first.
See the page *Reset one table* of the documentation.

| Task | Does |
|---|---|
$approve
| `reload` | records the request and carries the reset on; deferred, without Spark, while it waits for the target |
$reconcile

**Params.** $params

While it lasts, `${mirror}__replicate` shows the table on HOLD (RESET_OPEN). A run that failed or was killed is cleared,
or triggered again: it goes on from the ledger's last record. Without `landing_zone.tables` in the mirror file, look at
the target and confirm what you see by `${mirror}__decide`: `target-says-gone`, and later `target-says-back`. After a
day without either it fails with RESET_OPEN.
"""
    + _ONE_WRITER
)

REPAIR_APPROVAL = (
    "Publish number {{ params.number }} of {{ params.table }} of the mirror $mirror again?",
    "The number is published with the content that was sealed. A number that the target has applied already would be "
    "applied twice: only what is known not to be applied may be approved.",
)

REPAIR = Template(
    """
Publishes **one** file number of a table of the mirror **$mirror** again that was lost before the target applied it: the
fix of FILE_MISSING, if the runbook names it. It starts no Spark.

| Task | Does |
|---|---|
$approve
| `repair` | gives the content that was sealed its number; refused (REPAIR_REFUSED) where it may be applied |
$reconcile

**Params.** $params
"""
    + _ONE_WRITER
)

DECIDE = Template(
    """
Takes **one** decision about the mirror **$mirror**, for operators without a shell: what the page's buttons and the
command of the same name do. It starts no Spark. The name of the user who starts the run goes into the ledger's audit.

| Decision | Fields | Does |
|---|---|---|
$decisions

A field that is missing, or that the decision does not have, fails the run (ARGUMENT_INVALID), and nothing is decided.
What `decide` returns shows what came of it. One run decides once: cleared, it reports what it did.
"""
)

REPLAY_DEAD_LETTERS = Template(
    """
Decodes the open dead letters of the mirror **$mirror** again, by the decoder and the settings of today. Only by hand:
after an update of this product, or after a fix of the mirror file.

| Task | Does |
|---|---|
| `replay` | writes what can be decoded now into the change log, as a new batch; dead letters that cannot be stay open |
| `publish` | publishes it by the usual rule: what is still the newest of its key, and nothing twice |
$reconcile

A replay any number of times ends in the same rows. What `replay` returns shows how many were decoded, how many are
`left` by code, and which tables are `healed`: the stop of such a table is CHANGES_RECOVERED, and `open-mirroring
resume` lifts it.

**Params.** $params None chosen means all dead letters.
"""
    + _ONE_WRITER
)

PROVE = Template(
    """
Compares the source's tables of the mirror **$mirror** with the mirrored tables, row by row. It changes neither. It runs
by `prove.schedule` of the mirror file, by hand, or triggered by whatever knows when the source may be read.

A run by hand reads all rows of both sides. A scheduled run does, too, unless `prove.cover_in_days` is set: then it
compares the keys that changed since the last proof, and the part of each table that is due.

`prove` **fails** with NOT_EQUAL, naming the tables of which a row differs for certain; it is **skipped** when there is
none and some table could not be proved. It returns for each table its position and how many rows are equal, missing,
extra, different, doubled or undecided. In a routine it also returns which share of the rows is verified. Let
`${mirror}__replicate` go on meanwhile.

**Alerts.** A difference sends one message when it is first found; later runs that find the same fail without another
one. To correct the rows, trigger `${mirror}__correct_table` with the proof that the message names. A message is also
sent when rows were not compared for `prove.alert_after_days`.

**Params.** $params
"""
)

CORRECTION_APPROVAL = (
    "Publish the rows that the proof {{ params.proof }} of the mirror $mirror found to differ?",
    "The keys are those in the log of the task that proved them. Their rows are read from the source as they are now "
    "and published like any change; no other row is touched.",
)

CORRECT_TABLE = Template(
    """
Corrects **one** table of the mirror **$mirror**: the rows of the keys that a proof of `${mirror}__prove` found to
differ are published again, as the source has them now. Find out first why they were lost, with the runbook.

| Task | Does |
|---|---|
$approve
| `correct` | reads the rows, and writes them into the change log as a batch of their own; once for each proof |
| `publish` | publishes it by the usual rule: later changes win |
$reconcile

**Params.** $params

A correction is refused (REPAIR_REFUSED) where it would not make the table equal, and tried again where the source
did not answer (PROOF_FAILED). Then prove again.
"""
    + _ONE_WRITER
)

MAINTAIN = Template(
    """
Keeps the mirror **$mirror** small, daily, next to whatever runs:

1. moves the **horizon** up to what is older than `maintenance.keep_days`, published, and waited for by nothing. A
   change at or below it that arrives later stops its table (LATE_BELOW_HORIZON);
2. removes complete blocks of batches below the horizon from the change log, and older files that are no part of it;
3. sweeps staged objects of confirmed numbers, and forgets what the ledger needs no longer.

`held_by` in what `maintain` returns names what keeps the horizon from following. Nothing in the target changes.
"""
)


DAGS = {
    "replicate": (REPLICATE, operations.BACKFILL),
    "initial_load": (INITIAL_LOAD, operations.INITIAL_LOAD),
    "reconcile": (RECONCILE, operations.RECONCILE),
    "decide": (DECIDE, None),
    "reload_table": (RELOAD_TABLE, operations.RELOAD),
    "repair": (REPAIR, operations.REPAIR),
    "replay_dead_letters": (REPLAY_DEAD_LETTERS, operations.REPLAY),
    "prove": (PROVE, operations.PROVE),
    "correct_table": (CORRECT_TABLE, operations.CORRECT),
    "maintain": (MAINTAIN, operations.MAINTAIN),
}
"""By DAG name (after ``<mirror>__``): its documentation, and its operation; None for the DAG of all decisions."""


def text(dag: str, mirror: str, *, gate_minutes: int) -> str:
    """The documentation of the DAG *dag* of the mirror *mirror*, as Markdown.

    *gate_minutes* is the setting ``gate.timeout_minutes`` of the mirror file.
    """
    template, operation = DAGS[dag]
    given = {
        "approve": "| `approve` | waits for a named approval, a day at most; *Reject* skips the rest |",
        "reconcile": "| `reconcile` | compares ledger and landing zone; **fails** naming stopped tables, red tasks "
        "before it, and losses |",
        "params": " ".join(f"`{one.field}`: {one.says}" for one in (operation.fields if operation else ())),
        "decisions": "\n".join(map(_row, operations.DECISIONS.values())),
    }
    return template.substitute(mirror=mirror, gate_minutes=gate_minutes, **given).strip()


def _row(decision: operations.Operation) -> str:
    takes = []
    for one in (one for one in decision.fields if one.field != operations.REASON.field):
        meaning = "" if one.title.casefold() == one.field else f": {one.title.casefold()}"
        takes.append(f"`{one.field}`{meaning}{'' if one.is_required else ' (optional)'}")
    return f"| `{decision.name}` | {', '.join(takes)} | {decision.about} |"


_BOOK = """\
# DAGs

Written by `make commands` from the code: what Airflow shows next to each DAG of a mirror, here one of the name `shop`.
[Run it in Airflow](../how-to/airflow.md) describes where they come from.
"""


def book() -> str:
    """The Markdown of ``docs/reference/dags.md``: all DAGs on one page."""
    sections = [f"## shop__{name}\n\n{text(name, 'shop', gate_minutes=60)}\n" for name in DAGS]
    return "\n".join([_BOOK, *sections])


if __name__ == "__main__":
    print(book(), end="")
