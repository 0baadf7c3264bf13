"""What sampling adds to the memory that the graph takes, beside what was promised."""

from __future__ import annotations

from itertools import islice
from typing import Any

from lightning_gnnload import GraphData, NeighborSampler
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import MIB, MemoryWatch, peak_bytes
from tests.benchmarks.seeds import BATCH_SIZE
from tests.benchmarks.serve import serve


class OurMemory:
    """A process that samples and does nothing else: no features, no labels."""

    def __init__(self, graph: str) -> None:
        self.watch = MemoryWatch()
        loaded = GRAPHS[graph].load()
        self.data = GraphData(loaded.graph, train=loaded.train)

    def sample(self, turn: int, num_batches: int, fanouts: list[int], num_threads: int) -> dict[str, Any]:
        """The peak over what there was after imports, in MiB; and by parts, what was promised.

        The promise: the graph, 4 bytes a node and thread, and the slots.
        """
        workload = Workload(
            self.data.graph, NeighborSampler(fanouts), self.data.train, batch_size=BATCH_SIZE, order=Shuffled()
        )
        source = BatchSource(self.data, workload)
        loader = SampledLoader(source, num_threads=num_threads)
        for _batch in islice(loader, num_batches):
            pass
        del _batch  # its slot comes back
        peak = peak_bytes() - self.watch.at_start
        graph, slots = self.data.graph, loader._slots
        slots.give(slots.take())  # the pool sees what came back
        parts = {
            "graph": graph.indptr.nbytes + graph.indices.nbytes,
            "tables": 4 * graph.num_nodes * num_threads,
            "slots": sum(slot.num_bytes for slot in slots._free),
        }
        return {"values": [peak / MIB], **{name: num_bytes / MIB for name, num_bytes in parts.items()}}


if __name__ == "__main__":
    serve(OurMemory)
