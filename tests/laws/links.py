"""Links: how negatives are drawn, as draws that can be counted; and what no mini-batch of links may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.conform.checks import KEY, Evidence
from lightning_gnnload.conform.draw import Draw, DrawnEdges, drawn_edges
from lightning_gnnload.conform.graphs import timed_graphs
from lightning_gnnload.conform.rows import edges_at
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from lightning_gnnload.sample.seeds.negatives import Negatives
from lightning_gnnload.sample.seeds.rows import SeedBatch

_ROW_TIME = 50
# A negative is masked, and cannot be counted, where all of these fail; of 5 destinations 3 do.
_TRIES = 200


def negatives_draw(negatives_of: Callable[[int], Negatives]) -> Draw:
    """Returns the negatives of links as a :data:`.Draw` with replacement, from star graphs alone.

    The hubs of a star are sources, its leaves the destinations that may be drawn, one of them by a link that is later
    than the row. Beside them are three that may not: one that the hub leads to before, the row's own, a node that is
    later. So each leaf has the same probability, or one in proportion to the star's weights.

    Args:
        negatives_of: the settings for so many negatives a row.
    """
    held: list[tuple[Graph, Graph]] = []

    def draw(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        num_hubs = int(np.count_nonzero(graph.in_degrees))
        degree = graph.num_nodes - num_hubs
        if not held or held[0][0] is not graph:
            held[:] = [(graph, _bipartite(num_hubs, degree))]
        made, [num] = held[0][1], fanouts
        assert made.clock is not None
        settings = negatives_of(num)
        weights = None
        if settings.weight is not None:
            assert graph.edge_weight is not None
            of_nodes = np.concatenate([np.ones(num_hubs), graph.edge_weight[:degree], np.ones(3)])
            weights = Negatives.weigh(made, 0, of_nodes)
        rows, own = seeds + key.step * num_hubs, np.full(len(seeds), num_hubs + degree)
        until = made.clock.until(np.full(len(seeds), _ROW_TIME), "<=")
        drawn = settings.draw(made, 0, rows, seeds, own, until, key, weights=weights)
        return [DrawnEdges(np.repeat(seeds, num), drawn.ravel())]

    return draw


def uniform_negatives(num: int) -> Negatives:
    """Returns settings by which each node is as likely as another to be one of ``num`` negatives of a row."""
    return Negatives("triplet", num=num, tries=_TRIES)


def weighted_negatives(num: int) -> Negatives:
    """Returns settings by which nodes are drawn in proportion to a weight."""
    return Negatives("triplet", num=num, tries=_TRIES, weight="weight")


def no_leaks(draw: Draw, sampler: Sampler, every: Sequence[Negatives]) -> Iterator[Evidence]:
    """No negative is an edge before its row's time, or a node later than that; no link is an edge of its own batch.

    Args:
        draw: not asked.
        sampler: one whose rows share no nodes.
        every: settings to try.
    """
    graph = timed_graphs()["users, items and tags"]
    known, table = _known_edges(graph), _own_links(graph)
    rows, ends = np.arange(len(table)), table.nodes_in(graph)
    assert table.time is not None
    assert graph.node_time is not None
    for settings in every:
        asked = seed_kind(graph, sampler, table, LinkSettings(settings, exclude="reverse")).ask(rows, KEY)
        faults = []
        negatives = list(_negatives_of(asked, settings))
        for row, src, dst, false_end in negatives:
            time = table.time[row]
            if known.get((src, dst), np.inf) <= time or graph.node_time[false_end] > time:
                faults.append(f"negative {src} -> {dst} of row {row}, at {time}")
        arena, layout = draw_here(sampler, graph, asked.draw)
        batch = MiniBatch.view(arena, layout, len(asked.draw.seeds))
        assert batch.rows is not None
        types = graph.types
        assert types is not None
        own, back = types.edge_type_number(_LINK), types.edge_type_number("rev_buys")
        for block in batch.blocks:
            drawn, kind = drawn_edges(batch, block), edge_types(block, graph)
            src, dst = ends[batch.rows[block.edge_dst()]].T
            is_own = (kind == own) & (drawn.src == src) & (drawn.dst == dst)
            is_back = (kind == back) & (drawn.src == dst) & (drawn.dst == src)
            faults += [
                f"edge {drawn.src[at]} -> {drawn.dst[at]} in its own batch" for at in np.flatnonzero(is_own | is_back)
            ]
        yield Evidence.of_rule(f"{settings.mode}, corrupt {settings.corrupt}", len(negatives), faults)


_LINK: EdgeType = ("user", "buys", "item")
EVERY_MODE = (
    Negatives("binary", num=3, corrupt="both"),
    Negatives("triplet", num=3, corrupt="src"),
    Negatives("joint", num=40),
    Negatives("in_batch", num=40),
    Negatives("hard"),
)


def _negatives_of(asked: SeedBatch, settings: Negatives) -> Iterator[tuple[int, int, int, int]]:
    """Yields the row, the source, the destination and the false end of each negative."""
    columns = {name: np.asarray(column) for name, column in asked.columns.items()}
    src, dst = (asked.draw.seeds[columns[name]] for name in ("src", "dst"))
    assert asked.draw.queries is not None
    if "label" in columns:
        num_rows, of_seed = int((columns["label"] == 1).sum()), asked.draw.queries.of_seed
        for at in range(num_rows, len(src)):
            row = int(of_seed[columns["src"][at]])
            yield row, int(src[at]), int(dst[at]), int(src[at] if src[at] != src[row] else dst[at])
        return
    num_dst = settings.num_dst(columns["negatives"].shape[1])
    for row, at in zip(*np.nonzero(columns["negative_mask"]), strict=True):
        node = int(asked.draw.seeds[columns["negatives"][row, at]])
        yield int(row), *((int(src[row]), node) if at < num_dst else (node, int(dst[row]))), node


def _own_links(graph: Graph) -> SeedTable:
    """Makes a table of some of the graph's own links, each at its own time."""
    types = graph.types
    assert types is not None
    edges = np.flatnonzero(graph.edge_types_of(np.arange(graph.num_edges)) == types.edge_type_number(_LINK))[::7]
    src, dst = graph.indices[edges], np.searchsorted(graph.indptr, edges, side="right") - 1
    items = types.range_of("item")
    given = np.random.default_rng(4).integers(0, len(items), (len(edges), 20))
    return SeedTable(
        src=src - types.range_of("user").start,
        dst=dst - items.start,
        edge_type=_LINK,
        time=edges_at(graph, edges).time,
        columns={"negatives": given},
    )


def _known_edges(graph: Graph) -> dict[tuple[int, int], Any]:
    """Returns the earliest time of each pair of ends of links."""
    types = graph.types
    assert types is not None
    every = np.arange(graph.num_edges)
    links = every[graph.edge_types_of(every) == types.edge_type_number(_LINK)]
    time = edges_at(graph, links).time
    order = np.argsort(-time, kind="stable")  # of one pair the last entry stays: the earliest
    dst = np.searchsorted(graph.indptr, links, side="right") - 1
    return dict(
        zip(zip(graph.indices[links][order].tolist(), dst[order].tolist(), strict=True), time[order], strict=True)
    )


def _bipartite(num_hubs: int, degree: int) -> Graph:
    """Makes hubs that lead to no leaf but one, later; and to two of three more nodes, of which one is later itself."""
    hubs = np.arange(num_hubs)
    ends = [(hubs, np.full(num_hubs, leaf)) for leaf in (0, degree, degree + 1)]
    time = np.repeat([_ROW_TIME + 1, _ROW_TIME, 3], num_hubs)
    node_time = np.zeros(degree + 3, np.int64)
    node_time[degree + 2] = _ROW_TIME + 1
    kind = ("hub", "to", "leaf")
    return Graph.from_hetero(
        {"hub": num_hubs, "leaf": degree + 3},
        {kind: np.concatenate(ends, axis=1)},
        edge_time={kind: time},
        node_time={"leaf": node_time},
    )
