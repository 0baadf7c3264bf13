"""Data sets of DGL's examples, which would be downloaded: graphs with communities, small, and the same in every run.

A node's class is its community, and features tell it only dimly; two in three edges stay within a community. So who
draws neighbours wrongly has a lower metric.
"""

from __future__ import annotations

from typing import Any

import dgl
import dgl.data
import dgl.data.rdf
import ogb.linkproppred
import ogb.nodeproppred
import torch

NODES, EDGES, CLASSES, WIDTH = 1500, 9000, 5, 16


def community_graph() -> tuple[Any, torch.Tensor]:
    """Returns a graph with ``feat``, and the class of each node, int64 ``[N]``."""
    draw = torch.Generator().manual_seed(0)
    label = torch.randint(CLASSES, (NODES,), generator=draw)
    members = [(label == number).nonzero().view(-1) for number in range(CLASSES)]
    src = torch.randint(NODES, (EDGES,), generator=draw)
    dst = torch.randint(NODES, (EDGES,), generator=draw)
    inside = torch.rand(EDGES, generator=draw) < 2 / 3
    for number, nodes in enumerate(members):
        at = (inside & (label[src] == number)).nonzero().view(-1)
        dst[at] = nodes[torch.randint(len(nodes), (len(at),), generator=draw)]
    is_edge = src != dst
    src, dst = src[is_edge], dst[is_edge]
    g = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=NODES)
    centers = torch.randn(CLASSES, WIDTH, generator=draw)
    g.ndata["feat"] = 0.3 * centers[label] + torch.randn(NODES, WIDTH, generator=draw)
    return g, label


def split() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the nodes of training, validation and test."""
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))
    return order[:600], order[600:900], order[900:]


class NodePropPred:
    """``DglNodePropPredDataset``, and ``AsNodePredDataset`` of one."""

    num_classes = CLASSES

    def __init__(self, *_: Any, **__: Any) -> None:
        self.train_idx, self.val_idx, self.test_idx = split()

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        return {"train": self.train_idx, "valid": self.val_idx, "test": self.test_idx}

    def __getitem__(self, _: int) -> Any:
        g, label = community_graph()
        return g, label[:, None]


class AsNodePred(NodePropPred):
    """The graph with its labels."""

    def __getitem__(self, _: int) -> Any:
        g, label = community_graph()
        g.ndata["label"] = label
        return g


class Masked(NodePropPred):
    """One of DGL's own data sets, with masks."""

    def __getitem__(self, _: int) -> Any:
        g, label = community_graph()
        g.ndata["label"] = label
        for name, nodes in zip(("train_mask", "val_mask", "test_mask"), split(), strict=True):
            g.ndata[name] = torch.zeros(NODES, dtype=torch.bool).index_fill_(0, nodes, True)
        return g


class LinkPropPred:
    """``DglLinkPropPredDataset``: the edges of one way; half of the last tenth for validation, half for test."""

    def __init__(self, *_: Any, **__: Any) -> None:
        whole, _label = community_graph()
        src, dst = whole.edges()
        half = len(src) // 2
        order = torch.randperm(half, generator=torch.Generator().manual_seed(2))
        self._kept, self._held = order[: half * 9 // 10], order[half * 9 // 10 :]
        self._ends, self._feat = (src[:half], dst[:half]), whole.ndata["feat"]

    def __getitem__(self, _: int) -> Any:
        pairs = torch.stack([end[self._kept] for end in self._ends], dim=1)
        pairs = torch.unique(pairs.sort(dim=1).values, dim=0)  # to_bidirected_with_reverse_mapping wants each once
        g = dgl.graph((pairs[:, 0], pairs[:, 1]), num_nodes=NODES)
        g.ndata["feat"] = self._feat
        return g

    def get_edge_split(self) -> dict[str, dict[str, torch.Tensor]]:
        draw, parts = torch.Generator().manual_seed(3), self._held.chunk(2)
        return {
            name: {
                "source_node": self._ends[0][part],
                "target_node": self._ends[1][part],
                "target_node_neg": torch.randint(NODES, (len(part), 50), generator=draw),
            }
            for name, part in zip(("valid", "test"), parts, strict=True)
        }


class Entities:
    """``AIFBDataset``: people of communities, who write papers of theirs, and groups that they belong to."""

    predict_category, num_classes = "person", 3

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getitem__(self, _: int) -> Any:
        draw, people, papers = torch.Generator().manual_seed(0), 400, 300
        label, topic = torch.arange(people) % 3, torch.arange(papers) % 3
        person = torch.randint(people, (2400,), generator=draw)
        paper = torch.randint(papers, (2400,), generator=draw)
        inside = torch.rand(2400, generator=draw) < 0.6
        paper = torch.where(inside, (paper // 3 * 3 + label[person]) % papers, paper)
        assert bool((topic[paper[inside]] == label[person[inside]]).all())
        group = (torch.arange(people) // 3 * 3 + label) % 30
        g = dgl.heterograph(
            {
                ("person", "writes", "paper"): (person, paper),
                ("paper", "rev-writes", "person"): (paper, person),
                ("person", "in", "group"): (torch.arange(people), group),
                ("group", "rev-in", "person"): (group, torch.arange(people)),
            }
        )
        order = torch.randperm(people, generator=draw)
        for name, nodes in (("train_mask", order[:200]), ("test_mask", order[200:])):
            g.nodes["person"].data[name] = torch.zeros(people, dtype=torch.bool).index_fill_(0, nodes, True)
        g.nodes["person"].data["labels"] = label
        return g


def put_in_place() -> None:
    """Where the examples import data sets from, there are these."""
    ogb.nodeproppred.DglNodePropPredDataset = NodePropPred
    ogb.linkproppred.DglLinkPropPredDataset = LinkPropPred
    dgl.data.AsNodePredDataset = AsNodePred
    dgl.data.RedditDataset = Masked
    dgl.data.rdf.AIFBDataset = Entities
