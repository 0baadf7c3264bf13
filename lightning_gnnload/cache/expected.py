"""Expected: the expected visits of each node, from the graph, the seeds and the sampler's law, without sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import Workload


@dataclass(frozen=True)
class Expected(CachePolicy):
    """Ranks nodes by their expected visits in an epoch, computed from how the sampler draws.

    Probabilities flow from the seeds along the edges, hop by hop, in time proportional to edges times hops, however
    many mini-batches an epoch has. It takes samplers that have :meth:`.Sampler.presence`; :mod:`.presence` and
    :mod:`.inclusion` say where these approximate. Seeds of a mini-batch count as drawn uniformly, so an order that puts
    neighbours together visits fewer nodes than expected. Ranking raises CacheConfigError for other samplers, fanouts by
    edge type, times and negatives.

    Source: SALIENT++ (MLSys'23), caching by vertex inclusion probability.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.data.orders.seeds import Sequential
        >>> star = Graph.from_coo(src=[1, 2, 3, 4], dst=[0, 0, 0, 0])
        >>> workload = Workload(star, NeighborSampler([1]), np.array([0]), batch_size=1, order=Sequential())
        >>> Expected().hotness(workload, epoch=0).round(6).tolist()
        [1.0, 0.25, 0.25, 0.25, 0.25]
    """

    counts_visits = True

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        seeds = workload.kind
        unknown = "times" if seeds.is_timed else "negatives" if seeds.has_negatives else None
        if unknown is not None:
            raise CacheConfigError(
                f"policy='expected' cannot compute how often nodes are visited with {unknown}. Give "
                "policy='presample', which samples an epoch and counts."
            )
        num_batches, chances = _seed_chances(workload)
        present = workload.sampler.presence(workload.graph, chances)
        if present is None:
            raise CacheConfigError(
                f"policy='expected' does not know how {workload.sampler!r} draws. Give policy='presample', which "
                "samples an epoch and counts. 'expected' works without edge types: NeighborSampler, ShadowSampler, "
                "WeightedNeighborSampler, RandomWalkSampler, and samplers that define Sampler.presence."
            )
        return num_batches * present


def _seed_chances(workload: Workload) -> tuple[int, np.ndarray]:
    """Returns the number of mini-batches of an epoch, and each node's chance to be a seed of one, float64 ``[N]``."""
    plan = workload.plan(workload.num_ranks)
    num_batches = plan.num_steps * workload.num_ranks
    _, used = plan.step(plan.num_steps - 1)  # where drop_last leaves seeds out, they are other ones each epoch
    chances = np.zeros(workload.graph.num_nodes)
    nodes = workload.kind.nodes_of(workload.seeds)
    np.add.at(chances, nodes, used / (num_batches * len(workload.seeds)))  # a node may be in several rows
    return num_batches, chances
