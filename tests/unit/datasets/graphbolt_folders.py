"""Writes folders as GraphBolt has them, from arrays given in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

NODES = {"user": 4, "item": 3}
BUYS = np.array([[0, 0, 1, 3, 2], [2, 0, 1, 2, 2]])  # sources, targets
LIKED = np.array([[2, 0], [0, 3]])


def array(folder: Path, path: str, rows: Any, **fields: Any) -> dict[str, Any]:
    """Writes an array as its path's ending says; returns its entry."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".pt":
        torch.save(torch.as_tensor(rows), file)
    elif file.suffix == ".csv":
        np.savetxt(file, np.asarray(rows).T, fmt="%d", delimiter=",")
    else:
        np.save(file, rows)
    kinds = {".pt": "torch", ".csv": "csv", ".npy": "numpy"}
    return {**fields, "format": kinds[file.suffix], "path": path}


def rows(folder: Path, name: str, of_type: str | None = None, **data: Any) -> dict[str, Any]:
    """Writes a set; returns its entry."""
    prefix = f"set/{name}-{'' if of_type is None else of_type.replace(':', '_')}"
    entries = [array(folder, f"{prefix}-{key}.npy", np.asarray(value), name=key) for key, value in data.items()]
    return {**({} if of_type is None else {"type": of_type}), "data": entries}


def write(folder: Path, **metadata: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.yaml").write_text(yaml.safe_dump({"dataset_name": "made", **metadata}))
    return folder


def flat_graph(folder: Path, path: str = "edges/follows.csv", ends: Any = BUYS, num: int = 4) -> dict[str, Any]:
    return {"nodes": [{"num": num}], "edges": [array(folder, path, ends)]}


def typed_graph(folder: Path) -> dict[str, Any]:
    nodes = [{"type": name, "num": count} for name, count in NODES.items()]
    edges = [
        array(folder, "edges/buys.csv", BUYS, type="user:buys:item"),
        array(folder, "edges/liked.npy", LIKED, type="item:liked_by:user"),
    ]
    return {"nodes": nodes, "edges": edges}
