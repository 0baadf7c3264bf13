"""DGL's samplers of blocks and subgraphs, drawn by our kernels, as a pure function of their seeds and a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dgl
import numpy as np
import torch
from torch.utils.data import get_worker_info

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.dgl.blocks import blocks_of, subgraph_of
from lightning_gnnload.dgl.graphs import canonical_type, drawn_graph, is_typed
from lightning_gnnload.errors import SamplerConfigError, SamplerUnsupportedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.checks import as_integer, as_list
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.labor import LaborSampler as OurLaborSampler
from lightning_gnnload.sample.neighbor import NeighborSampler as OurNeighborSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler


class KernelSampler:
    """What our samplers do otherwise than DGL's, beside which each of them inherits it: our kernels draw.

    In our :class:`.DataLoader` a mini-batch is a pure function of (graph, settings, seed, epoch, step, seeds). Where
    DGL's own code calls :meth:`sample`, its draws depend on the seeds and, with worker processes, on the seed of their
    epoch, which ``torch.manual_seed`` decides; without them, on how many were sampled before.

    Graphs that do not lie in this process's host memory are left to DGL's sampler of the same name.
    """

    fanouts: Any
    prob: str | None
    yields_blocks = True
    _num_sampled = 0

    def inner(self, g: Any) -> Sampler:
        """Makes the sampler that draws, of the settings as they are now; raises SamplerConfigError for bad ones."""
        raise NotImplementedError

    def graph_of(self, g: Any) -> Graph:
        """Returns the graph that is drawn from."""
        return drawn_graph(g, self.prob)

    def is_able(self, g: Any) -> bool:
        """Whether our kernels draw from this graph."""
        return isinstance(g, dgl.DGLGraph) and g.device.type == "cpu"

    def has_names(self, g: Any) -> bool:
        """Whether its mini-batches are named by a key alone, so that threads may make them: nobody has changed what it
        does, in a subclass."""
        makers = [getattr(type(self), name, None) for name in ("sample", "sample_blocks", "assign_lazy_features")]
        modules = {maker.__module__ for maker in makers if maker is not None}
        return self.is_able(g) and modules <= {__name__, "dgl.dataloading.base"}

    def drawn(self, g: Any, seed_nodes: Any, exclude_eids: Any) -> tuple[Any, Any]:
        """Draws around nodes as DGL's own code asks for it. Returns the input nodes, and blocks or a subgraph."""
        graph = self.graph_of(g)
        flat = seed_nodes if isinstance(seed_nodes, Mapping) else {g.ntypes[0]: seed_nodes}
        nodes = np.concatenate([ids.cpu().numpy().astype(np.int64) + first_node(g, name) for name, ids in flat.items()])
        arena, layout = draw_here(self.inner(g), graph, Draw(nodes, self._next_key(nodes)))
        batch = MiniBatch.view(arena, layout, len(nodes)).clone()
        make = blocks_of if self.yields_blocks else subgraph_of
        return make(batch, g, graph, as_excluded(g, exclude_eids))

    def _next_key(self, nodes: np.ndarray) -> DrawKey:
        worker = get_worker_info()
        if worker is None:
            self._num_sampled += 1
            return DrawKey(torch.initial_seed() & (2**64 - 1), self._num_sampled & 0xFFFFFFFF, 0)
        # worker.seed - worker.id is the same in all workers of an epoch: any of them may get this mini-batch.
        return DrawKey(worker.seed - worker.id, 0, checksum_of([nodes]))

    def _fanouts(self, g: Any) -> list[Any]:
        """Returns the fanouts as our samplers take them, nearest hop first."""
        return [_fanout(g, hop, fanout) for hop, fanout in enumerate(as_list("fanouts", self.fanouts))][::-1]

    def __repr__(self) -> str:
        names = ("fanouts", "prob", "replace", "importance_sampling", "layer_dependency")
        settings = [f"{name}={vars(self)[name]!r}" for name in names if vars(self).get(name)]
        return f"{type(self).__name__}({', '.join(settings)})"


class NeighborSampler(KernelSampler, dgl.dataloading.NeighborSampler):
    """DGL's ``NeighborSampler``, also under its older name ``MultiLayerNeighborSampler``.

    Arguments and results are DGL's. Each node draws ``fanout`` distinct in-neighbours of each edge type, uniformly or
    in proportion to ``prob``, and all where it has fewer. Edges that are excluded are left out of what was drawn, as
    DGL does it, so that their nodes have fewer neighbours.

    Args:
        fanouts: neighbours of each node, by layer, outermost hop first: numbers, or dicts by edge type that name all
            types; -1 takes all, and 0 of a type none.
        edge_dir: ``"in"``. ``"out"`` is refused: blocks of DGL's have no place for the nodes that such edges lead to.
        prob: a column of ``edata``: weights of the edges, or booleans, which are a mask.
        mask: likewise; edges where it is False are never drawn.
        replace: draw with replacement.
        prefetch_node_feats: columns of ``ndata`` that are gathered for the first block's sources, by the threads that
            sample: names, or dicts of these by type. Others are gathered when they are looked at.
        prefetch_labels: likewise for the last block's destinations.
        prefetch_edge_feats: likewise of ``edata``, for the edges of all blocks.
        output_device: DGL's; the loader's ``device`` decides here.
        fused: nothing.

    Raises:
        SamplerConfigError: settings that cannot be, some of them only when a graph is there.

    Example:
        >>> g = dgl.graph(([1, 2, 3], [0, 0, 1]))
        >>> input_nodes, output_nodes, blocks = NeighborSampler([-1, -1]).sample(g, torch.tensor([0]))
        >>> input_nodes.tolist(), [block.num_edges() for block in blocks]
        ([0, 1, 2, 3], [3, 2])
    """

    def __init__(
        self,
        fanouts: Any,
        edge_dir: str = "in",
        prob: str | None = None,
        mask: str | None = None,
        replace: bool = False,
        prefetch_node_feats: Any = None,
        prefetch_labels: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
        fused: bool = True,
    ) -> None:
        _check_direction(edge_dir)
        if mask is not None and prob is not None:
            raise SamplerConfigError(
                f"prob={prob!r} and mask={mask!r}: give one of them. For both, multiply the weights by the mask."
            )
        super().__init__(
            fanouts,
            edge_dir,
            prob,
            mask,
            replace,
            prefetch_node_feats=prefetch_node_feats,
            prefetch_labels=prefetch_labels,
            prefetch_edge_feats=prefetch_edge_feats,
            output_device=output_device,
        )

    def inner(self, g: Any) -> Sampler:
        fanouts = self._fanouts(g)
        if self.graph_of(g).edge_weight is None:
            return OurNeighborSampler(fanouts, self.replace, edge_ids=True)
        return WeightedNeighborSampler(fanouts, self.replace, edge_ids=True)

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        if not self.is_able(g):
            return super().sample_blocks(g, seed_nodes, exclude_eids)
        input_nodes, blocks = self.drawn(g, seed_nodes, exclude_eids)
        return input_nodes, seed_nodes, blocks


MultiLayerNeighborSampler = NeighborSampler


class MultiLayerFullNeighborSampler(NeighborSampler):
    """DGL's ``MultiLayerFullNeighborSampler``: all in-neighbours, hop by hop.

    Args:
        num_layers: how many hops.
        **kwargs: those of :class:`NeighborSampler`.

    Example:
        >>> MultiLayerFullNeighborSampler(2).fanouts
        [-1, -1]
    """

    def __init__(self, num_layers: int, **kwargs: Any) -> None:
        super().__init__([-1] * as_integer("num_layers", num_layers), **kwargs)


class LaborSampler(KernelSampler, dgl.dataloading.LaborSampler):
    """DGL's ``LaborSampler``, by :class:`lightning_gnnload.LaborSampler`: nodes that share neighbours draw the same
    ones.

    Args:
        fanouts: expected neighbours of each node, as :class:`NeighborSampler` has them.
        edge_dir: ``"in"``.
        prob: refused: there are no weights in our LABOR.
        importance_sampling: iterations; -1: until it converges. Blocks then have ``edata["edge_weights"]``.
        layer_dependency: a node has one random number for all hops.
        batch_dependency: 1; others are refused: mini-batches are drawn apart from each other.
        prefetch_node_feats: as :class:`NeighborSampler` has it, as are the others.

    Raises:
        SamplerUnsupportedError: ``prob``, ``batch_dependency``; DGL's own sampler does both in our loader.

    Source: Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS'23).

    Example:
        >>> g = dgl.graph(([3, 4, 5, 3, 4, 5], [0, 0, 0, 1, 1, 1]))
        >>> input_nodes, _, [block] = LaborSampler([3]).sample(g, torch.tensor([0, 1]))
        >>> block.num_edges(), input_nodes.tolist()
        (6, [0, 1, 3, 4, 5])
    """

    def __init__(
        self,
        fanouts: Any,
        edge_dir: str = "in",
        prob: str | None = None,
        importance_sampling: int = 0,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        prefetch_node_feats: Any = None,
        prefetch_labels: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
    ) -> None:
        _check_direction(edge_dir)
        for name, value, default in (("prob", prob, None), ("batch_dependency", batch_dependency, 1)):
            if value != default:
                raise SamplerUnsupportedError(
                    f"LaborSampler({name}={value!r}) is not here. Give DataLoader a dgl.dataloading.LaborSampler, "
                    "with which it is DGL's own loader"
                    + (", or NeighborSampler(prob=...), which draws by weight." if name == "prob" else ".")
                )
        super().__init__(
            fanouts,
            edge_dir,
            importance_sampling=importance_sampling,
            layer_dependency=layer_dependency,
            prefetch_node_feats=prefetch_node_feats,
            prefetch_labels=prefetch_labels,
            prefetch_edge_feats=prefetch_edge_feats,
            output_device=output_device,
        )

    def inner(self, g: Any) -> Sampler:
        importance = as_integer("importance_sampling", self.importance_sampling)
        if importance and is_typed(g):
            raise SamplerUnsupportedError(
                f"LaborSampler(importance_sampling={importance}) draws from graphs of one type alone. Give 0, or a "
                "dgl.dataloading.LaborSampler, with which DataLoader is DGL's own loader."
            )
        return OurLaborSampler(
            self._fanouts(g), max(importance, -1), layer_dependency=bool(self.layer_dependency), edge_ids=True
        )

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        if not self.is_able(g):
            return super().sample_blocks(g, seed_nodes, exclude_eids)
        input_nodes, blocks = self.drawn(g, seed_nodes, exclude_eids)
        return input_nodes, seed_nodes, blocks


class ShaDowKHopSampler(KernelSampler, dgl.dataloading.ShaDowKHopSampler):
    """DGL's ``ShaDowKHopSampler``: the nodes that are drawn hop by hop, and all edges between them.

    ``fanouts``, ``replace`` and ``prob`` are as :class:`NeighborSampler` has them. Columns of ``ndata`` and ``edata``
    that ``prefetch_node_feats`` and ``prefetch_edge_feats`` name are gathered for the subgraph.

    Source: Zeng et al., "Decoupling the Depth and Scope of Graph Neural Networks" (NeurIPS'21), section 3.

    Example:
        >>> g = dgl.graph(([1, 2, 0], [0, 1, 2]))
        >>> input_nodes, output_nodes, subgraph = ShaDowKHopSampler([1, 1]).sample(g, torch.tensor([0]))
        >>> input_nodes.tolist(), output_nodes.tolist(), subgraph.num_edges()
        ([0, 1, 2], [0], 3)
    """

    yields_blocks = False
    prefetch_labels = ()

    def inner(self, g: Any) -> Sampler:
        return NeighborSampler.inner(self, g)

    def sample(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, Any]:
        if not self.is_able(g):
            return super().sample(g, seed_nodes, exclude_eids)
        input_nodes, subgraph = self.drawn(g, seed_nodes, exclude_eids)
        dgl.dataloading.set_node_lazy_features(subgraph, self.prefetch_node_feats)
        dgl.dataloading.set_edge_lazy_features(subgraph, self.prefetch_edge_feats)
        return input_nodes, seed_nodes, subgraph


def first_node(g: Any, node_type: str) -> int:
    """Returns the id in our graph of the first node of a type; raises SamplerConfigError for one that is none."""
    if node_type not in g.ntypes:
        raise SamplerConfigError(f"{node_type!r} is no node type of the graph. Those are {', '.join(g.ntypes)}.")
    return sum(g.num_nodes(name) for name in g.ntypes[: g.ntypes.index(node_type)])


def as_excluded(g: Any, exclude_eids: Any) -> dict[Any, torch.Tensor]:
    """Returns edges that are left out by canonical edge type, as DGL's rules name them."""
    if exclude_eids is None:
        return {}
    by_type = exclude_eids if isinstance(exclude_eids, Mapping) else {g.canonical_etypes[0]: exclude_eids}
    return {canonical_type(g, name): torch.as_tensor(ids).cpu().long() for name, ids in by_type.items()}


def _check_direction(edge_dir: str) -> None:
    if edge_dir == "in":
        return
    if edge_dir != "out":
        raise SamplerConfigError(f"edge_dir={edge_dir!r} is not known; give 'in'.")
    raise SamplerUnsupportedError(
        "edge_dir='out' is not here: the edges of DGL's own blocks then lead to nodes that the block does not have. "
        "Draw from dgl.reverse(g, copy_edata=True) with edge_dir='in': along the same edges, towards the seeds."
    )


def _fanout(g: Any, hop: int, fanout: Any) -> Any:
    if not isinstance(fanout, Mapping):
        return as_integer(f"fanouts[{hop}]", fanout)
    by_type = {
        canonical_type(g, name): as_integer(f"fanouts[{hop}][{name!r}]", count) for name, count in fanout.items()
    }
    if missing := [edge_type for edge_type in g.canonical_etypes if edge_type not in by_type]:
        raise SamplerConfigError(
            f"fanouts[{hop}] names no fanout for {missing[0]}. Name every edge type, with 0 for those that are not "
            "drawn."
        )
    if not is_typed(g):
        return by_type[g.canonical_etypes[0]]
    return {edge_type: count for edge_type, count in by_type.items() if count}
