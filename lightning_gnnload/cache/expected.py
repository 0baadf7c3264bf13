"""Expected: visits by theory, from the graph, the seeds and the sampler's law; nothing is sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.chances import Chances, UniformChances, WeightedChances
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.presence import presence, presence_by_walks
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from lightning_gnnload.sample.workload import Workload


@dataclass(frozen=True)
class Expected(CachePolicy):
    """By the visits that an epoch is expected to make, from the law of the sampler: no epoch is sampled.

    Probabilities flow from the seeds along the edges, hop by hop, in a time proportional to edges times hops, however
    many mini-batches an epoch has. For :class:`.NeighborSampler`, :class:`.WeightedNeighborSampler`,
    :class:`.ShadowSampler` and :class:`.RandomWalkSampler`; where it approximates, :mod:`.presence` and
    :mod:`.chances` say. It takes the seeds of a mini-batch as drawn uniformly: an order that puts neighbours together
    visits less than it expects.

    Raises:
        CacheConfigError: on ranking, another sampler, or fanouts by edge type.

    Source: SALIENT++ (MLSys'23), caching by vertex inclusion probability.

    Example:
        >>> from lightning_gnnload import Graph
        >>> from lightning_gnnload.data.seeds import Sequential
        >>> star = Graph.from_coo(src=[1, 2, 3, 4], dst=[0, 0, 0, 0])
        >>> workload = Workload(star, NeighborSampler([1]), np.array([0]), batch_size=1, order=Sequential())
        >>> Expected().hotness(workload, epoch=0).round(6).tolist()
        [1.0, 0.25, 0.25, 0.25, 0.25]
    """

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        graph, sampler = workload.graph, workload.sampler
        num_batches, seeds = _seed_chances(workload)
        if isinstance(sampler, RandomWalkSampler):
            return num_batches * presence_by_walks(graph, seeds, sampler)
        again = isinstance(sampler, NeighborSampler) and sampler.expand == "all"
        return num_batches * presence(graph, seeds, _hops(workload), again=again)


def _hops(workload: Workload) -> list[Chances]:
    graph, sampler = workload.graph, workload.sampler
    if isinstance(sampler, NeighborSampler | ShadowSampler):
        law = WeightedChances if isinstance(sampler, WeightedNeighborSampler) else UniformChances
        replace = isinstance(sampler, NeighborSampler) and sampler.replace
        fanouts = [fanout for fanout in sampler.fanouts if isinstance(fanout, int)]
        if len(fanouts) == len(sampler.fanouts):
            # Hops of one fanout share what is computed once a graph.
            laws: dict[int, Chances] = {fanout: law(graph, fanout, replace) for fanout in set(fanouts)}
            return [laws[fanout] for fanout in fanouts]
    raise CacheConfigError(
        f"policy='expected' does not know how {sampler!r} draws; give policy='presample', which samples an epoch to "
        f"see. It knows NeighborSampler and ShadowSampler without edge types, WeightedNeighborSampler and "
        f"RandomWalkSampler."
    )


def _seed_chances(workload: Workload) -> tuple[int, np.ndarray]:
    """Mini-batches of an epoch, and the chance of each node to be a seed of one of them, float64 ``[N]``."""
    plan = workload.plan(workload.num_ranks)
    num_batches = plan.num_steps * workload.num_ranks
    _, used = plan.step(plan.num_steps - 1)  # drop_last leaves some out, others each epoch
    chances = np.zeros(workload.graph.num_nodes)
    chances[workload.seeds] = used / (num_batches * len(workload.seeds))
    return num_batches, chances
