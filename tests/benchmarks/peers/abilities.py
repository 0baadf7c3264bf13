"""What each library can do, by its documentation and code: the part of the table that is not measured."""

from __future__ import annotations

from lightning_gnnload import __version__

LIBRARIES = ("lightning_gnnload", "PyG's NeighborLoader", "GraphBolt", "DGL's DataLoader")
"""The columns of the table."""

ABILITIES = {
    "versions": (__version__, "2.8.1, pyg-lib 0.9.0", "dgl 2.1.0", "dgl 1.1.3"),
    "torch": ("2.3 and newer", "any", "up to 2.2.1", "any"),
    "types of nodes and edges": ("yes", "yes", "yes", "yes"),
    "times: no edge from a seed's future": ("yes", "yes", "yes", "no"),
    "links with negatives": ("yes", "yes", "yes", "yes"),
    "leaves out the edges that links ask about": ("yes", "no", "yes", "yes"),
    "the same mini-batches in every run": ("yes", "seeded", "no", "seeded"),
    "the same for any number of workers": ("yes", "no", "no", "no"),
    "resumes in mid-epoch": ("yes", "no", "no", "no"),
    "graph on disk, larger than memory": ("yes", "by stores of one's own", "features", "no"),
    "cache of hot features": ("CPU and GPU", "no", "GPU", "by hand"),
    "samples on GPUs": ("yes; run on one GPU so far", "no", "yes", "yes"),
    "Lightning": ("data module, strategy", "data modules", "no", "takes the loader"),
    "sampler ranks beside trainers": ("yes", "no", "no", "no"),
    "several machines": ("yes", "yes", "no", "yes"),
    "says where the time went": ("yes", "no", "no", "no"),
}
"""A row an ability: one answer for each of ``LIBRARIES``."""
