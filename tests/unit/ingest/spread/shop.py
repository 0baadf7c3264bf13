"""Tables of a shop in files and in memory, with all that rows of tables may have or lack."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from pyarrow import parquet

from tests.unit.ingest.tables import texts

USERS, ITEMS, BUYS, KNOWS = 211, 97, 6000, 2500
UNEQUAL = {"report.json"}  # which has seconds


def written(folder: Path) -> dict[str, bytes]:
    """The files of a graph folder that two builds have alike."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in UNEQUAL}


def shop(home: Path, times: str, seed: int = 5) -> dict[str, Any]:
    """Tables with hubs, repeats, self loops, missing ends, times and values, in files of any number of rows."""
    rng = np.random.default_rng(seed)
    users, items = np.array(texts("u", USERS)), rng.permutation(10**6)[:ITEMS] * 10**9 - 5
    src, dst = rng.integers(0, USERS, BUYS), np.minimum(rng.zipf(1.3, BUYS) - 1, ITEMS - 1)
    names = [None if number % 97 == 0 else "nobody" if number % 89 == 0 else users[u] for number, u in enumerate(src)]
    at = {"seconds": 10**6 * rng.integers(0, 10**5, BUYS), "wide": rng.integers(-(2**50), 2**50, BUYS)}[times]
    buys = pa.table(
        {
            "u": pa.array(names, pa.string()),
            "i": items[dst],
            "at": pa.array(at, pa.int64(), mask=rng.random(BUYS) < 0.02),
            "w": rng.random(BUYS).astype(np.float32),
            "price": pa.array(rng.normal(5, 2, BUYS), mask=rng.random(BUYS) < 0.1),
            "how": rng.choice(["card", "cash", "gift"], BUYS),
        }
    )
    begins = [0, 1, 2500, 2500, BUYS]  # one file has no rows
    for number, (begin, end) in enumerate(pairwise(begins)):
        parquet.write_table(buys[begin:end], home / f"buys-{number}.parquet", row_group_size=400)
    knows = rng.integers(0, USERS, KNOWS), np.minimum(rng.zipf(1.2, KNOWS) - 1, USERS - 1)
    knows[0][:40] = knows[1][:40]
    pyarrow.csv.write_csv(pa.table({"a": users[knows[0]], "b": users[knows[1]]}), home / "knows.csv")
    again = np.concatenate([np.arange(USERS), rng.integers(0, USERS, 20)])
    rng.shuffle(again)
    members = {
        "name": users[again],
        "age": rng.normal(40, 9, len(again)),
        "town": rng.choice(["A", "B", "C"], len(again)),
    }
    members["joined"] = pa.array(rng.choice(at, len(again)), pa.timestamp("us"))
    parquet.write_table(pa.table(members), home / "users.parquet", row_group_size=50)
    return {
        "version": 1,
        "nodes": {
            "user": {
                "from": "users.parquet",
                "id": "name",
                "on_duplicate": "first",
                "time": "joined",
                "timezone": "UTC",
                "x": ["age", {"column": "town", "min_count": 1}],
            },
            "item": {"from": pa.table({"sku": items, "size": rng.random(ITEMS)}), "id": "sku", "x": ["size"]},
            "ghost": {"from": pa.table({"id": [1, 2, 3]}), "id": "id"},
        },
        "edges": {
            "buys": {
                "from": "buys-*.parquet",
                "src": "user.u",
                "dst": "item.i",
                "time": "at",
                "time_unit": "us",
                "weight": "w",
                "reverse": True,
                "on_missing": "drop",
                "x": ["price", {"column": "how", "min_count": 1}],
            },
            "knows": {
                "from": "knows.csv",
                "src": "user.a",
                "dst": "user.b",
                "on_missing": "drop",
                "self_loops": "drop",
                "repeats": "drop",
            },
            "likes": {
                "from": "select u, i from read_parquet('buys-3.parquet') order by i, u",
                "src": "user.u",
                "dst": "item.i",
                "on_missing": "drop",
                "repeats": "drop",
                "reverse": True,
            },
        },
        "tasks": {"bought": {"edge": "buys", "split": {"share": [0.8, 0.1, 0.1]}}},
    }
