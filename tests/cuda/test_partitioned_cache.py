"""The cache that devices hold together: what it gathers is the table's, whoever admits and evicts meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import ops
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.tables.partitioned_cache import PartitionedSlots, Parts
from lightning_gnnload.ops.cuda.tables.tiers import gather_tiered
from tests.cuda.emulated import EmulatedDevice

NUM_NODES, BATCH = 100, 20


class Rank:
    """One rank, on a device of its own or on one that all share."""

    def __init__(self, device: Device, rows: np.ndarray, slots: PartitionedSlots) -> None:
        self.device, self.rows, self.slots = device, rows, slots
        self.hits = np.zeros(ops.MAX_SHARDS + 1, np.int64)

    def look(self, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        on_device = self.device.put(ids)
        self.slots.enter()
        self.slots.locate(on_device)
        shape = (len(ids), self.rows.shape[1])
        return on_device, self.device.empty(shape[0] * shape[1], torch.uint8).view(shape)

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """All rows, from wherever they are; invalid ids have none."""
        device = self.device
        counts, error = device.zeros(ops.MAX_SHARDS + 1, torch.int64), device.zeros(1, torch.int64)
        gather_tiered(device, self.slots.table, ids, out, counts, error)
        assert np.array_equal(device.read(out), self.rows[device.read(ids)])
        assert device.read(error)[0] == 0
        self.hits += device.read(counts)

    def batch(self, ids: np.ndarray) -> None:
        finish(self, *self.look(ids))

    def cached(self) -> dict[int, int]:
        """The nodes that this rank holds, and their slots."""
        parts, slots = self.slots, self.slots.rank
        memory = torch.tensor(parts.memories.tolist())[slots]
        count = -(-NUM_NODES // parts.num_ranks)
        slot_of = np.frombuffer(MEMORIES[int(memory)].numpy(), np.int32, count, parts.slots_at)
        return {int(place) * parts.num_ranks + slots: int(slot_of[place]) for place in np.flatnonzero(slot_of >= 0)}


MEMORIES: dict[int, torch.Tensor] = {}
"""By address, for tests that look into them."""


def ranks(count: int, num_slots: int, row_bytes: int = 12, device: Callable[[int], Device] | None = None) -> list[Rank]:
    """Ranks of a cache whose memory is unwritten at first, as a device's is."""
    rows = np.random.default_rng(num_slots).integers(0, 256, (NUM_NODES, row_bytes), dtype=np.uint8)
    devices = [(device or (lambda rank: EmulatedDevice(seed=rank, num_processors=2)))(rank) for rank in range(count)]
    num_bytes = Parts.of(NUM_NODES, num_slots, row_bytes, count).num_bytes
    memories = [on.empty(num_bytes, torch.uint8) for on in devices]
    MEMORIES.clear()
    MEMORIES.update({memory.data_ptr(): memory for memory in memories})
    addresses = [*MEMORIES]
    return [
        Rank(on, rows, PartitionedSlots(on, NUM_NODES, num_slots, row_bytes, addresses, rank, on.put(rows)))
        for rank, on in enumerate(devices)
    ]


def popular(rng: np.random.Generator, count: int = BATCH) -> np.ndarray:
    return (NUM_NODES * rng.random(count) ** 3).astype(np.int64)


class Fifo:
    """What the ranks hold by the rules, where each batch is over before the next one begins."""

    def __init__(self, count: int, num_slots: int) -> None:
        self.count, self.num_slots, self.places = count, num_slots, max(num_slots // 4, 1)
        self.held: list[deque[int]] = [deque() for _ in range(count)]
        self.wanted = [0] * count
        self.sent: list[list[int]] = [[] for _ in range(count)]
        self.seen: list[set[tuple[int, int]]] = [set() for _ in range(count)]
        self.filled = [0] * count

    def batch(self, rank: int, ids: list[int]) -> int:
        """Returns the hits."""
        held = {node for nodes in self.held for node in nodes}
        missed = [node for node in ids if node not in held]
        own = self.held[rank]
        while own and self.num_slots - len(own) < self.wanted[rank]:
            own.popleft()
        num_sent = min(len(missed), self.places)
        self.sent[rank] = [missed[place * len(missed) // num_sent] for place in range(num_sent)]
        self.filled[rank] += 1
        candidates = list(self.sent[rank])
        for turn in range(1, self.count):
            other = (rank + turn) % self.count
            if (other, self.filled[other]) not in self.seen[rank]:
                self.seen[rank].add((other, self.filled[other]))
                candidates += self.sent[other]
        new = [node for node in dict.fromkeys(candidates) if node % self.count == rank and node not in own]
        self.wanted[rank] = min(len(new), self.places)
        own.extend(new[: min(self.places, self.num_slots - len(own))])
        return len(ids) - len(missed)


@pytest.mark.parametrize(("count", "num_slots"), [(1, 1), (1, 16), (2, 9), (3, 40), (8, 10)])
def test_one_after_the_other_they_hold_what_came_last(count: int, num_slots: int) -> None:
    together, model, rng = ranks(count, num_slots), Fifo(count, num_slots), np.random.default_rng(count)
    for _ in range(12 * count):
        ids, turn = popular(rng), int(rng.integers(count))
        rank = together[turn]
        before = rank.hits[:-1].sum()
        rank.batch(ids)
        assert rank.hits[:-1].sum() - before == model.batch(turn, ids.tolist())
        assert [*rank.cached()] == sorted(model.held[turn])
    assert sum(rank.hits[:-1].sum() for rank in together) > 0


@pytest.mark.parametrize("row_bytes", [1, 6, 400])
def test_ranks_on_one_device(device: Device, row_bytes: int) -> None:
    together, rng = ranks(2, 30, row_bytes, device=lambda rank: device), np.random.default_rng(row_bytes)
    for turn in range(20):
        together[turn % 2].batch(popular(rng, int(rng.integers(0, 40))))
    assert all(rank.hits[0] > 0 and rank.hits[1] > 0 for rank in together)


class TurnTaking(EmulatedDevice):
    """A device whose launches wait until they are drawn, so that those of several ranks mix in any order."""

    def __init__(self, seed: int, turns: Turns) -> None:
        super().__init__(seed=seed, num_processors=2)
        self.turns, self.rank = turns, seed

    def launch(self, *what: Any, **arguments: Any) -> None:
        self.turns.wait(self.rank)
        super().launch(*what, **arguments)


class Turns:
    """Draws whose launch is next, among the ranks that still run."""

    def __init__(self, count: int, seed: int) -> None:
        self._rng, self._changed = np.random.default_rng(seed), threading.Condition()
        self._running: list[int] = []
        self._count, self._next = count, -1

    def wait(self, rank: int) -> None:
        with self._changed:
            if rank in self._running:
                self._draw()
                self._changed.wait_for(lambda: self._next == rank, timeout=60)

    def run(self, works: list[Callable[[], None]]) -> None:
        """Runs each in a thread of its own; raises what one raised."""
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._next == rank, timeout=60)
                works[rank]()
            except BaseException as error:
                errors.append(error)
            finally:
                with self._changed:
                    self._running.remove(rank)
                    self._draw()

        self._running = list(range(len(works)))
        threads = [threading.Thread(target=partial(run, rank)) for rank in range(len(works))]
        for thread in threads:
            thread.start()
        with self._changed:
            self._draw()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _draw(self) -> None:
        if self._running:
            self._next = int(self._rng.choice(self._running))
            self._changed.notify_all()


@pytest.mark.parametrize("seed", range(4))
def test_launches_of_ranks_mix_in_any_order(seed: int) -> None:
    turns = Turns(3, seed)
    together = ranks(3, 12, device=lambda rank: TurnTaking(rank, turns))

    def work(rank: int) -> None:
        rng = np.random.default_rng((seed, rank))
        for _ in range(40):
            together[rank].batch(popular(rng))

    turns.run([partial(work, rank) for rank in range(3)])
    assert all(rank.hits[:3].min() > 0 for rank in together)
    for rank in together:
        memory = next(memory for number, memory in enumerate(MEMORIES.values()) if number == rank.slots.rank)
        held = memory.numpy()[rank.slots.rows_at :].reshape(-1, 12)
        for node, slot in rank.cached().items():
            assert np.array_equal(held[slot], rank.rows[node])
            assert rank.slots.node_of[slot] == node


def test_what_a_rank_has_found_stays_until_it_leaves() -> None:
    first, second = ranks(2, 8)
    for _ in range(8):
        first.batch(np.arange(16))
        second.batch(np.arange(16))
    asked, out = second.look(np.arange(16))
    for begin in range(16, 96, 4):  # five times as many as there are slots
        first.batch(np.arange(begin, begin + 4))
    second.gather(asked, out)  # at once, whatever came meanwhile
    assert second.hits[0] > 0
    second.slots.leave()
    before = first.cached()
    for _ in range(12):
        first.batch(np.arange(80, 96))
        second.batch(np.arange(80, 96))
    assert not before.keys() & first.cached().keys()  # they go on once it has left


def test_rows_that_others_send_wait_for_whoever_is_inside() -> None:
    owner, reader, late = ranks(3, 8)
    for _ in range(9):
        owner.batch(np.arange(0, 48, 3))
    sending = late.look(np.array([72]))  # sees no reader yet
    asked, out = reader.look(np.arange(0, 48, 3))
    finish(late, *sending)
    for _ in range(3):
        owner.batch(np.array([1]))
    assert 72 not in owner.cached()
    reader.gather(asked, out)
    assert reader.hits[0] > 0
    reader.slots.leave()


def test_who_enters_before_slots_are_cleared_may_read_them() -> None:
    owner, reader = ranks(2, 8)
    for _ in range(9):
        owner.batch(np.arange(0, 32, 2))
    ids = owner.device.put(np.array([68]))
    owner.slots.enter()
    asked, out = reader.look(np.arange(0, 32, 2))
    owner.slots.locate(ids)
    finish(owner, ids, owner.device.empty(12, torch.uint8).view(1, 12))
    assert 68 not in owner.cached()
    reader.gather(asked, out)
    assert reader.hits[0] > 0
    reader.slots.leave()


def finish(rank: Rank, asked: torch.Tensor, out: torch.Tensor) -> None:
    rank.gather(asked, out)
    rank.slots.admit(asked, out)
    rank.slots.leave()


def test_a_batch_that_fails_keeps_nobody_from_admitting() -> None:
    first, second = ranks(2, 8)
    second.look(np.arange(9))
    second.slots.leave()
    for _ in range(20):
        first.batch(np.arange(0, 40, 2))
    held = first.cached()
    assert len(held) >= 7
    first.batch(np.arange(0, 40, 2))
    assert held != first.cached()


def test_an_outbox_that_is_damaged_admits_nothing_wrong() -> None:
    first, second = ranks(2, 8)
    second.batch(np.arange(4))
    memory = [*MEMORIES.values()][1].numpy()
    header = memory[:16].view(np.int64)
    header[1] = header[1] & ~0xFFFFFFFF | 0xFFFFFFFF  # says that it has more rows than there is room for
    memory[second.slots.ids_at :][: 8 * second.slots.num_places].view(np.int64)[:] = -5
    first.batch(np.array([7]))
    assert first.cached() == {}
    first.batch(np.array([8]))
    assert [*first.cached()] == [8]


def test_ids_of_no_node_are_passed_over(device: Device) -> None:
    (alone,) = ranks(1, 20, 1, device=lambda rank: device)
    slots, ids = alone.slots, device.put(np.array([NUM_NODES, 3, -1]))
    slots.enter()
    slots.locate(ids)
    slots.admit(ids, device.zeros(3, torch.uint8))
    slots.leave()
    located = device.put(np.arange(NUM_NODES))
    slots.enter()
    slots.locate(located)
    slots.leave()
    assert np.flatnonzero(device.read(slots.location) >= 0).tolist() == [3]


def test_rows_of_another_width_are_refused(device: Device) -> None:
    (alone,) = ranks(1, 20, 4, device=lambda rank: device)
    with pytest.raises(GnnLoadError, match="4 bytes"):
        alone.slots.admit(device.put(np.arange(2)), device.zeros(2, torch.int64))


def test_more_slots_than_a_location_can_name_are_refused() -> None:
    with pytest.raises(GnnLoadError, match="268435457 slots"):
        PartitionedSlots(EmulatedDevice(), NUM_NODES, (1 << ops.SLOT_BITS) + 1, 1, [256], rank=0)


@pytest.mark.parametrize("num_ranks", [1, 3, 8])
def test_memory_holds_its_parts(num_ranks: int) -> None:
    for num_slots in (1, 7, 100):
        parts = Parts.of(1000, num_slots, 12, num_ranks)
        ends = [256 + -(-1000 // num_ranks) * 4, parts.ids_at + parts.num_places * 8]
        ends += [parts.sent_rows_at + parts.num_places * 12, parts.rows_at + num_slots * 12]
        assert [parts.ids_at, parts.sent_rows_at, parts.rows_at, parts.num_bytes] >= ends
        assert all(begin >= end for begin, end in zip(parts[2:], ends, strict=True))
        assert Parts.slots_in(parts.num_bytes, 1000, 12, num_ranks) == num_slots
        assert Parts.slots_in(parts.num_bytes - 1, 1000, 12, num_ranks) < num_slots


def test_an_outbox_is_withdrawn_while_its_rank_is_inside() -> None:
    sender, reader = ranks(2, 8)
    sender.batch(np.arange(8))
    sent = next(iter(MEMORIES.values())).numpy()[8:16].view(np.uint32)
    assert sent[0] == sender.slots.num_places
    sender.look(np.arange(8))
    assert sent[0] == 0  # or who enters now would read rows that the sender is to replace
    reader.batch(np.array([8]))
    assert reader.cached() == {}
