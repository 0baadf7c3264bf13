"""Answers that are not what was asked for are an ExchangeError: no other error, and no batch that looks like one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import LayerSampler, NeighborSampler, Sampler, ShadowSampler, WeightedNeighborSampler
from lightning_gnnload.errors import ExchangeError, ThreadLimitError
from lightning_gnnload.sample.group.exchange import Exchange, ThreadExchange
from lightning_gnnload.sample.group.group import OPERATIONS, OwnedLists, RankGroup
from lightning_gnnload.sample.group.messages import Answer, Message, Parcel, join
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.collective_walks import collective_random_walk
from tests.threadless import refused
from tests.unit.sample.parts.test_collective import random_graph
from tests.unit.sample.ranks import disjoint, on_ranks

GRAPH = random_graph(1)
PARTITION = disjoint(GRAPH, np.arange(GRAPH.num_nodes) % 2, 2)

DAMAGES: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "another number": lambda array: array[:1],
    "negative": lambda array: np.full(len(array), -5),
    "beyond int64": lambda array: np.full(len(array), 2**63, np.uint64),
    "of another kind": lambda array: array.astype("i8" if array.dtype.kind == "f" else "f8"),
    "none": lambda array: None,
}
TYPED = NeighborSampler([{1: 2, 4: -1}, 1])
WEIGHTED = WeightedNeighborSampler([3, 2], edge_ids=True)
LAYERS = LayerSampler([20, 20], "dsp", edge_ids=True, weighted=False)  # by weight, lists are pulled
CASES: list[tuple[str, str, Sampler | None, str]] = [
    *(("draw", name, WEIGHTED, "push") for name in ("counts", "neighbors", "edge_ids")),
    ("draw", "edge_type", TYPED, "push"),
    ("num_types", "num_types", TYPED, "push"),
    *(("lists", name, WEIGHTED, "pull") for name in ("counts", "neighbors", "edge_weight", "edge_starts")),
    ("degrees", "degrees", LAYERS, "push"),
    *(("edges", name, LAYERS, "push") for name in ("neighbors", "edge_ids")),
    *(("within", name, ShadowSampler([2], 2), "push") for name in ("counts", "neighbors")),
    ("step", "steps", None, "push"),
]


def sample_beside(operations: Mapping[str, Any], sampler: Sampler | None, paradigm: Any) -> Any:
    """What the first of two ranks gets or raises, where the second does these operations."""

    def work(exchange: Exchange) -> Any:
        with RankGroup(PARTITION, exchange, operations if exchange.rank == 1 else OPERATIONS) as colleagues:
            if exchange.rank == 1:
                return None
            if sampler is None:
                return collective_random_walk(colleagues, np.arange(20), 3, paradigm=paradigm)
            return CollectiveSampler(sampler, colleagues, paradigm).sample(None, np.arange(30))

    return on_ranks(work, ThreadExchange.connect(2, timeout_s=10))[0]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("operation", "name", "sampler", "paradigm"), CASES)
def test_damaged_answers(operation: str, name: str, sampler: Sampler | None, paradigm: str, damage: str) -> None:
    def badly(owned: OwnedLists, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
        arrays = dict(OPERATIONS[operation](owned, rows, task))
        damaged = DAMAGES[damage](arrays.pop(name))
        return arrays if damaged is None else {**arrays, name: damaged}

    found = sample_beside({**OPERATIONS, operation: badly}, sampler, paradigm)
    if (name, damage) == ("num_types", "another number"):
        return  # it is one number in any case
    assert isinstance(found, ExchangeError), found


def test_a_rank_whose_thread_cannot_start_leaves_the_others() -> None:
    def work(exchange: Exchange) -> Any:
        with RankGroup(PARTITION, exchange) as colleagues:
            return colleagues.ask("degrees", np.arange(30))

    with refused(0, "gnnload-all-to-all", times=1):
        errors = on_ranks(work, ThreadExchange.connect(2, timeout_s=10))
    assert {type(error) for error in errors} == {ThreadLimitError, ExchangeError}


def test_numbers_beyond_the_graph_are_refused() -> None:
    answer = Answer(1, np.arange(2), {"neighbors": np.array([3, 60], np.uint8)})
    with pytest.raises(ExchangeError, match=r"rank 1 .* neighbors uint8 \[2\] in \[3, 60\], but .*\[0, 60\)"):
        answer.numbers("neighbors", 60, 2)
    with pytest.raises(ExchangeError, match="no counts"):
        answer.numbers("counts", 60, 2)


def message_of(head: bytes) -> np.ndarray:
    return join([np.array([len(head)], np.int64).view(np.uint8), np.frombuffer(head, np.uint8)])


@pytest.mark.parametrize(
    "head",
    [
        b"[" * 100_000,
        json.dumps([["about"], []]).encode(),
        json.dumps([{}, [[7, "<i8", 0]]]).encode(),
        json.dumps([{}, [["rows", "<i8", 2**62]]]).encode(),
        json.dumps([{}, [["rows", "<i8", -1]]]).encode(),
        json.dumps([{}, [["rows", "O", 1]]]).encode(),
    ],
)
def test_bytes_that_are_no_message(head: bytes) -> None:
    with pytest.raises(ExchangeError, match="no message"):
        Message.from_bytes(message_of(head))


@pytest.mark.parametrize("size", [-9, 2**63 - 1])
def test_a_head_of_an_impossible_size(size: int) -> None:
    with pytest.raises(ExchangeError, match="no message"):
        Message.from_bytes(np.array([size, 0], np.int64).view(np.uint8))


def test_a_state_that_no_rank_has() -> None:
    """Such a rank would count as one that never leaves."""
    with pytest.raises(ExchangeError, match="no parcel"):
        Parcel.from_bytes(Message({"state": 3, "reason": "", "busy": False}, {}).to_bytes())
