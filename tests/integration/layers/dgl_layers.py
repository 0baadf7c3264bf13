"""Every layer and message of DGL on our blocks: what it is given, and what it gives on DGL's own blocks.

The graph has loops, parallel edges and a seed without in-edges. Two layers of a kind are stacked on
the two blocks of a mini-batch; values, and gradients of parameters, features and edge columns, are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Any

import dgl
import dgl.function as fn
import dgl.nn.pytorch as nn
import torch
from torch.nn import Linear

from lightning_gnnload import GraphData, NeighborSampler, Sampler, ShadowSampler
from lightning_gnnload.adapters.dgl.write import ToDGL

N, E, WIDTH, TYPES, LONELY = 60, 300, 8, 3, 59
SEEDS = [7, 3, LONELY, 0]
OPERATIONS = [f"{a}_{name}_{b}" for a, b in permutations("uve", 2) for name in ("add", "sub", "mul", "div", "dot")]


VERSION = f"dgl {dgl.__version__}"
BATCHES = ("all neighbours", "drawn", "no edges")


@dataclass(frozen=True)
class Row:
    """Layers of one name.

    Attributes:
        variants: each makes one layer, WIDTH wide on both sides.
        inputs: names of what it takes after the block, in order; see :func:`_run`.
        graph: it takes a graph, whose nodes are sources and destinations, in place of a block.
        refuses_zero: it refuses destinations without in-edges, and cannot be told otherwise.
        ordered: what it computes depends on the order of a destination's edges.
    """

    variants: list[Callable[[], torch.nn.Module]]
    inputs: str = "feat"
    graph: bool = False
    refuses_zero: bool = False
    ordered: bool = False

    @property
    def given(self) -> str:
        names = {"feat": "h", "pair": "(h, h_dst)", "feat_dict": "{'_N': h}", "column": "h", "none": "None"}
        return ", ".join(["graph" if self.graph else "block", *(names.get(name, name) for name in self.inputs.split())])

    @property
    def remark(self) -> str:
        if self.ordered:
            return "reads edges in their order, which DGL's own sampler shuffles: held against `dgl.to_block`"
        return "refuses destinations without in-edges" if self.refuses_zero else ""


class Update(torch.nn.Module):
    """``update_all`` and ``apply_edges`` as a layer."""

    def __init__(self, message: Any, reduce: Any) -> None:
        super().__init__()
        self.message, self.reduce = message, reduce

    def forward(self, block: Any, feat: torch.Tensor, edge_feat: torch.Tensor) -> torch.Tensor:
        with block.local_scope():
            block.srcdata["h"], block.dstdata["h"], block.edata["e"] = feat, feat[: block.num_dst_nodes()], edge_feat
            block.update_all(self.message, self.reduce)
            return _tame(block.dstdata["out"])


class OfEdges(torch.nn.Module):
    """Something that is computed for each edge, and weighs its source."""

    def __init__(self, apply: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.apply_to = apply

    def forward(self, block: Any, feat: torch.Tensor, edge_feat: torch.Tensor) -> torch.Tensor:
        with block.local_scope():
            block.srcdata["h"], block.dstdata["h"], block.edata["e"] = feat, feat[: block.num_dst_nodes()], edge_feat
            block.edata["m"] = self.apply_to(block, edge_feat)
            block.update_all(fn.u_mul_e("h", "m", "m"), fn.sum("m", "out"))
            return _tame(block.dstdata["out"])


class NormedGraphConv(torch.nn.Module):
    """GraphConv with weights that EdgeWeightNorm has made of the block's."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.norm, self.conv = nn.EdgeWeightNorm(norm), nn.GraphConv(WIDTH, WIDTH, "none", allow_zero_in_degree=True)

    def forward(self, block: Any, feat: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
        return self.conv(block, feat, edge_weight=self.norm(block, edge_weight))


def _tame(out: torch.Tensor) -> torch.Tensor:
    """Neither huge nor near zero, as the next layer may divide by it."""
    return 1 + out.expand(-1, WIDTH).asinh().abs()


def _builtin(name: str) -> Any:
    fields = {"u": "h", "v": "h", "e": "e"}
    a, _, b = name.split("_")
    return getattr(fn, name)(fields[a], fields[b], "m")


def _message(edges: Any) -> dict[str, torch.Tensor]:
    return {"m": edges.src["h"] * edges.data["e"] - edges.dst["h"]}


def _reduce(nodes: Any) -> dict[str, torch.Tensor]:
    return {"out": nodes.mailbox["m"].prod(1)}


def _applied(message: Any) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def apply(block: Any, edge_feat: torch.Tensor) -> torch.Tensor:
        block.apply_edges(message)
        return block.edata["m"]

    return apply


COPIES = [fn.copy_u("h", "m"), fn.copy_e("e", "m")]
MESSAGES = [_message, *COPIES, *map(_builtin, OPERATIONS)]


def _updates(reductions: list[Any]) -> Row:
    return Row([lambda m=m, r=r: Update(m, r) for m, r in product(MESSAGES, reductions)], "feat edge_feat")


ROWS = {
    "AGNNConv": Row([lambda: nn.AGNNConv(allow_zero_in_degree=True)]),
    "APPNPConv": Row([lambda: nn.APPNPConv(2, 0.1)], graph=True),
    "AtomicConv": Row(
        [lambda: nn.AtomicConv(torch.full((WIDTH,), 2.0), torch.rand(WIDTH), torch.rand(WIDTH))],
        "column distance",
        graph=True,
    ),
    "CFConv": Row([lambda: nn.CFConv(WIDTH, WIDTH, 4, WIDTH)], "pair edge_feat"),
    "ChebConv": Row([lambda: nn.ChebConv(WIDTH, WIDTH, 2)], "feat lambda_max", graph=True),
    "DGNConv": Row(
        [lambda: nn.DGNConv(WIDTH, WIDTH, ["dir1-av", "mean"], ["identity"], 2.5)], "feat none eig", graph=True
    ),
    "DotGatConv": Row([lambda: nn.DotGatConv(WIDTH, 4, 2, allow_zero_in_degree=True)]),
    "EGATConv": Row([lambda: nn.EGATConv(WIDTH, WIDTH, 4, 2, 2)], "pair edge_feat", refuses_zero=True),
    "EGNNConv": Row([lambda: nn.EGNNConv(WIDTH, 4, WIDTH, WIDTH)], "feat pos edge_feat", graph=True),
    "EdgeConv": Row([lambda: nn.EdgeConv(WIDTH, WIDTH, allow_zero_in_degree=True)]),
    "EdgeGATConv": Row([lambda: nn.EdgeGATConv(WIDTH, WIDTH, 4, 2, allow_zero_in_degree=True)], "feat edge_feat"),
    "EdgeWeightNorm": Row([lambda norm=norm: NormedGraphConv(norm) for norm in ("right", "both")], "feat edge_weight"),
    "GATConv": Row([lambda: nn.GATConv(WIDTH, 4, 2, allow_zero_in_degree=True)]),
    "GATv2Conv": Row([lambda: nn.GATv2Conv(WIDTH, 4, 2, allow_zero_in_degree=True)]),
    "GCN2Conv": Row([lambda: nn.GCN2Conv(WIDTH, 1, allow_zero_in_degree=True)], "feat feat_0", graph=True),
    "GINConv": Row([lambda kind=kind: nn.GINConv(Linear(WIDTH, WIDTH), kind) for kind in ("sum", "mean", "max")]),
    "GINEConv": Row([lambda: nn.GINEConv(Linear(WIDTH, WIDTH))], "feat edge_feat"),
    "GMMConv": Row([lambda: nn.GMMConv(WIDTH, WIDTH, WIDTH, 2, allow_zero_in_degree=True)], "feat edge_feat"),
    "GatedGraphConv": Row([lambda: nn.GatedGraphConv(WIDTH, WIDTH, 2, TYPES)], "feat edge_type", graph=True),
    "GraphConv": Row(
        [
            lambda norm=norm: nn.GraphConv(WIDTH, WIDTH, norm, allow_zero_in_degree=True)
            for norm in ("both", "left", "right", "none")
        ]
    ),
    "GraphConv, weighted": Row(
        [lambda: nn.GraphConv(WIDTH, WIDTH, "none", allow_zero_in_degree=True)], "feat none edge_weight"
    ),
    "GroupRevRes": Row([lambda: nn.GroupRevRes(nn.SAGEConv(WIDTH // 2, WIDTH // 2, "mean"), 2)], graph=True),
    "HGTConv": Row([lambda: nn.HGTConv(WIDTH, 4, 2, 2, TYPES, dropout=0)], "feat node_type edge_type"),
    "HeteroGraphConv": Row([lambda: nn.HeteroGraphConv({"_E": nn.SAGEConv(WIDTH, WIDTH, "mean")})], "feat_dict"),
    "NNConv": Row([lambda: nn.NNConv(WIDTH, WIDTH, Linear(WIDTH, WIDTH * WIDTH), "mean")], "feat edge_feat"),
    "PNAConv": Row(
        [
            lambda: nn.PNAConv(
                WIDTH, WIDTH, ["mean", "max", "sum"], ["identity", "amplification"], 2.5, edge_feat_size=WIDTH
            )
        ],
        "feat edge_feat",
        graph=True,
    ),
    "RelGraphConv": Row(
        [lambda kind=kind: nn.RelGraphConv(WIDTH, WIDTH, TYPES, kind, kind and 2) for kind in (None, "basis", "bdd")],
        "feat edge_type",
    ),
    "SAGEConv": Row([lambda kind=kind: nn.SAGEConv(WIDTH, WIDTH, kind) for kind in ("mean", "gcn", "pool")]),
    "SAGEConv, lstm": Row([lambda: nn.SAGEConv(WIDTH, WIDTH, "lstm")], ordered=True),
    "SAGEConv, weighted": Row([lambda: nn.SAGEConv(WIDTH, WIDTH, "mean")], "feat edge_weight"),
    "SGConv": Row([lambda: nn.SGConv(WIDTH, WIDTH, 2, allow_zero_in_degree=True)], graph=True),
    "TAGConv": Row([lambda: nn.TAGConv(WIDTH, WIDTH)], graph=True),
    "TWIRLSConv": Row([lambda: nn.TWIRLSConv(WIDTH, WIDTH, WIDTH, 2)], graph=True),
    "TWIRLSUnfoldingAndAttention": Row([lambda: nn.TWIRLSUnfoldingAndAttention(WIDTH, 0.1, 0.1, 2)], graph=True),
    "`update_all(message, fn.sum or fn.mean)`": _updates([fn.sum("m", "out"), fn.mean("m", "out")]),
    "`update_all(message, fn.max or fn.min)`": _updates([fn.max("m", "out"), fn.min("m", "out")]),
    "`update_all(message, reduce)`, a function of one's own": _updates([_reduce]),
    "`apply_edges(message)`": Row(
        [lambda m=m: OfEdges(_applied(m)) for m in MESSAGES if m not in COPIES], "feat edge_feat"
    ),
    "`edge_softmax`, by destination or source": Row(
        [lambda by=by: OfEdges(lambda g, e: nn.edge_softmax(g, e, norm_by=by)) for by in ("dst", "src")],
        "feat edge_feat",
    ),
}
NOT_FED = {
    "CuGraphGATConv": "needs pylibcugraphops, on a GPU",
    "CuGraphRelGraphConv": "needs pylibcugraphops, on a GPU",
    "CuGraphSAGEConv": "needs pylibcugraphops, on a GPU",
    "DenseChebConv": "takes a dense adjacency matrix, no graph",
    "DenseGraphConv": "takes a dense adjacency matrix, no graph",
    "DenseSAGEConv": "takes a dense adjacency matrix, no graph",
}


@cache
def graph() -> Any:
    """59, a seed, has no edges, all other nodes have some; the last two edges are parallel, and loops."""
    torch.manual_seed(0)
    src = torch.randint(N - 1, (E,))
    dst = torch.cat([torch.arange(N - 1), torch.randint(N - 1, (E - N + 1,))])
    src[-2:] = dst[-2:] = 7
    made = dgl.graph((src, dst), num_nodes=N)
    made.ndata.update(feat=torch.rand(N, WIDTH) + 0.5, pos=torch.rand(N, 3), eig=torch.rand(N, 1))
    made.ndata["node_type"] = torch.randint(2, (N,))
    made.edata.update(edge_feat=torch.rand(E, WIDTH) + 0.5, edge_weight=torch.rand(E) + 0.5, distance=torch.rand(E, 1))
    made.edata["edge_type"] = torch.randint(TYPES, (E,))
    for column in (made.ndata["feat"], made.edata["edge_feat"], made.edata["edge_weight"]):
        column.requires_grad_()
    return made


def _ours(sampler: Sampler, seeds: list[int]) -> list[Any]:
    data = GraphData.from_dgl(graph())
    return ToDGL(graph=data.graph)(sampler.sample(data.graph, seeds, seed=1))[2]


def batches(row: Row) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Mini-batches as ``(what it is, our blocks, DGL's own)``."""
    if row.graph:
        for what, fanouts, seeds in ((BATCHES[0], -1, SEEDS), (BATCHES[1], 2, SEEDS), (BATCHES[2], -1, [LONELY])):
            block = _ours(ShadowSampler([fanouts] * 2, num_layers=2, edge_ids=True), seeds)[0]
            ours = dgl.graph(block.edges(), num_nodes=block.num_src_nodes())
            ours.ndata[dgl.NID], ours.edata[dgl.EID] = block.srcdata[dgl.NID], block.edata[dgl.EID]
            yield what, [ours] * 2, [dgl.node_subgraph(graph(), ours.ndata[dgl.NID])] * 2
        return
    seeds = [seed for seed in SEEDS if seed != LONELY or not row.refuses_zero]
    full = _ours(NeighborSampler([-1, -1], edge_ids=True), seeds)
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2)
    yield BATCHES[0], full, theirs(full) if row.ordered else sampler.sample_blocks(graph(), torch.tensor(seeds))[2]
    drawn = _ours(NeighborSampler([3, 3], replace=True, edge_ids=True), seeds)
    yield BATCHES[1], drawn, theirs(drawn)
    bare = _ours(NeighborSampler([2, 2], edge_ids=True), [LONELY])
    yield BATCHES[2], bare, theirs(bare)


def theirs(ours: list[Any]) -> list[Any]:
    """Blocks that DGL makes of the edges of ours, as its samplers do."""
    made: list[Any] = []
    nodes = ours[-1].dstdata[dgl.NID]
    for block in reversed(ours):
        u, v = block.edges()
        frontier = dgl.graph((block.srcdata[dgl.NID][u], block.dstdata[dgl.NID][v]), num_nodes=N)
        made.insert(0, dgl.to_block(frontier, nodes))
        columns = {name: column[made[0].edata[dgl.EID]] for name, column in block.edata.items()}
        made[0].edata.update(columns)
        nodes = made[0].srcdata[dgl.NID]
    return made


def outcome(layers: list[torch.nn.Module], row: Row, blocks: list[Any]) -> list[torch.Tensor]:
    """What two layers make of the seeds, and the gradients of all that it depends on."""
    whole = graph()
    h = whole.ndata["feat"][blocks[0].srcdata[dgl.NID]]
    for layer, block in zip(layers, blocks, strict=True):
        given = {name: column[block.srcdata[dgl.NID]] for name, column in whole.ndata.items()}
        given |= {name: column[block.edata[dgl.EID]] for name, column in whole.edata.items()}
        given |= {"feat_0": given["feat"], "feat": h, "pair": (h, h[: block.num_dst_nodes()]), "feat_dict": {"_N": h}}
        given |= {"column": h.mean(1, keepdim=True), "lambda_max": [2.0], "none": None}
        out = layer(block, *(given[name] for name in row.inputs.split()))
        h = (out["_N"] if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out).flatten(1)
    h = h[: len(SEEDS)]  # of a graph, the other nodes follow
    leaves = [*layers[0].parameters(), *layers[1].parameters()]
    leaves += [whole.ndata["feat"], whole.edata["edge_feat"], whole.edata["edge_weight"]]
    for leaf in leaves:
        leaf.grad = None
    value = h.detach().clone()  # GroupRevRes frees its output when gradients are computed
    (h * torch.arange(1.0, h.numel() + 1).view(h.shape).cos()).sum().backward()
    return [value, *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)]
