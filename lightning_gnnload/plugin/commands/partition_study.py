"""What only sampling tells of a partition: the edges of mini-batches between parts, and hit rates of caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lightning_gnnload.cache.policies import policy_named
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.trace import visit_counts
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.seeds import Shuffled
from lightning_gnnload.partition.quality import CacheRates
from lightning_gnnload.sample.workload import Workload

POLICY = "presample"


def cache_rates(
    workload: Workload, partition: Partition, ratio: float, *, advance: Callable[[float], object] = lambda share: None
) -> CacheRates:
    """Hit rates over one epoch of the parts' own caches, and of one cache for the trainers of all parts together.

    Four epochs are sampled: for each of the two, one to rank rows by, and the one that is measured.

    Args:
        workload: of training, over the whole graph: sampler, batch size and seed are its.
        partition: of that graph; each part has training seeds.
        ratio: of all rows, what each cache has places for.
        advance: is told which share is done.

    Source: PaGraph (TPDS'21), section 5.5, figure 17a: "PaGraph" and "DGL+Cache".
    """
    num_places = int(ratio * partition.num_nodes + 1e-9)
    own = []
    for part in partition.parts:
        own.append(_hit_rate(_of(workload, part.seeds["train"], num_ranks=1), num_places))
        advance(len(own) / (2 * partition.num_parts))
    shared = _hit_rate(_of(workload, workload.seeds, num_ranks=partition.num_parts), num_places)
    advance(1.0)
    return CacheRates(ratio, POLICY, own, shared)


def _of(workload: Workload, seeds: Sequence[int] | np.ndarray, num_ranks: int) -> Workload:
    changed = {"seeds": np.asarray(seeds), "num_ranks": num_ranks, "order": Shuffled(), "drop_last": False}
    return Workload(**{**workload.settings(), **changed})


def _hit_rate(workload: Workload, num_places: int) -> float:
    hotness = policy_named(POLICY, progress=False).hotness(workload, 0)
    visits = visit_counts(workload, [0], progress=False)
    cached = hottest(hotness, workload.graph.num_nodes, num_places)
    return float(visits[cached].sum() / max(visits.sum(), 1))
