"""A writer as one is written on an afternoon: rows first, then changes; no check, and no thought of a crash."""

import json
import sqlite3
import sys
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from azure.identity import ClientSecretCredential
from azure.storage.filedatalake import DataLakeServiceClient

url, workspace, folder, certificate, database, state = sys.argv[1:]
login = {"authority": url, "disable_instance_discovery": True, "connection_verify": certificate}
credential = ClientSecretCredential("tenant", "client", "secret", **login)
lake = DataLakeServiceClient(url, credential=credential, connection_verify=certificate, retry_total=0)
zone, db, memory = lake.get_file_system_client(workspace), sqlite3.connect(database), Path(state)


def upload(name: str, content: bytes) -> None:
    """Write a file, over whatever is there."""
    zone.get_file_client(f"{folder}/{name}").upload_data(content, overwrite=True)


def publish(rows: pd.DataFrame) -> None:
    """Publish rows under the number after the highest one in the folder."""
    names = [Path(path.name).stem for path in zone.get_paths(folder, recursive=False)]
    number = max((int(name) for name in names if name.isdigit()), default=0) + 1
    upload(f"{number:020d}.parquet", rows.to_parquet(index=False))


if not memory.exists():
    upload("_metadata.json", json.dumps({"keyColumns": ["id"]}).encode())
    publish(pd.read_sql("SELECT * FROM orders", db))
    position, columns = pd.read_sql("SELECT coalesce(max(position), 0) FROM changes", db).iat[0, 0], None
else:
    position, columns = json.loads(memory.read_text())
now = db.execute("SELECT sql FROM sqlite_master WHERE name = 'orders'").fetchone()[0]
if columns not in (None, now):
    sys.exit("the table has changed: delete the folder and the state, and begin again")
changes = pd.read_sql(f"SELECT * FROM changes WHERE position > {position} ORDER BY position", db)
for start in range(0, len(changes), 3):
    rows = []
    for change in changes[start : start + 3].itertuples():
        marker = 0 if change.before is None else 2 if change.after is None else 1
        rows.append(json.loads(change.after or change.before) | {"__rowMarker__": marker})
    publish(pd.DataFrame(rows))
memory.write_text(json.dumps([int(max(position, *changes["position"], 0)), now]))
