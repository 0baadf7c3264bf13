"""How much memory a run takes, by what it is for and who has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gnnload.cache.budget import Table
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.ops.dispatch import MAX_STAMP_NODES
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.work import RunLayout

_STAMP_BYTES, _HASH_BYTES = 4, 64  # of a node of the graph, or of the largest mini-batch: ``ops.Workspace``
_IN_USE = 2  # of slots in process, beside one a thread: one more is ready, and one is trained on


@dataclass(frozen=True)
class BatchSize:
    """A mini-batch's size: its input nodes and edges, the bytes that are written of its slot, and those that a trainer
    takes for a step (``train_bytes``: model, optimizer, activations)."""

    num_nodes: float
    num_edges: float
    num_bytes: float
    train_bytes: float

    def scaled(self, further: BatchSize, share: float) -> BatchSize:
        """Goes a ``share`` of the way to another size."""
        pairs = zip(vars(self).values(), vars(further).values(), strict=True)
        return BatchSize(*(max(here * (1 - share) + there * share, 0.0) for here, there in pairs))


@dataclass(frozen=True)
class DataSize:
    """The size of what all mini-batches are made of, and of a process that has imported all it needs.

    Attributes:
        process_bytes: private memory of a rank before it has data.
        library_bytes: pages of files that it maps, which all ranks share.
        graph_bytes: topology, labels and the like.
        feature_bytes: all tables of features.
        mapped: both are mapped from files, so that a machine has one copy, which it gives up where memory is short.
        row_bytes: of the table that is cached.
    """

    num_nodes: int
    process_bytes: int
    library_bytes: int
    graph_bytes: int
    feature_bytes: int
    row_bytes: int
    mapped: bool = True


@dataclass(frozen=True)
class MemoryPart:
    """Memory for one purpose: ``count`` times ``num_bytes``. ``on_device``: of each device that trains. ``reclaimed``:
    pages of files, which the system reads again where memory is short."""

    owner: str
    purpose: str
    num_bytes: int
    count: int = 1
    on_device: bool = False
    reclaimed: bool = False

    @property
    def total(self) -> int:
        return self.num_bytes * self.count


def memory_parts(layout: RunLayout, data: DataSize, batch: BatchSize, machine: Machine) -> list[MemoryPart]:
    """Lists the memory of one machine's ranks."""
    ranks, makers = layout.ranks, layout.samplers or layout.trainers
    on_device = bool(machine.gpus)
    copies = 1 if data.mapped else ranks
    table = Table(data.num_nodes, data.row_bytes)
    cache = int(layout.cache * data.num_nodes) * table.bytes_per_row + table.index_bytes if layout.cache else 0
    stamps = data.num_nodes * _STAMP_BYTES
    if data.num_nodes > MAX_STAMP_NODES:
        stamps = int(batch.num_nodes) * _HASH_BYTES
    if layout.samplers:
        queue = MemoryPart("shared", "queue slots", int(batch.num_bytes), layout.slots * makers * layout.trainers)
    else:
        in_use = layout.slots + 1 if layout.alternates else layout.threads + _IN_USE
        queue = MemoryPart("each trainer", "slots", int(batch.num_bytes), in_use * layout.trainers)
    cache_owner = ("each GPU", layout.trainers) if on_device else ("shared", 1)
    parts = [
        MemoryPart("each rank", "Python and libraries", data.process_bytes, ranks),
        MemoryPart("shared", "libraries' files", data.library_bytes, 1, reclaimed=True),
        MemoryPart("shared", "topology and labels", data.graph_bytes, copies, reclaimed=data.mapped),
        MemoryPart("shared", "features", data.feature_bytes, copies, reclaimed=data.mapped),
        MemoryPart(cache_owner[0], "cached rows", cache, cache_owner[1], on_device),
        queue,
        MemoryPart("each sampling thread", "table of nodes", stamps, makers * layout.threads),
        MemoryPart("each trainer", "model, optimizer, step", int(batch.train_bytes), layout.trainers, on_device),
    ]
    return [part for part in parts if part.total]


def needed_bytes(parts: Sequence[MemoryPart]) -> int:
    """What the machine must have: all but pages that it can read again."""
    return sum(part.total for part in parts if not part.reclaimed and not part.on_device)


def trainer_bytes(layout: RunLayout, parts: Sequence[MemoryPart]) -> int:
    """What one trainer's process has for itself."""
    owners = {"each rank": layout.ranks, "each trainer": layout.trainers}
    if not layout.samplers:
        owners["each sampling thread"] = layout.trainers
    mine = [part.total // owners[part.owner] for part in parts if part.owner in owners and not part.on_device]
    if not layout.samplers:  # which a factored trainer shares with samplers
        mine += [part.total for part in parts if part.purpose == "cached rows" and not part.on_device]
    return sum(mine)


def what_does_not_fit(parts: Sequence[MemoryPart], machine: Machine) -> str:
    """Says which memory there is not enough of, what needs most of it, and what to change; empty where all fits."""
    on_device = [part for part in parts if part.on_device]
    per_device = sum(part.num_bytes for part in on_device)
    if on_device and per_device > machine.device_bytes:
        needs, room, where = on_device, machine.device_bytes, "each GPU"
    elif (needed := needed_bytes(parts)) > machine.memory_bytes:
        needs = [part for part in parts if not part.on_device and not part.reclaimed]
        per_device, room, where = needed, machine.memory_bytes, "the machine"
    else:
        return ""
    largest = max(needs, key=lambda part: part.num_bytes if where == "each GPU" else part.total)
    size = largest.num_bytes if where == "each GPU" else largest.total
    return (
        f"{where} would need {in_units(per_device)} and has {in_units(room)}; {largest.purpose} take "
        f"{in_units(size)} of it: {_REMEDIES[largest.purpose]}"
    )


_REMEDIES = {
    "Python and libraries": "take fewer ranks (Trainer(devices=...)).",
    "topology and labels": "store the graph in a folder (save_graph_data), which ranks map and share.",
    "features": "store the features in a folder (save_graph_data), which ranks map and share, or as float16.",
    "cached rows": "lower FeatureCache(ratio=...).",
    "queue slots": "lower FactoredStrategy(queue_depth=...), or batch_size.",
    "slots": "lower GraphDataModule(num_threads=...), or batch_size.",
    "table of nodes": "lower the number of sampling threads.",
    "model, optimizer, step": "lower batch_size or the fanouts, or take a narrower model.",
}
