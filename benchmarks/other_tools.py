"""What a user might take instead of the product: dlt, connectorx, reladiff, and a writer in thirty lines of pandas.

They have an environment of their own (``benchmarks/other-tools.txt``), so this module imports nothing of the product.
Each prints the number of rows it dealt with.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def connectorx(address: str, folder: Path) -> int:
    """connectorx reads a table in eight parts at once, pyarrow writes it as Parquet."""
    import connectorx as cx
    import pyarrow.parquet as pq

    query = "SELECT * FROM shop.orders"
    rows = cx.read_sql(address, query, return_type="arrow", partition_on="id", partition_num=8)
    pq.write_table(rows, folder / "connectorx.parquet")
    return int(rows.num_rows)


def dlt(address: str, folder: Path) -> int:
    """dlt loads a table into files in Parquet, by connectorx."""
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    import dlt
    from dlt.sources.sql_database import sql_table

    work = folder / "dlt"
    shutil.rmtree(work, ignore_errors=True)
    target = dlt.destinations.filesystem(str(work / "files"))
    pipeline = dlt.pipeline("bench", destination=target, dataset_name="shop", pipelines_dir=str(work / "state"))
    pipeline.run(sql_table(address, "orders", schema="shop", backend="connectorx"), loader_file_format="parquet")
    return int(pipeline.last_trace.last_normalize_info.row_counts["orders"])


def reladiff(address: str, folder: Path) -> int:
    """reladiff compares a table in PostgreSQL with the mirrored files, which DuckDB reads."""
    import duckdb
    from reladiff import connect_to_table, diff_tables

    database = folder / "reladiff.duckdb"
    database.unlink(missing_ok=True)
    with duckdb.connect(database) as link:
        of_source = "SELECT * REPLACE (timezone('UTC', changed) AS changed)"
        link.execute(f"CREATE VIEW orders AS {of_source} FROM read_parquet('{folder}/tables/shop/orders/*.parquet')")
        [(rows,)] = link.execute("SELECT count(*) FROM orders").fetchall()
    columns = ("name", "price", "changed", "open", "place")
    source = connect_to_table(address, ("shop", "orders"), "id", extra_columns=columns)
    target = connect_to_table({"driver": "duckdb", "filepath": str(database)}, "orders", "id", extra_columns=columns)
    return int(rows) - sum(1 for _ in diff_tables(source, target))


def pandas(source: str, folder: Path) -> int:
    """Thirty lines of pandas: the newest change of each key, as a file of each table's landing zone.

    It checks nothing, remembers nothing, and types nothing but the key: a user's first attempt.
    """
    import pandas as pd

    changes: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(Path(source).iterdir()):
        for line in file.open(encoding="utf-8"):
            event = json.loads(line)
            data = json.loads(event["data"])
            old, current = (json.loads(data["eventrow"][name] or "null") for name in ("old", "current"))
            table, key = data["eventsource"]["tbl"], data["eventsource"]["pkkey"][0]["columnname"]
            position = event["logicalid"].split(":", 1)[1]
            rows = changes.setdefault(table, [])
            if old and (not current or old[key] != current[key]):
                rows.append({"_key": old[key], "_position": position + "0", key: old[key], "__rowMarker__": 2})
            if current:
                rows.append({"_key": current[key], "_position": position + "1", **current, "__rowMarker__": 4})
    written = 0
    for table, rows in changes.items():
        newest = pd.DataFrame(rows).sort_values("_position").drop_duplicates("_key", keep="last")
        newest = newest[[*(name for name in newest if name[0] != "_"), "__rowMarker__"]]
        target = folder / "pandas" / table
        target.mkdir(parents=True, exist_ok=True)
        newest.to_parquet(target / f"{1:020d}.parquet", index=False)
        written += len(newest)
    return written


if __name__ == "__main__":
    tool, place, work = sys.argv[1:]
    tools = {"connectorx": connectorx, "dlt": dlt, "reladiff": reladiff, "pandas": pandas}
    print(tools[tool](place, Path(work)))
