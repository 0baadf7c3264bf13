"""OGB's raw folders (datasets/ogb_*.py), in both layouts: files damaged as bytes and as what they mean."""

from __future__ import annotations

import contextlib
import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from lightning_gnnload import OGB
from lightning_gnnload.datasets import ogb_files
from tests.fuzz.damage import ODD_NUMBERS, damage_bytes, damage_file
from tests.fuzz.targets.stored_graphs import use

EDGES = np.array([[0, 1, 4, 4, 2], [1, 2, 0, 0, 4]])
FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3) / 4
LABELS = np.array([[2.0], [0.0], [1.0], [np.nan], [2.0]])
TASKS = np.array([[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]])
SPLITS = {"train": [4, 0], "valid": [1], "test": [2]}
ODD_CELLS = ["", " ", "nan", "inf", "-1", "5", "1.5", "1e400", "9" * 30, "2147483648", '"', '"a', "a", "\0", "ä", "1,1"]

# No more can come out of compressed bytes (zlib), twice over for inverse edges and wider numbers.
MOST_BYTES_PER_BYTE = 1032 * 4


def read_csv(random: Random, folder: Path) -> None:
    """The layout of all but the largest data sets."""
    name, labels = random.choice([("ogbn-arxiv", LABELS), ("ogbn-proteins", TASKS)])
    home = folder / name.replace("-", "_")
    texts = {
        "raw/edge": _csv(EDGES.T),
        "raw/node-feat": _csv(FEATURES),
        "raw/node-label": _csv(labels),
        "raw/num-node-list": "5\n",
        "raw/num-edge-list": "5\n",
        **_splits({"ogbn-arxiv": "time", "ogbn-proteins": "species"}[name]),
    }
    spoiled = random.choice(list(texts)) if random.random() < 0.7 else None
    for at, text in texts.items():
        _write_csv(home / f"{at}.csv.gz", _damage_text(random, text) if at == spoiled else text.encode())
    _read_damaged(random, name, folder, intact=spoiled is None)


def read_npz(random: Random, folder: Path) -> None:
    """The layout of ogbn-papers100M."""
    raw = folder / "ogbn_papers100M" / "raw"
    raw.mkdir(parents=True)
    arrays: dict[str, Any] = {
        "edge_index": EDGES,
        "node_feat": FEATURES,
        "num_nodes_list": np.array([5]),
        "num_edges_list": np.array([5]),
        "node_label": LABELS.astype(np.float32),
    }
    members = {name: _npy(array) for name, array in arrays.items()}
    meaning = random.random() < 0.7
    if meaning:
        name = random.choice(list(members))
        members[name] = _odd_member(random, arrays[name])
        if random.random() < 0.1:
            del members[name]
    label = {"node_label": members.pop("node_label")} if "node_label" in members else {}
    _write_zip(random, raw / "data.npz", members)
    _write_zip(random, raw / "node-label.npz", label)
    for at, text in _splits("time").items():
        _write_csv(raw.parent / f"{at}.csv.gz", text.encode())
    _read_damaged(random, "ogbn-papers100M", folder, intact=not meaning)


def _read_damaged(random: Random, name: str, folder: Path, *, intact: bool) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if random.random() < (0.8 if intact else 0.1):
        outside = folder / "outside"
        outside.write_bytes(files[0].read_bytes())
        damage_file(random, random.choice(files), outside)
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    scratch_array = ogb_files.scratch_array

    def bounded(file: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        asked = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        assert asked <= MOST_BYTES_PER_BYTE * num_bytes, f"{asked} bytes reserved for files of {num_bytes}"
        return scratch_array(file, dtype, shape)

    dataset = OGB(name, folder, add_inverse_edge=random.choice([None, True]), download=False)
    with (
        patch.object(ogb_files, "scratch_array", bounded),
        patch.object(ogb_files, "progress", lambda title, total: contextlib.nullcontext(lambda amount: None)),
    ):
        dataset.prepare()
    use(dataset.load())


def _splits(kind: str) -> dict[str, str]:
    return {f"split/{kind}/{name}": "".join(f"{node}\n" for node in ids) for name, ids in SPLITS.items()}


def _csv(rows: np.ndarray) -> str:
    lines = [",".join("" if value != value else str(value) for value in row) for row in rows.tolist()]
    return "\n".join(lines) + "\n"


def _write_csv(file: Path, text: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text, compresslevel=1))


def _damage_text(random: Random, text: str) -> bytes:
    lines = text.splitlines()
    at = random.randrange(len(lines))
    way = random.randrange(6)
    if way == 0:
        return damage_bytes(random, text.encode())
    if way == 1:
        del lines[at]
    elif way == 2:
        lines.insert(at, random.choice([lines[at], *ODD_CELLS]))
    elif way == 3:
        lines[at] += random.choice([",", ",1", " "])
    else:
        cells = lines[at].split(",")
        cells[random.randrange(len(cells))] = random.choice(ODD_CELLS)
        lines[at] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(array), allow_pickle=array.dtype.hasobject)
    return out.getvalue()


def _odd_member(random: Random, array: np.ndarray) -> bytes:
    """An npy file that says something else: of other dtype, shape or content, or claims so in its header."""
    changes: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda a: np.nan_to_num(a).astype(random.choice(["i1", "u1", "i4", "u8", ">i8", "f2", "f8", "c8", "?", "U3"])),
        lambda a: a.astype(object),
        lambda a: a[..., :-1],
        lambda a: a[None],
        lambda a: a.reshape(-1),
        lambda a: np.asfortranarray(a.T),
        lambda a: a + random.choice([1, -1, 2**31, -(2**32), 0.5]),
        lambda a: np.full_like(a, random.choice([0, -1, 5, 2**31 - 1])),
        lambda a: np.zeros((0, *a.shape[1:]), a.dtype),
    ]
    if random.random() < 0.5:
        return _npy(random.choice(changes)(array))
    content = _npy(array)
    if random.random() < 0.3:
        return damage_bytes(random, content)
    header_end = content.index(b"\n") + 1
    header = content[10 : header_end - 1].rstrip()
    number = str(random.choice([n for n in ODD_NUMBERS if isinstance(n, int)])).encode()
    old, new = random.choice(
        [
            (b"(5", b"(" + number),
            (b"(2", b"(" + number),
            (b", 3)", b", " + number + b")"),
            (b", 5)", b", " + number + b")"),
            (b"<i8", random.choice([b"<f4", b"|O", b">i8", b"<i9", b"|V8", b"<M8[s]", b"|S8", b"i8,i8"])),
            (b"False", b"True"),
            (b"{", b"[" * random.choice([1, 50, 5000])),
            (b"}", b"'x': 1}"),
            (b"}", b""),
            (b"'", b""),
        ]
    )
    header = header.replace(old, new) + b" " * 8 + b"\n"
    return content[:8] + len(header).to_bytes(2, "little") + header + content[header_end:]


def _write_zip(random: Random, file: Path, members: dict[str, bytes]) -> None:
    methods = [zipfile.ZIP_STORED, *[zipfile.ZIP_DEFLATED] * 8, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(file, "w", random.choice(methods)) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
