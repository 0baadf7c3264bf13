"""What lightning_gnnload is told to do: sample, load, receive from a queue."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

from lightning_gnnload import Graph, GraphData, GraphDataModule, MiniBatch, NeighborSampler, Sampler, ops
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks import service
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.memory import MemoryWatch, on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import steady_ms, timed


def sample_into_slot(data: GraphData, sampler: Sampler, slot: Slot, turn: int, num_batches: int) -> dict[str, Any]:
    """As the loader does it: into a recycled slot, which holds nothing but the sample here."""
    seeds = seeds_of_turn(data.train, turn, num_batches)
    return sample_workload(
        Workload(data.graph, sampler, seeds.ravel(), batch_size=BATCH_SIZE, order=Sequential()), slot, turn
    )


def sample_workload(workload: Workload, slot: Slot, turn: int) -> dict[str, Any]:
    """Every mini-batch of the workload; a turn is an epoch."""
    source, num_batches = BatchSource(GraphData(workload.graph), workload), workload.plan(1).num_steps
    num_edges = 0

    def sample(step: int) -> None:
        nonlocal num_edges
        payload = source.make(BatchRequest(turn, step, rank=0, num_ranks=1), slot)
        payload.view(slot.array)
        num_edges += payload.num_edges

    return timed(sample, range(num_batches)) | {"edges": num_edges / num_batches}


def use(instruction_set: str | None) -> None:
    """None: the machine's best."""
    ops.use_instruction_set(instruction_set or ops.instruction_sets()[-1])


class Ours:
    """Over one graph, as a data module would load it from its folder.

    Args:
        graph: its name.
        in_memory: with a copy of the topology in private memory on 2 MB pages.
        instruction_set: what the kernels use, but for tasks that name their own; the machine's best by default.
    """

    def __init__(self, graph: str, in_memory: bool = False, instruction_set: str | None = None) -> None:
        use(instruction_set)
        self.memory = MemoryWatch()
        self.graph = graph
        self.data = GRAPHS[graph].load()
        if in_memory:
            data, topology = self.data, self.data.graph
            copy = Graph(on_huge_pages(topology.indptr), on_huge_pages(topology.indices))
            self.data = GraphData(copy, data.x, data.y, data.train)
        self._slot = Slot()
        self._loaders: dict[tuple[str, int], SampledLoader] = {}
        self._loaders_fanouts: list[int] = []
        self._queues: dict[str, BatchQueue] = {}
        self._services: list[subprocess.Popen[bytes]] = []

    def sample(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        expand: Any = "all",
        edge_ids: bool = False,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        use(instruction_set)
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids)
        return sample_into_slot(self.data, sampler, self._slot, turn, num_batches)

    def sample_once(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """As a user does it by hand: ``sampler.sample`` finds new memory for each batch."""
        use(None)
        batches = seeds_of_turn(self.data.train, turn, num_batches)
        sampler = NeighborSampler(fanouts)
        made: list[MiniBatch] = []
        reply = timed(lambda seeds: made.append(sampler.sample(self.data.graph, seeds, epoch=turn)), batches)
        return reply | {"edges": sum(b.num_edges for batch in made for b in batch.blocks) / num_batches}

    def load(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        batch_format: Any,
        num_threads: int,
        instruction_set: str | None = None,
    ) -> dict[str, Any]:
        """The begin of an epoch, features and labels included; a turn is an epoch."""
        use(instruction_set)
        loader = self._loader(fanouts, batch_format, num_threads)
        loader.set_epoch(turn)
        before = replace(loader.stats)
        reply = steady_ms(loader, num_batches, self.memory.look)
        spent = loader.stats - before
        return reply | {
            "sample ms": spent.sample_ms / spent.num_batches,
            "gather ms": spent.gather_ms / spent.num_batches,
            "convert ms": spent.convert_ms / spent.num_batches,
        }

    def _loader(self, fanouts: list[int], batch_format: Any, num_threads: int) -> SampledLoader:
        """What ``GraphDataModule.train_dataloader`` gives. As in a Trainer, it lives from epoch to epoch, and its
        buffers with it; those for other fanouts are let go."""
        if fanouts != self._loaders_fanouts:
            self._loaders, self._loaders_fanouts = {}, fanouts
        if (batch_format, num_threads) not in self._loaders:
            module = GraphDataModule(
                self.data,
                NeighborSampler(fanouts, expand="new" if batch_format == "pyg" else "all"),
                batch_size=BATCH_SIZE,
                batch_format=batch_format,
                num_threads=num_threads,
                drop_last=True,
            )
            self._loaders[batch_format, num_threads] = module.train_dataloader()
        return self._loaders[batch_format, num_threads]

    def receive(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """The same from a sampler process, through a BatchQueue; both processes live on from turn to turn."""
        source = service.train_source(self.data, fanouts)
        job = service.job_name(fanouts)
        if job not in self._queues:
            process = service.start(self.graph, fanouts, job)
            self._services.append(process)
            queue = BatchQueue(
                job,
                trainer=0,
                rank=0,
                num_samplers=1,
                queue_depth=service.QUEUE_DEPTH,
                connect_timeout_s=service.CONNECT_TIMEOUT_S,
                stall_timeout_s=60,
            )
            self._queues[job] = queue
        loader = QueueLoader(
            self._queues[job],
            SampledLoader(source),
            phase="train",
            loader=0,
            reload=0,
            limit=lambda: num_batches,
        )
        loader.set_epoch(turn)
        return steady_ms(loader, num_batches, num_workers=1)

    def peak(self) -> dict[str, Any]:
        return self.memory.report()

    def close(self) -> None:
        for queue in self._queues.values():
            queue.goodbye()
        for process in self._services:
            process.wait()  # one whose trainer never came gives up by itself


if __name__ == "__main__":
    serve(Ours)
