"""The contract: right samplers keep it, and each way to break it is found and named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.conform import Promise, check_sampler, contract_report
from lightning_gnnload.errors import ConformanceError

from . import samplers

PROMISE = Promise(max_in_degree=[4, 3], alone=True)


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_neighbor_sampler_keeps_it(expand, replaced: bool, edge_ids: bool) -> None:
    sampler = NeighborSampler([3, 4], replace=replaced, expand=expand, edge_ids=edge_ids)
    check_sampler(sampler, promise=Promise(max_in_degree=[3, 4], distinct_edges=not replaced, alone=True))


def test_a_sampler_without_a_choice_keeps_it() -> None:
    check_sampler(NeighborSampler([-1, -1], edge_ids=True), promise=Promise(random=False, alone=True))
    check_sampler(NeighborSampler([]), promise=Promise(random=False, max_in_degree=[]))


def test_a_sampler_in_python_keeps_it() -> None:
    report = contract_report(samplers.FloydSampler([4, 3]), promise=PROMISE)
    assert report.passed, str(report)
    assert all(each.num_cases > 0 for each in report.properties)


def test_a_report_names_every_property() -> None:
    report = contract_report(samplers.IgnoresStep([4, 3]), promise=PROMISE)
    assert not report.passed
    assert [each.name for each in report.properties if each.violation] == ["key matters"]
    assert "key matters: BROKEN" in str(report)
    assert report.broken is not None
    assert report.broken.violation.found == "the same batch, here and in all other cases"
    unsound = contract_report(samplers.SortsSeeds([4, 3]), promise=PROMISE)
    assert "copies agree: not reached" in str(unsound)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (samplers.Stateful, "same key same batch"),
        (samplers.Salted, "copies agree"),
        (samplers.ByThread, "threads agree"),
        (samplers.MainThreadOnly, "threads agree"),
        (samplers.GlobalGenerator, "generators do not matter"),
        (samplers.IgnoresStep, "key matters"),
        (samplers.IgnoresEpoch, "key matters"),
        (samplers.ShortSeed, "key matters"),
        (samplers.SharedByPlace, "company does not matter"),
        (samplers.NamedByPart, "parts agree"),
        (samplers.ReadsFurther, "parts agree"),
        (samplers.NoPrefix, "edges exist"),
        (samplers.Duplicates, "edges are distinct"),
        (samplers.OneTooMany, "counts are kept"),
        (samplers.PositionsForIds, "edge ids point at edges"),
        (samplers.NegativeWeights, "weights are finite"),
        (samplers.OtherTypes, "types are those of the graph"),
        (samplers.OtherColumns, "columns are declared"),
        (samplers.NeedsSeeds, "samples"),
        (samplers.WritesToTheGraph, "samples"),
        (samplers.SortsSeeds, "seeds first"),
        (samplers.WrapsSeeds, "bad seeds are refused"),
        (samplers.OneLayerLess, "one block a layer"),
        (samplers.ModestNeeds, "arenas of any size"),
    ],
)
def test_a_broken_sampler_is_found(broken, name: str) -> None:
    with pytest.raises(ConformanceError, match=f"breaks its contract, '{name}'.*On graph.*seeds .*expected.*found"):
        check_sampler(broken([4, 3]), promise=PROMISE)


def first_hop(layout, **change):
    """The layout with its nearest hop changed."""
    return replace(layout, hops=(replace(layout.hops[0], **change), *layout.hops[1:]))


def finds_nodes(layout):
    return layout.num_nodes > layout.hops[0].num_dst


def repeat_a_node(arena, layout):
    if finds_nodes(layout):
        nodes = arena[: 8 * layout.num_nodes].view(np.int64)
        nodes[-1] = nodes[0]


def change_last(part, dtype, value):
    def spoil(arena, layout):
        hop = layout.hops[-1]
        begin, count = {
            "indptr": (hop.indptr_offset, hop.num_dst + 1),
            "indices": (hop.indices_offset, hop.num_edges),
        }[part]
        arena[begin : begin + count * np.dtype(dtype).itemsize].view(dtype)[-1:] = value

    return spoil


def write_outside(arena, layout):
    if isinstance(arena.base, np.ndarray):  # the kit's own arenas lie in a larger array
        arena.base[arena.ctypes.data - arena.base.ctypes.data + arena.nbytes] = 0


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (repeat_a_node, "nodes are distinct"),
        (change_last("indptr", np.int32, 10**6), "indptr rises"),
        (change_last("indices", np.int32, -1), "local ids in range"),
        (change_last("indices", np.int32, 10**6), "local ids in range"),
        (lambda arena, layout: finds_nodes(layout) and replace(layout, num_nodes=layout.num_nodes - 1), "blocks chain"),
        (lambda arena, layout: first_hop(layout, num_src=layout.hops[0].num_dst), "blocks chain"),
        (write_outside, "arenas of any size"),
        (lambda arena, layout: replace(layout, free_begin=layout.free_begin - 64), "layout is sound"),
        (lambda arena, layout: replace(layout, free_end=layout.free_end + 64), "layout is sound"),
    ],
)
def test_a_spoiled_batch_is_found(spoil, name: str) -> None:
    with pytest.raises(ConformanceError, match=f"breaks its contract, '{name}'"):
        check_sampler(samplers.Spoiled(spoil))


def test_the_exception_of_a_sampler_is_the_cause() -> None:
    with pytest.raises(ConformanceError, match="no exception; found IndexError") as raised:
        check_sampler(samplers.NeedsSeeds([2]))
    assert isinstance(raised.value.__cause__, IndexError)


def test_a_graph_of_ones_own() -> None:
    graph = Graph.from_coo(np.arange(100).repeat(40) * 7 % 100, np.tile(np.arange(100), 40), 100)
    check_sampler(NeighborSampler([3, 2]), graph, promise=Promise(max_in_degree=[3, 2]))
    with pytest.raises(ConformanceError, match=r"On graph 'yours' \(100 nodes, 4000 edges\)"):
        check_sampler(samplers.IgnoresStep([3, 2]), graph)


def test_promises_are_what_is_asked_for() -> None:
    # A sampler that promises less is not held to more.
    check_sampler(samplers.SharedByPlace([4, 3]))
    check_sampler(samplers.OneTooMany([4, 3]))
    with pytest.raises(ConformanceError, match="max_in_degree has; found 2"):
        check_sampler(NeighborSampler([4, 3]), promise=Promise(max_in_degree=[4]))
