"""What lies in a mini-batch's memory: placed without overlaps, viewed as it was written, and refused where it lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import MiniBatch
from lightning_gnnload.data.slab import EDGES, NODES, ROWS, SEEDS, Axis, Column, Header, Schema
from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.ops import HopLayout, SampleLayout

NUM_BYTES = 1 << 20
DTYPES = ("float32", "int8", "bfloat16", "int64", "bool", "float64", "complex128")
SOME, OF_TYPE, TIMES, ENDS = Axis("node", part=2), Axis("edge", part=1), Axis("row", part=0), Axis("row", part=1)


def drawn(random: np.random.Generator, *, share: bool) -> SampleLayout:
    """Two hops at the end of the memory; if they share, the first is a prefix of the second."""
    end = NUM_BYTES

    def array(count: int, itemsize: int) -> int:
        nonlocal end
        end -= -(-count * itemsize // 64) * 64
        return end

    num_edges = sorted(random.integers(20, size=2).tolist())
    num_dst = [3, 5 + int(random.integers(9)), 15 + int(random.integers(9))]
    hops = [
        HopLayout(num_dst[hop], num_dst[hop + 1], count, array(num_dst[hop] + 1, 4), array(count, 4), array(count, 8))
        for hop, count in enumerate(num_edges)
    ]
    if share:
        places = hops[1].indptr_offset, hops[1].indices_offset, hops[1].edge_ids_offset
        hops[0] = HopLayout(num_dst[0], num_dst[1], num_edges[0], *places)
    return SampleLayout(num_dst[2], tuple(hops), -(-8 * num_dst[2] // 64) * 64, end)


def columns_at(random: np.random.Generator) -> tuple[Column, ...]:
    def dtype() -> str:
        return str(random.choice(DTYPES))

    width = tuple(random.integers(4, size=random.integers(3)).tolist())
    return (
        Column(NODES, "x", dtype(), width=width),
        Column(NODES, "tables", dtype(), "nodes"),  # names of tables may be those of fields
        Column(NODES, "tables", dtype(), ""),
        Column(SOME, "positions", "int64"),
        Column(SOME, "tables", dtype(), "x", width),
        Column(SOME, "tables", dtype(), "y", width),
        Column(EDGES, "x", dtype(), width=width),
        Column(EDGES, "tables", dtype(), "indptr"),
        Column(OF_TYPE, "positions", "int64"),
        Column(OF_TYPE, "tables", dtype(), "edge_x", width),
        Column(ROWS, "y", dtype(), width=width),
        Column(TIMES, "seed_columns", dtype(), "time"),
        Column(ENDS, "seed_columns", "int64", "src"),
    )


def header_at(seed: int) -> tuple[Header, int, SampleLayout]:
    random, share = np.random.default_rng(seed), seed % 2 == 1
    layout, total = drawn(random, share=share), max if share else sum
    edges = [hop.num_edges for hop in layout.hops]
    of_type = sorted(int(random.integers(count + 1)) for count in edges) if share else [edges[0] // 2, edges[1] // 2]
    lengths = {SOME: int(random.integers(5)), EDGES: total(edges), OF_TYPE: total(of_type)}
    lengths |= {Axis("edge", hop, 1): count for hop, count in enumerate(of_type)}
    lengths |= {ROWS: int(random.integers(4)), TIMES: int(random.integers(4)), ENDS: 1 + int(random.integers(7))}
    header, end = Header.place(layout, 2, 4, 5, columns_at(random), lengths)
    return header, end, layout


@pytest.mark.parametrize("seed", range(40))
def test_columns_lie_apart_in_the_middle_and_are_viewed_as_they_were_written(seed: int) -> None:
    header, end, layout = header_at(seed)
    extents = header.extents()
    placed = extents[-13:]
    assert end <= layout.free_end
    assert all(begin % 64 == 0 and layout.free_begin <= begin <= last <= end for begin, last in placed)
    assert all(one[1] <= other[0] for one, other in pairwise(sorted(one for one in placed if one[0] < one[1])))
    assert header.end == max(last for _, last in extents)
    assert header.num_bytes == sum(max(last for at, last in extents if at == begin) - begin for begin in dict(extents))
    assert header.num_edges == header.length(EDGES)
    memory = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, NUM_BYTES, np.uint8))
    for batch in (MiniBatch.of(header, memory), MiniBatch.of(header, memory.numpy())):
        assert (batch.num_seeds, batch.epoch, batch.step, batch.num_nodes) == (2, 4, 5, layout.num_nodes)
        assert batch.tables.keys() == {"nodes", "", "x", "y"}
        assert batch.positions.keys() == {"x", "y"}
        assert len(batch.positions["x"]) == len(batch.tables["x"]) == header.length(SOME)
        assert batch.seed_columns.keys() == {"time", "src"}
        found = [batch.nodes, batch.x, batch.tables["nodes"], batch.tables["y"], batch.y, *batch.seed_columns.values()]
        for tensor, field_name, name in zip(
            found,
            ("nodes", "x", "tables", "tables", "y", "seed_columns", "seed_columns"),
            (None, None, "nodes", "y", None, "time", "src"),
            strict=True,
        ):
            keys = [(column.axis.entity != "edge", column.field, column.name) for column in header.schema.columns]
            begin, last = extents[keys.index((True, field_name, name))]
            assert torch.equal(tensor.contiguous().view(torch.uint8).flatten(), memory[begin:last])
        for hop, (block, of_hop) in enumerate(zip(batch.blocks[::-1], layout.hops, strict=True)):
            assert (block.num_dst, block.num_src, block.num_edges) == (of_hop.num_dst, of_hop.num_src, of_hop.num_edges)
            assert len(block.x) == len(block.tables["indptr"]) == block.num_edges
            assert len(block.positions["edge_x"]) == len(block.tables["edge_x"]) == header.length(Axis("edge", hop, 1))


def test_the_rows_of_hops_that_share_an_array_are_shared() -> None:
    for seed in (2, 3):
        header, _, layout = header_at(seed)
        inner, outer = MiniBatch.of(header, np.zeros(NUM_BYTES, np.uint8)).blocks[::-1]
        assert (inner.x.data_ptr() == outer.x.data_ptr()) == (seed == 3)
        assert layout.hops[0].num_edges > 0 < outer.x.numel()


@pytest.mark.parametrize("seed", range(4))
def test_a_header_survives_its_message(seed: int) -> None:
    header, *_ = header_at(seed)
    text, numbers = json.loads(json.dumps([header.schema.text, header.numbers()]))
    received = Header.of_numbers(Schema.of_text(text), numbers)
    assert received == header
    assert hash(received.schema) == hash(header.schema)
    assert received != header_at(seed + 1)[0]


def column(columns: list, name: str) -> list:
    return next(each for each in columns if each[1] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda axes, columns: axes.pop(),
        lambda axes, columns: axes.append(axes[0]),
        lambda axes, columns: axes.reverse(),
        lambda axes, columns: axes.append(["edge", 7, -1]),
        lambda axes, columns: axes.append(["node", 0, -1]),
        lambda axes, columns: axes.append(["cat", -1, -1]),
        lambda axes, columns: axes[0].append(0),
        lambda axes, columns: axes[0].__setitem__(1, -1.0),
        lambda axes, columns: axes[0].__setitem__(2, True),
        lambda axes, columns: axes.extend(["node", -1, number] for number in range(5000)),
        lambda axes, columns: columns.pop(0),
        lambda axes, columns: columns.append(columns[-1]),
        lambda axes, columns: columns.remove(column(columns, "indices")),
        lambda axes, columns: columns.remove(column(columns, "positions")),
        lambda axes, columns: columns.insert(0, columns.pop(3)),
        lambda axes, columns: columns[0].__setitem__(0, 99),
        lambda axes, columns: columns[0].__setitem__(0, "0"),
        lambda axes, columns: columns[0].__setitem__(1, "epoch"),
        lambda axes, columns: columns[0].__setitem__(2, "int32"),
        lambda axes, columns: columns[0].__setitem__(3, "ids"),
        lambda axes, columns: columns[0].__setitem__(4, [2]),
        lambda axes, columns: column(columns, "x").__setitem__(2, "save"),
        lambda axes, columns: column(columns, "x").__setitem__(2, 5),
        lambda axes, columns: column(columns, "x").__setitem__(4, [-1]),
        lambda axes, columns: column(columns, "x").__setitem__(4, ["a"]),
        lambda axes, columns: column(columns, "x").__setitem__(4, [2**50]),
        lambda axes, columns: column(columns, "x").__setitem__(4, None),
        lambda axes, columns: column(columns, "tables").__setitem__(3, None),
        lambda axes, columns: column(columns, "tables").__setitem__(3, 4),
        lambda axes, columns: column(columns, "positions").__setitem__(2, "float64"),
        lambda axes, columns: column(columns, "seed_columns").__setitem__(1, "tables"),
    ],
)
def test_malformed_columns_are_a_protocol_error(change: Callable[[list, list], Any]) -> None:
    axes, columns, seed_form = json.loads(header_at(2)[0].schema.text)
    change(axes, columns)
    with pytest.raises(QueueProtocolError, match="columns are malformed"):
        Schema.of_text(json.dumps([axes, columns, seed_form]))


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        ["nodes"],
        ["cats", []],
        [["nodes"], []],
        ["links", []],
        ["nodes", [[None, 0, 1, 1, 0]]],
        ["links", [[None, 0, 1, 1]]],
        ["links", [[None, None, 1, 1, 0]]],
        ["links", [[None, True, 1, 1, 0]]],
        ["links", [["abcd", 0, 1, 1, 0]]],
        ["links", [[["a", "b"], 0, 1, 1, 0]]],
        ["links", [[[], 0, 1, 1, 0]]],
        ["links", [[["a", "b", 3], 0, "1", 1, 0]]],
        ["links", 5],
    ],
)
def test_a_malformed_kind_of_seed_is_a_protocol_error(form: Any) -> None:
    axes, columns, _ = json.loads(header_at(2)[0].schema.text)
    with pytest.raises(QueueProtocolError, match="columns are malformed"):
        Schema.of_text(json.dumps([axes, columns, form]))


def number_of(header: Header, axis: Axis) -> int:
    return 2 + header.schema.number[axis]


@pytest.mark.parametrize(
    "change",
    [
        lambda header, numbers: numbers.pop(),
        lambda header, numbers: numbers.append(0),
        lambda header, numbers: numbers.__setitem__(0, -1),
        lambda header, numbers: numbers.__setitem__(1, 1.0),
        lambda header, numbers: numbers.__setitem__(2, True),
        lambda header, numbers: numbers.__setitem__(2, "7"),
        lambda header, numbers: numbers.__setitem__(number_of(header, SEEDS), header.num_nodes + 1),
        lambda header, numbers: numbers.__setitem__(number_of(header, Axis("ptr", 1)), 0),
        lambda header, numbers: numbers.__setitem__(number_of(header, EDGES), 0),
        lambda header, numbers: numbers.__setitem__(number_of(header, Axis("edge", 1, 1)), 10**6),
        lambda header, numbers: numbers.__setitem__(number_of(header, NODES), 2**47),
        lambda header, numbers: numbers.__setitem__(-1, 2**48),
        lambda header, numbers: numbers.__setitem__(-1, 4),
    ],
)
def test_a_malformed_header_is_a_protocol_error(change: Callable[[Header, list], Any]) -> None:
    header, *_ = header_at(2)
    change(header, numbers := header.numbers())
    with pytest.raises(QueueProtocolError, match="header is malformed"):
        Header.of_numbers(header.schema, numbers)


@pytest.mark.parametrize("name", ["nodes", "indptr", "indices", "x", "positions", "seed_columns"])
def test_what_lies_beyond_the_memory_is_no_batch(name: str) -> None:
    header, *_ = header_at(4)
    numbers, columns = header.numbers(), header.schema.columns
    at = next(at for at, each in enumerate(columns) if each.field == name and header.length(each.axis))
    numbers[at - len(columns)] = NUM_BYTES + 1024
    for memory in (np.zeros(NUM_BYTES, np.uint8), torch.zeros(NUM_BYTES, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="buffer"):
            MiniBatch.of(Header.of_numbers(header.schema, numbers), memory)
