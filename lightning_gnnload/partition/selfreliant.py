"""SelfReliant: training nodes with neighbourhoods in common come to one part (PaGraph)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.orders.sequences import breadth_first_ring
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.ops.dealing import MAX_CLOSED_PARTS, MOST_WEIGHT
from lightning_gnnload.partition.balance import share_sizes
from lightning_gnnload.partition.partitioner import Advance, Partitioner, SeedIds

Overlap = Literal["seeds", "nodes"]
Stream = Literal["given", "shuffled", "degree", "proximity"]
MOST_SCORE_HOPS = 2  # by default: wider neighbourhoods are most of a graph, and tell no part from another
_SLICE_EDGES = 1 << 27  # half a second or so: how long an interrupt may wait


@dataclass(frozen=True)
class SelfReliant(Partitioner):
    """PaGraph's partitioner: assigns each seed to the part that already holds most of its neighbourhood.

    A seed ``v`` scores at part ``i``

        ``(overlap_weight * |TV_i & IN(v)| + smoothing) * (TV_avg - |TV_i|) / |PV_i|``

    with TV_i the seeds that the part has by then, IN(v) the in-neighbours of ``v`` of up to ``score_hops`` hops, TV_avg
    the seeds that a part shall have, and PV_i the nodes it holds: its seeds and their IN. Scores are compared exactly.
    Of equal ones, as all 0 at first, the part of fewest nodes has it, then the one of lowest index. A part has room
    for its exact share of seeds and no more, so that shares differ by one at most. Each phase is a stream with shares
    of its own, ``"train"`` first. Nodes that are no seeds stay open.

    The published code (its ``dg.py``) differs from the text in places; the text is followed, and settings come near
    the code: it adds 1 to the overlap (``smoothing=1``) and to |PV_i|; its TV_avg is 0.65 N / K whatever the number of
    training nodes, so that nothing balances them exactly; of two equal scores the part of fewer training nodes wins,
    and only the two highest are looked at; nodes may be renumbered by degree before (``stream="degree"`` is near).

    Args:
        overlap: what counts of IN(v): ``"seeds"`` of the part, as in the paper; or ``"nodes"``, all that the part holds
            of v and IN(v), which it then need not replicate. Measured on graphs with communities, parts hold least with
            ``overlap="nodes", smoothing=1, stream="degree"``.
        score_hops: hops of IN; None: those of the parts, but 2 at most, and 1 for disjoint parts. Time is a visit to
            each edge that ends within ``score_hops - 1`` steps of a seed, for every seed.
        overlap_weight: 0 to 65535.
        smoothing: 0 to 65535; above 0, a part without seeds in common scores by its room and smallness.
        stream: the order of seeds: ``"given"``; ``"shuffled"`` by the seed of the partition; ``"degree"``, most
            in-neighbours first; ``"proximity"``, as a breadth-first search comes to them, which needs the edges of
            both directions (a copy of the graph, unless it is undirected).

    Memory: N (K + 1) / 8 bytes of bits, up to 5 or 9 N of lists; the graph may be a mapped file.

    Raises:
        PartitionError: settings out of range; on assigning, more than 64 parts.

    Source: PaGraph (TPDS'21), section 3.2, Eq. 1, and section 4, Algorithm 1.
    """

    name: ClassVar[str] = "self-reliant"

    overlap: Overlap = "seeds"
    score_hops: int | None = None
    overlap_weight: int = 1
    smoothing: int = 0
    stream: Stream = "given"

    def __post_init__(self) -> None:
        limits = [("overlap_weight", 0, MOST_WEIGHT), ("smoothing", 0, MOST_WEIGHT)]
        if self.score_hops is not None:
            limits.append(("score_hops", 1, 255))
        for name, least, most in limits:
            value = ops.as_integer(f"SelfReliant: {name}", getattr(self, name), PartitionError)
            if not least <= value <= most:
                raise PartitionError(f"SelfReliant: {name} is {value}, but must lie in [{least}, {most}].")
        for name, choices in (("overlap", get_args(Overlap)), ("stream", get_args(Stream))):
            if getattr(self, name) not in choices:
                names = ", ".join(map(repr, choices))
                raise PartitionError(f"SelfReliant: there is no {name} {getattr(self, name)!r}; give one of {names}.")

    def assign(
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        if num_parts > MAX_CLOSED_PARTS:
            raise PartitionError(
                f"{self.name} deals seeds out to {MAX_CLOSED_PARTS} parts at most, not {num_parts}. Give fewer parts, "
                f"or another method, 'bgl' for example."
            )
        # Seeds are dealt a slice of edges at a time, so that Ctrl-C and the bar are not kept waiting by a kernel.
        dealt = ops.DealtSeeds.none_of(graph.num_nodes, num_parts)

        num_seeds = sum(len(ids) for ids in seeds.values())
        num_done = 0
        for phase, ids in seeds.items():
            task, quotas = f"Dealing out {phase} seeds", share_sizes(len(ids), num_parts)
            parts_before = dealt.part[ids]
            new = ids[parts_before < 0]
            # Seeds of an earlier phase keep their part, and are of its share in this one, too.
            dealt.num_seeds[:] = np.bincount(parts_before[parts_before >= 0], minlength=num_parts)
            num_done += len(ids) - len(new)
            waiting = self._ordered(graph, new, seed)
            while len(waiting):
                advance(task, num_done / num_seeds)
                count = ops.deal_seeds(
                    graph.indptr,
                    graph.indices,
                    waiting,
                    quotas,
                    dealt,
                    hops=self.score_hops or min(max(hops, 1), MOST_SCORE_HOPS),
                    overlap=self.overlap,
                    overlap_weight=self.overlap_weight,
                    smoothing=self.smoothing,
                    max_edges=_SLICE_EDGES,
                )
                waiting = waiting[count:]
                num_done += count
            advance(task, num_done / num_seeds if num_seeds else 1.0)
        return dealt.part.astype(np.int32)

    def _ordered(self, graph: Graph, seeds: np.ndarray, seed: int) -> np.ndarray:
        if self.stream == "shuffled":
            return Shuffled().order(seeds, seed=seed, epoch=0)
        if self.stream == "degree":
            degrees = graph.indptr[seeds + 1] - graph.indptr[seeds]
            return seeds[np.argsort(-degrees, kind="stable")]
        if self.stream == "proximity" and len(seeds):
            return seeds[breadth_first_ring(graph, seeds, seed)]
        return seeds
