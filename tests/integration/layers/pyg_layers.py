"""Every convolution of PyG on our Data: what it is given, and what it gives on the whole graph.

The graph has loops, parallel edges and a seed without in-edges. Two layers of a kind are stacked; values at the seeds,
and gradients of parameters, features and edge columns, are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch_geometric.nn as nn
from torch.nn import Linear, Module
from torch_geometric import __version__
from torch_geometric.data import Data

from lightning_gnnload import GraphData, NeighborSampler
from lightning_gnnload.adapters.pyg.write import to_pyg

N, E, WIDTH, TYPES, LONELY = 500, 900, 8, 2, 499
SEEDS = [7, 3, LONELY, 0]
METADATA = (["n"], [("n", "0", "n"), ("n", "1", "n")])


VERSION = f"torch_geometric {__version__}"
FEWER_HOPS = "fewer hops than are needed"
BATCHES = ("whole graph", "drawn", "no edges")


@dataclass(frozen=True)
class Row:
    """Layers of one name.

    Attributes:
        variants: each makes one layer, WIDTH wide on both sides.
        inputs: names of what it takes, in order; see :func:`outcome`.
        hops: hops that two layers need to equal the whole graph at the seeds; None where none suffice.
        why: the reason for more than two hops, or for none.
        both_ways: only on a graph with every edge in both directions.
    """

    variants: list[Callable[[], Module]]
    inputs: str = "x edge_index"
    hops: int | None = 2
    why: str = ""
    both_ways: bool = False

    @property
    def given(self) -> str:
        return ", ".join(self.inputs.split())

    @property
    def remark(self) -> str:
        if self.hops == 2 or self.hops is None:
            return self.why
        return f"{self.hops} hops{' of edges in both directions' * self.both_ways}: {self.why}"


def _mlp(inputs: int, outputs: int = WIDTH) -> Module:
    return torch.nn.Sequential(Linear(inputs, outputs), torch.nn.ELU())


def _pna() -> Module:
    return nn.PNAConv(WIDTH, WIDTH, ["mean", "max", "std"], ["identity", "amplification"], DEGREES, edge_dim=4)


DEGREES = torch.ones(10, dtype=torch.long)  # how many nodes of the training set have each in-degree
WEIGHTED, ATTRIBUTED, OF_TYPES = "x edge_index edge_weight", "x edge_index edge_attr", "x edge_index edge_type"
ONE_MORE, TWO_EACH = "reads the in-degrees of sources", "K = 2 hops a layer"
BOTH = f"{TWO_EACH}; {ONE_MORE}"
OUT_DEGREES, OUT_EDGES = "reads out-degrees", "reads out-edges"
ROWS = {
    "AGNNConv": Row([lambda: nn.AGNNConv()]),
    "APPNP": Row([lambda: nn.APPNP(2, 0.1)], WEIGHTED, 5, BOTH),
    "ARMAConv": Row([lambda: nn.ARMAConv(WIDTH, WIDTH, 2, 2)], WEIGHTED, 5, BOTH),
    "AntiSymmetricConv": Row([lambda: nn.AntiSymmetricConv(WIDTH, num_iters=2)], "x edge_index", 4, TWO_EACH),
    "CGConv": Row([lambda: nn.CGConv(WIDTH, 4)], ATTRIBUTED),
    "ChebConv": Row([lambda: nn.ChebConv(WIDTH, WIDTH, 2)], WEIGHTED, 4, OUT_DEGREES, both_ways=True),
    "ClusterGCNConv": Row([lambda: nn.ClusterGCNConv(WIDTH, WIDTH)]),
    "DNAConv": Row([lambda: nn.DNAConv(WIDTH, 2)], "history edge_index edge_weight", 3, ONE_MORE),
    "DirGNNConv": Row([lambda: nn.DirGNNConv(nn.SAGEConv(WIDTH, WIDTH))], hops=3, why=OUT_EDGES, both_ways=True),
    "EGConv": Row([lambda: nn.EGConv(WIDTH, WIDTH, ["sum", "max", "symnorm"], 2)], hops=3, why=ONE_MORE),
    "EdgeConv": Row([lambda: nn.EdgeConv(_mlp(2 * WIDTH))]),
    "FAConv": Row([lambda: nn.FAConv(WIDTH)], "x x_0 edge_index", 3, ONE_MORE),
    "FastRGCNConv": Row([lambda: nn.FastRGCNConv(WIDTH, WIDTH, TYPES, 2)], OF_TYPES),
    "FeaStConv": Row([lambda: nn.FeaStConv(WIDTH, WIDTH, 2)]),
    "FiLMConv": Row([lambda: nn.FiLMConv(WIDTH, WIDTH, TYPES)], OF_TYPES),
    "GATConv": Row([lambda: nn.GATConv(WIDTH, 4, 2, edge_dim=4)], ATTRIBUTED),
    "GATv2Conv": Row([lambda: nn.GATv2Conv(WIDTH, 4, 2, edge_dim=4)], ATTRIBUTED),
    "GCN2Conv": Row([lambda: nn.GCN2Conv(WIDTH, 0.1)], "x x_0 edge_index edge_weight", 3, ONE_MORE),
    "GCNConv": Row([lambda: nn.GCNConv(WIDTH, WIDTH)], WEIGHTED, 3, ONE_MORE),
    "GCNConv, normalize=False": Row([lambda: nn.GCNConv(WIDTH, WIDTH, normalize=False)], WEIGHTED),
    "GENConv": Row([lambda: nn.GENConv(WIDTH, WIDTH, norm="layer", edge_dim=4)], ATTRIBUTED),
    "GINConv": Row([lambda: nn.GINConv(_mlp(WIDTH))]),
    "GINEConv": Row([lambda: nn.GINEConv(_mlp(WIDTH), edge_dim=4)], ATTRIBUTED),
    "GMMConv": Row([lambda: nn.GMMConv(WIDTH, WIDTH, 4, 2)], ATTRIBUTED),
    "GPSConv": Row(
        [lambda: nn.GPSConv(WIDTH, nn.SAGEConv(WIDTH, WIDTH), 2, norm=None)], hops=None, why="attends to all nodes"
    ),
    "GatedGraphConv": Row([lambda: nn.GatedGraphConv(WIDTH, 2)], WEIGHTED, 4, TWO_EACH),
    "GeneralConv": Row([lambda: nn.GeneralConv(WIDTH, WIDTH, 4, heads=2, attention=True)], ATTRIBUTED),
    "GraphConv": Row([lambda aggr=aggr: nn.GraphConv(WIDTH, WIDTH, aggr) for aggr in ("add", "max")], WEIGHTED),
    "HANConv": Row(
        [lambda: nn.HANConv(WIDTH, WIDTH, METADATA, 2)],
        "x_dict edge_index_dict",
        None,
        "weighs types by a mean over all nodes",
    ),
    "HEATConv": Row(
        [lambda: nn.HEATConv(WIDTH, 4, 2, TYPES, 4, 4, 4, 2)], "x edge_index node_type edge_type edge_attr"
    ),
    "HGTConv": Row([lambda: nn.HGTConv(WIDTH, WIDTH, METADATA, 2)], "x_dict edge_index_dict"),
    "HeteroConv": Row(
        [lambda: nn.HeteroConv({kind: nn.SAGEConv(WIDTH, WIDTH) for kind in METADATA[1]})], "x_dict edge_index_dict"
    ),
    "LEConv": Row([lambda: nn.LEConv(WIDTH, WIDTH)], WEIGHTED),
    "LGConv": Row([lambda: nn.LGConv()], WEIGHTED, 3, ONE_MORE),
    "MFConv": Row([lambda: nn.MFConv(WIDTH, WIDTH)]),
    "MixHopConv": Row([lambda: nn.MixHopConv(WIDTH, WIDTH // 2, [0, 2])], WEIGHTED, 5, BOTH),
    "NNConv": Row([lambda: nn.NNConv(WIDTH, WIDTH, Linear(4, WIDTH * WIDTH), "mean")], ATTRIBUTED),
    "PDNConv": Row([lambda: nn.PDNConv(WIDTH, WIDTH, 4, 4)], ATTRIBUTED, 3, ONE_MORE),
    "PNAConv": Row([_pna], ATTRIBUTED),
    "PPFConv": Row([lambda: nn.PPFConv(_mlp(WIDTH + 4), _mlp(WIDTH))], "x pos normal edge_index"),
    "PointGNNConv": Row([lambda: nn.PointGNNConv(_mlp(WIDTH, 3), _mlp(WIDTH + 3), _mlp(WIDTH))], "x pos edge_index"),
    "PointNetConv": Row([lambda: nn.PointNetConv(_mlp(WIDTH + 3), _mlp(WIDTH))], "x pos edge_index"),
    "PointTransformerConv": Row([lambda: nn.PointTransformerConv(WIDTH, WIDTH)], "x pos edge_index"),
    "RGATConv": Row([lambda: nn.RGATConv(WIDTH, 4, TYPES, heads=2, edge_dim=4)], f"{OF_TYPES} edge_attr"),
    "RGCNConv": Row(
        [
            lambda kind=kind: nn.RGCNConv(WIDTH, WIDTH, TYPES, **kind)
            for kind in ({}, {"num_bases": 2}, {"num_blocks": 2})
        ],
        OF_TYPES,
    ),
    "ResGatedGraphConv": Row([lambda: nn.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=4)], ATTRIBUTED),
    "SAGEConv": Row([lambda aggr=aggr: nn.SAGEConv(WIDTH, WIDTH, aggr) for aggr in ("mean", "max", "add", "std")]),
    "SAGEConv, median": Row([lambda: nn.SAGEConv(WIDTH, WIDTH, "median")]),
    "SGConv": Row([lambda: nn.SGConv(WIDTH, WIDTH, 2)], WEIGHTED, 5, BOTH),
    "SSGConv": Row([lambda: nn.SSGConv(WIDTH, WIDTH, 0.1, 2)], WEIGHTED, 5, BOTH),
    "SignedConv": Row([lambda: nn.SignedConv(WIDTH, WIDTH // 2, True)], "x edge_index_0 edge_index_1"),
    "SimpleConv": Row([lambda: nn.SimpleConv("mean", "self_loop")], WEIGHTED),
    "SuperGATConv": Row([lambda: nn.SuperGATConv(WIDTH, 4, 2)]),
    "TAGConv": Row([lambda: nn.TAGConv(WIDTH, WIDTH, 2)], WEIGHTED, 5, BOTH),
    "TransformerConv": Row([lambda: nn.TransformerConv(WIDTH, 4, 2, edge_dim=4)], ATTRIBUTED),
    "WLConv": Row([lambda: nn.WLConv()], "colour edge_index"),
    "WLConvContinuous": Row([lambda: nn.WLConvContinuous()], WEIGHTED),
}
NOT_FED = {
    "CuGraphGATConv": "needs pylibcugraphops, on a GPU",
    "CuGraphRGCNConv": "needs pylibcugraphops, on a GPU",
    "CuGraphSAGEConv": "needs pylibcugraphops, on a GPU",
    "DynamicEdgeConv": "makes its own edges, to nearest neighbours; needs torch-cluster",
    "FusedGATConv": "needs dgNN, on a GPU",
    "GravNetConv": "makes its own edges, to nearest neighbours; needs torch-cluster",
    "HypergraphConv": "takes hyperedges, not edges",
    "MeshCNNConv": "takes the edges of a mesh as nodes, with exactly four neighbours each",
    "MessagePassing": "the base class",
    "PANConv": "needs torch-sparse",
    "SplineConv": "needs torch-spline-conv",
    "XConv": "makes its own edges, to nearest neighbours; needs torch-cluster",
}


@cache
def graph(both_ways: bool) -> Data:
    """499, a seed, has no in-edges, other nodes have few; the last two edges are parallel, and loops."""
    torch.manual_seed(0)
    src, dst = torch.randint(N - 1, (E,)), torch.randint(N - 1, (E,))
    src[-2:] = dst[-2:] = SEEDS[0]
    if both_ways:
        half = E // 2
        src, dst = torch.cat([src[half:], dst[half:]]), torch.cat([dst[half:], src[half:]])
    made = Data(torch.rand(N, WIDTH) + 0.5, torch.stack([src, dst]), torch.rand(E, 4) + 0.5)
    made.edge_weight, made.edge_type = torch.rand(E) + 0.5, torch.randint(TYPES, (E,))
    made.pos, made.normal, made.node_type = torch.rand(N, 3), torch.rand(N, 3), torch.randint(2, (N,))
    made.n_id, made.e_id = torch.arange(N), torch.arange(E)
    return made


def sampled(whole: Data, fanouts: list[int], seeds: list[int], replace: bool = False) -> Data:
    data = GraphData.from_pyg(whole).graph
    sampler = NeighborSampler(fanouts, replace=replace, expand="new", edge_ids=True)
    return to_pyg(sampler.sample(data, seeds, seed=1), data)


def same_edges(whole: Data, ours: Data) -> Data:
    """What PyG makes of the nodes and edges of ours, in the order of the whole graph."""
    kept = torch.zeros(N, dtype=torch.bool)
    kept[ours.n_id] = True
    return whole.edge_subgraph(ours.e_id.sort().values).subgraph(kept)


def batches(row: Row) -> Iterator[tuple[str, Data, Data]]:
    """Mini-batches as ``(what it is, our Data, PyG's)``."""
    whole = graph(row.both_ways)
    if row.hops:
        yield BATCHES[0], sampled(whole, [-1] * row.hops, SEEDS), whole
    if row.hops != 2:
        yield FEWER_HOPS, sampled(whole, [-1] * (row.hops - 1 if row.hops else 4), SEEDS), whole
    drawn = sampled(whole, [3, 3], SEEDS, replace=True)
    yield BATCHES[1], drawn, same_edges(whole, drawn)
    bare = sampled(whole, [2, 2], [LONELY])
    yield BATCHES[2], bare, same_edges(whole, bare)


def outcome(layers: list[Module], row: Row, data: Data) -> list[torch.Tensor]:
    """What two layers make of the seeds, and the gradients of all that it depends on."""
    whole = graph(row.both_ways)
    leaves = [whole.x, whole.edge_attr, whole.edge_weight]
    for leaf in leaves:
        leaf.grad = None
        leaf.requires_grad_()
    given = {name: whole[name][data.n_id] for name in ("x", "pos", "normal", "node_type")}
    given |= {name: whole[name][data.e_id] for name in ("edge_attr", "edge_weight", "edge_type")}
    given |= {"edge_index": data.edge_index, "x_0": given["x"], "colour": given["node_type"]}
    for kind in range(TYPES):
        given[f"edge_index_{kind}"] = data.edge_index[:, given["edge_type"] == kind]
    given["edge_index_dict"] = {kind: given[f"edge_index_{kind[1]}"] for kind in METADATA[1]}
    given["history"] = given["x"][:, None]
    for layer in layers:
        given["x_dict"] = {"n": given["x"]}
        out = layer(*(given[name] for name in row.inputs.split()))
        out = out["n"] if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out
        given["colour"], given["x"] = out, out.flatten(1) if out.dim() > 1 else out
        given["history"] = torch.cat([given["history"], given["x"][:, None]], 1) if out.dim() > 1 else None
    h = given["x"][[data.n_id.tolist().index(seed) for seed in SEEDS if seed in data.n_id]]
    if not h.requires_grad:
        return [h]
    for layer in layers:
        layer.zero_grad()
    (h * torch.arange(1.0, h.numel() + 1).view(h.shape).cos()).sum().backward()
    leaves += [parameter for layer in layers for parameter in layer.parameters()]
    return [h, *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in leaves)]
