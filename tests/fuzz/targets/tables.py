"""graph.yaml and its tables (ingest): damaged as what they mean, and as bytes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random
from typing import Any

from lightning_gnnload import load_graph_data
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.spec import GraphSpec
from tests.fuzz.damage import damage_bytes, damage_json
from tests.fuzz.targets.stored_graphs import use

with contextlib.suppress(ImportError):  # before memory is limited, of which these map much
    import duckdb  # noqa: F401
    import pyarrow.compute
    import pyarrow.dataset  # noqa: F401

USERS = "id,age,kind,y,at\n" + "".join(f"u{k},{k}.5,{'ab'[k % 2]},{k % 3},2026-01-0{k + 1}\n" for k in range(8))
BUYS = "who,what,at,price\n" + "".join(f"u{k % 8},u{k * 3 % 8},{1000 + k},{k}.25\n" for k in range(12))
SPEC: dict[str, Any] = {
    "version": 1,
    "build": {"memory": "100MB", "threads": 1, "repeats": True},
    "nodes": {
        "user": {
            "from": "users.csv",
            "id": "id",
            "time": "at",
            "timezone": "UTC",
            "x": ["age", {"column": "kind", "as": "category", "min_count": 1}],
        }
    },
    "edges": {
        "buys": {
            "from": ["buys.csv"],
            "src": "user.who",
            "dst": "user.what",
            "time": "at",
            "time_unit": "s",
            "weight": "price",
            "reverse": True,
            "on_missing": "drop",
            "x": [{"column": "price", "scale": "minmax", "flag_missing": True}],
        }
    },
    "tasks": {
        "kind": {"seed": "user.id", "y": "y", "kind": "class", "split": {"share": [0.6, 0.2, 0.2], "seed": 3}},
        "link": {"edge": "buys", "time": "at", "time_unit": "s", "split": {"val": "1970-01-01 00:16:44"}},
    },
}


def build(random: Random, folder: Path) -> None:
    """Builds a graph of a description and of tables of which up to two things are wrong."""
    spec, tables = json.loads(json.dumps(SPEC)), {"users.csv": USERS.encode(), "buys.csv": BUYS.encode()}
    for _ in range(random.choice([0, 1, 1, 2])):
        if random.random() < 0.7:
            spec = damage_json(random, spec)
        else:
            name = random.choice(list(tables))
            tables[name] = damage_bytes(random, tables[name])
    for name, content in tables.items():
        (folder / name).write_bytes(content)
    text = json.dumps(spec).encode()
    if random.random() < 0.1:
        text = damage_bytes(random, text)
    (folder / "graph.yaml").write_bytes(text)
    build_graph_folder(GraphSpec.read(folder / "graph.yaml"), folder / "out", home=folder, show_progress=False)
    use(load_graph_data(folder / "out", verify=True))
