"""Folders as OGB's archives unpack to them, of a graph small enough to be checked by hand."""

import gzip

import numpy as np
import torch

from lightning_gnnload.datasets.ogb import OGB

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


# Three papers, two authors; author 1 wrote nothing. Papers cite papers, and have years and labels.
TYPED_EDGES = {
    ("author", "writes", "paper"): np.array([[0, 0, 0], [2, 0, 2]]),
    ("paper", "cites", "paper"): np.array([[0, 1], [1, 2]]),
}
TYPED_NODES = {"author": 2, "paper": 3}
TYPED_YEARS, TYPED_LABELS = np.array([[2010], [2012], [2014]]), np.array([[3], [5], [1]])


def typed_csv_folder(root, name="ogbn_mag", kind="time", labels=True):
    raw = root / name / "raw"
    write_csv(raw / "num-node-dict.csv.gz", [list(TYPED_NODES), list(TYPED_NODES.values())])
    write_csv(raw / "triplet-type-list.csv.gz", [list(each) for each in reversed(TYPED_EDGES)])
    for number, (triple, ends) in enumerate(TYPED_EDGES.items()):
        folder = raw / "relations" / "___".join(triple)
        write_csv(folder / "edge.csv.gz", ends.T)
        write_csv(folder / "num-edge-list.csv.gz", [[ends.shape[1]]])
        write_csv(folder / "edge_reltype.csv.gz", np.full((ends.shape[1], 1), number))
    write_csv(raw / "nodetype-has-feat.csv.gz", [["author", "paper"], [False, True]])
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", FEATURES[:3])
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", TYPED_YEARS)
    if labels:
        write_csv(raw / "nodetype-has-label.csv.gz", [["author", "paper"], [False, True]])
        write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", TYPED_LABELS)
        write_csv(root / name / "split" / kind / "nodetype-has-split.csv.gz", [["author", "paper"], [False, True]])
        for split, ids in (("train", [2]), ("valid", [0]), ("test", [1])):
            write_csv(root / name / "split" / kind / "paper" / f"{split}.csv.gz", np.array(ids)[:, None])
    return root / name


def typed_npz_folder(root, name="ogbn_mag"):
    home = typed_csv_folder(root, name)
    for file in [*(home / "raw").rglob("*.csv.gz")]:
        file.unlink()
    edges = {"___".join(triple): ends for triple, ends in TYPED_EDGES.items()}
    counts = {key: np.array([ends.shape[1]]) for key, ends in edges.items()}
    columns = {key: np.full((ends.shape[1], 1), number) for number, (key, ends) in enumerate(edges.items())}
    arrays = {
        "num_nodes_dict": {key: np.array([count]) for key, count in TYPED_NODES.items()},
        "num_edges_dict": counts,
        "edge_index_dict": edges,
        "edge_reltype": columns,
        "node_feat_dict": {"paper": FEATURES[:3]},
        "node_year": {"paper": TYPED_YEARS},
        "node-label": {"paper": TYPED_LABELS},
    }
    for file, held in arrays.items():
        np.savez_compressed(home / "raw" / f"{file}.npz", **held)
    return home


def link_folder(root, name, kind, splits, **columns):
    """The graph of five nodes with splits of links, ``torch.save``'s, and further columns of its edges."""
    home = csv_folder(root, name, kind)
    (home / "raw" / "node-label.csv.gz").unlink()
    for file, rows in columns.items():
        write_csv(home / "raw" / f"{file}.csv.gz", np.array(rows)[:, None])
    for split, held in splits.items():
        torch.save(held, home / "split" / kind / f"{split}.pt")
    return home


def made(name: str, root, **settings):
    dataset = OGB(name, root, **settings)
    dataset.prepare()
    return dataset.load()
