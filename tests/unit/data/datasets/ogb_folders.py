"""Folders as OGB's archives unpack to them, of a graph small enough to be checked by hand."""

import gzip

import numpy as np

from lightning_gnnload.data.datasets.ogb import OGB

# 5 nodes, 4 edges, among them a repeated one; node 3 has no label.
EDGES = np.array([[0, 1, 4, 4], [1, 2, 0, 0]])
FEATURES = np.arange(10, dtype=np.float32).reshape(5, 2) / 4
LABELS = np.array([[2.0], [0.0], [1.0], [np.nan], [2.0]])
SPLITS = {"train": [4, 0], "valid": [1], "test": [2]}


def write_csv(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join("" if value != value else str(value) for value in row) for row in np.atleast_2d(rows).tolist()]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def write_splits(home, kind: str) -> None:
    for name, ids in SPLITS.items():
        write_csv(home / "split" / kind / f"{name}.csv.gz", np.array(ids)[:, None])


def csv_folder(root, name="ogbn_arxiv", kind="time"):
    home = root / name
    write_csv(home / "raw" / "edge.csv.gz", EDGES.T)
    write_csv(home / "raw" / "node-feat.csv.gz", FEATURES)
    write_csv(home / "raw" / "node-label.csv.gz", LABELS)
    write_csv(home / "raw" / "num-node-list.csv.gz", [[5]])
    write_csv(home / "raw" / "num-edge-list.csv.gz", [[4]])
    write_splits(home, kind)
    return home


def npz_folder(root, name="ogbn_papers100M", kind="time", **changed):
    home = root / name
    (home / "raw").mkdir(parents=True)
    arrays = {
        "edge_index": EDGES,
        "node_feat": FEATURES,
        "node_year": np.full((5, 1), 2020),
        "num_nodes_list": np.array([5]),
        "num_edges_list": np.array([4]),
    }
    np.savez_compressed(home / "raw" / "data.npz", **(arrays | changed))
    np.savez_compressed(home / "raw" / "node-label.npz", node_label=LABELS.astype(np.float32))
    write_splits(home, kind)
    return home


def made(name: str, root, **settings):
    dataset = OGB(name, root, **settings)
    dataset.prepare()
    return dataset.load()
