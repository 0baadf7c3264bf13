"""What lightning_gnnload is told to do: sample, load, receive from a queue."""

from __future__ import annotations

import subprocess
from functools import cached_property
from typing import Any

import numpy as np

from lightning_gnnload import GraphData, GraphDataModule, MiniBatch, NeighborSampler, ops
from lightning_gnnload.data.seeds import Sequential
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue import BatchQueue, QueueLoader
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchRequest, BatchSource
from tests.benchmarks import service
from tests.benchmarks.graphs import BATCH_SIZE, dataset, seeds_of_turn
from tests.benchmarks.memory import MemoryWatch
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import each_batch_ms, steady_ms


class Ours:
    """Over one graph, mapped from its folder as a data module would map it."""

    def __init__(self, graph: str) -> None:
        self.memory = MemoryWatch()
        self.graph = graph
        self.data = dataset(graph).load()
        self._slot = Slot()
        self._loaders: dict[tuple[str, int], SampledLoader] = {}
        self._loaders_fanouts: list[int] = []
        self._queues: dict[str, BatchQueue] = {}
        self._services: list[subprocess.Popen[bytes]] = []

    def sample(
        self, turn: int, num_batches: int, fanouts: list[int], expand: Any = "all", edge_ids: bool = False
    ) -> dict[str, Any]:
        """As the loader does it: into a recycled slot, which holds nothing but the sample here."""
        seeds = seeds_of_turn(self.data.train, turn, num_batches)
        sampler = NeighborSampler(fanouts, expand=expand, edge_ids=edge_ids)
        source = BatchSource(
            GraphData(self.data.graph), sampler, seeds.ravel(), batch_size=BATCH_SIZE, order=Sequential()
        )
        num_edges = 0

        def sample(step: int) -> None:
            nonlocal num_edges
            payload = source.make(BatchRequest(turn, step, rank=0, num_ranks=1), self._slot)
            payload.view(self._slot.array)
            num_edges += payload.num_edges

        return {"values": each_batch_ms(sample, range(num_batches)), "edges": num_edges / num_batches}

    def sample_once(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """As a user does it by hand: ``sampler.sample`` finds new memory for each batch."""
        batches = seeds_of_turn(self.data.train, turn, num_batches)
        sampler = NeighborSampler(fanouts)
        made: list[MiniBatch] = []
        values = each_batch_ms(lambda seeds: made.append(sampler.sample(self.data.graph, seeds, epoch=turn)), batches)
        return {
            "values": values,
            "edges": sum(b.num_edges for batch in made for b in batch.blocks) / num_batches,
        }

    def replay(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """Only the random reads of ``sample``: indptr, adjacency, deduplication table; nothing is decided."""
        graph, sampler = self.data.graph, NeighborSampler(fanouts, edge_ids=True)
        reads: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
        num_edges = 0
        for step, seeds in enumerate(seeds_of_turn(self.data.train, turn, num_batches)):
            batch = sampler.sample(graph, seeds, epoch=turn, step=step)
            reads.append([])
            for block in reversed(batch.blocks):
                assert block.edge_ids is not None
                num_edges += block.num_edges
                for table, ids in (
                    (graph.indptr, batch.nodes[: block.num_dst]),
                    (graph.indices, block.edge_ids),
                    (self._stamps, batch.nodes[block.indices.long()]),
                ):
                    reads[-1].append((table, ids.numpy(), np.zeros(len(ids), table.dtype)))

        def gather(batch: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
            for table, ids, out in batch:
                ops.gather_rows(table, ids, out)

        return {"values": each_batch_ms(gather, reads), "edges": num_edges / num_batches}

    def load(
        self, turn: int, num_batches: int, fanouts: list[int], batch_format: Any, num_threads: int
    ) -> dict[str, Any]:
        """The begin of an epoch, features and labels included; a turn is an epoch."""
        loader = self._loader(fanouts, batch_format, num_threads)
        loader.set_epoch(turn)
        return {"values": steady_ms(loader, num_batches, self.memory.look)}

    def _loader(self, fanouts: list[int], batch_format: Any, num_threads: int) -> SampledLoader:
        """What ``GraphDataModule.train_dataloader`` gives. As in a Trainer, it lives from epoch to epoch, and its
        buffers with it; those for other fanouts are let go."""
        if fanouts != self._loaders_fanouts:
            self._loaders, self._loaders_fanouts = {}, fanouts
        if (batch_format, num_threads) not in self._loaders:
            module = GraphDataModule(
                self.data,
                NeighborSampler(fanouts),
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
            source,
            phase="train",
            loader=0,
            num_ranks=1,
            rank=0,
            convert=lambda batch: batch,
            reload=0,
            limit=lambda: num_batches,
        )
        loader.set_epoch(turn)
        return {"values": steady_ms(loader, num_batches)}

    def peak(self) -> dict[str, Any]:
        return self.memory.report()

    def close(self) -> None:
        for queue in self._queues.values():
            queue.goodbye()
        for process in self._services:
            process.wait()  # one whose trainer never came gives up by itself

    @cached_property
    def _stamps(self) -> np.ndarray:
        # Written to, so that it has pages of its own; NumPy puts an array of this size on 2 MB pages, as the
        # kernel does with its table.
        return np.ones(self.data.num_nodes, np.int32)


if __name__ == "__main__":
    serve(Ours)
