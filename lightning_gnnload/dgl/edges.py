"""DGL's samplers of edges: blocks around their ends, the graph of the pairs, and one of negative pairs."""

from __future__ import annotations

from typing import Any

import dgl

from lightning_gnnload.dgl.negative_sampler import GlobalUniform, PerSourceUniform
from lightning_gnnload.dgl.samplers import KernelSampler
from lightning_gnnload.errors import SamplerConfigError

_EXCLUDE = (None, "self", "reverse_id", "reverse_types")


class EdgePredictionSampler(dgl.dataloading.EdgePredictionSampler):
    """DGL's sampler of edges, of :func:`as_edge_prediction_sampler`."""

    def __init__(
        self,
        sampler: Any,
        exclude: Any = None,
        reverse_eids: Any = None,
        reverse_etypes: Any = None,
        negative_sampler: Any = None,
        prefetch_labels: Any = None,
    ) -> None:
        if isinstance(exclude, str) and exclude not in _EXCLUDE:
            raise SamplerConfigError(
                f"exclude={exclude!r} is not known; give one of {', '.join(map(repr, _EXCLUDE))}, or a function of the "
                "edges' ids."
            )
        for mode, name, value in (
            ("reverse_id", "reverse_eids", reverse_eids),
            ("reverse_types", "reverse_etypes", reverse_etypes),
        ):
            if isinstance(exclude, str) and exclude == mode and value is None:
                raise SamplerConfigError(f"exclude={mode!r} needs {name}=, by which edges that go back are found.")
        super().__init__(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)

    def has_names(self, g: Any) -> bool:
        """Whether its mini-batches are named by a key alone, so that threads may make them: all that draws is ours."""
        negatives = self.negative_sampler
        is_ours = negatives is None or type(negatives) in (PerSourceUniform, GlobalUniform)
        is_ours &= type(self) is EdgePredictionSampler and isinstance(self.sampler, KernelSampler)
        return is_ours and self.sampler.has_names(g)


def as_edge_prediction_sampler(
    sampler: Any,
    exclude: Any = None,
    reverse_eids: Any = None,
    reverse_etypes: Any = None,
    negative_sampler: Any = None,
    prefetch_labels: Any = None,
) -> EdgePredictionSampler:
    """Returns a sampler of edges of a sampler of nodes, as DGL's function of this name.

    A loader with it yields ``(input_nodes, pair_graph, blocks)``, or with negatives ``(input_nodes, pair_graph,
    neg_pair_graph, blocks)``.

    Args:
        sampler: of nodes.
        exclude: which edges are left out of what was drawn: None, ``"self"``: those of the mini-batch;
            ``"reverse_id"``, ``"reverse_types"``: and those that go back; a tensor of ids, or a dict of these by type;
            or a function that makes these of the mini-batch's, which threads call.
        reverse_eids: for each edge the id of the one that goes back, of its own type; by type where there are types.
        reverse_etypes: for each edge type that of the edges that go back, which have the same ids.
        negative_sampler: of :mod:`.negative_sampler`. With a function of yours the loader is DGL's own, as nobody
            knows what it draws by; blocks are still drawn by our kernels.
        prefetch_labels: columns of ``edata`` that are gathered for the pairs.

    Raises:
        SamplerConfigError: an ``exclude`` that is none, or that lacks what it needs.

    Example:
        >>> import torch
        >>> from lightning_gnnload.dgl import DataLoader, NeighborSampler
        >>> g = dgl.graph(([1, 2, 3], [0, 0, 1]))
        >>> sampler = as_edge_prediction_sampler(
        ...     NeighborSampler([-1]), exclude="self", negative_sampler=PerSourceUniform(2)
        ... )
        >>> [(input_nodes, pair_graph, neg_pair_graph, blocks)] = DataLoader(g, torch.tensor([0]), sampler, seed=7)
        >>> pair_graph.edata[dgl.EID].tolist(), neg_pair_graph.num_edges()
        ([0], 2)
    """
    return EdgePredictionSampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)
