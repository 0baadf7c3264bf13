"""The statistical checks: each states a null hypothesis, draws, counts, and says how improbable the counts are.

A check runs over several settings and yields one :class:`Evidence` a setting. Trials are nodes of equal
neighbourhoods and consecutive steps, which the hypothesis holds to be independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightning_gnnload.conform.draw import Draw, by_node, positions, star_positions
from lightning_gnnload.conform.graphs import star_graph
from lightning_gnnload.conform.significance import Significance, binomials, multinomial, outcome_law
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import DrawKey

KEY = DrawKey(seed=7, epoch=1, step=2)


@dataclass(frozen=True)
class Evidence:
    """The result of one check in one setting."""

    setting: str
    num_trials: int
    chance: Significance
    worst: str = ""
    exact: bool = False

    @classmethod
    def of_rule(cls, setting: str, num_trials: int, faults: Sequence[str]) -> Evidence:
        """Makes the evidence for a rule, which holds where there are no faults; the first fault is shown."""
        chance = Significance(0.0, 0.0) if faults else Significance(1.0, 1.0)
        return cls(setting, num_trials, chance, faults[0] if faults else "", exact=True)


def existing_edges(draw: Draw, num_batches: int = 6) -> Iterator[Evidence]:
    """Every edge of every batch is an edge of the graph, batch after batch."""
    rng, num_nodes = np.random.default_rng(0), 300
    src, dst = rng.integers(0, num_nodes, (2, 3000))
    # With weights, for draws of any law.
    graph = Graph.from_coo(src, dst, num_nodes, edge_weight=np.ones(len(src), np.float32))
    for step in range(num_batches):
        hops = draw(graph, rng.permutation(num_nodes)[:20], [3, 3], DrawKey(KEY.seed, KEY.epoch, step))
        num_edges = sum(len(hop_edges.src) for hop_edges in hops)
        strangers = [
            f"{a} -> {b} at hop {hop} is no edge"
            for hop, hop_edges in enumerate(hops)
            for a, b in zip(hop_edges.src.tolist(), hop_edges.dst.tolist(), strict=True)
            if not 0 <= b < num_nodes or a not in graph.in_neighbors(b)
        ]
        yield Evidence.of_rule(f"batch {step}", num_edges, strangers)


def counts(draw: Draw, fanouts: Sequence[int], *, replace: bool = False, zeros: bool = False) -> Iterator[Evidence]:
    """Every node draws min(degree, fanout) neighbours of its own, none twice; with replacement, as many as the fanout.

    Degrees are 0, 1 and those around each fanout. With ``zeros``, every third neighbour has weight zero: it does
    not count and is never drawn.
    """
    for fanout in fanouts:
        degrees = np.repeat([0, 1, fanout - 1, fanout, fanout + 1, 2 * fanout, 10 * fanout], 20)
        pool = len(degrees) + np.arange(int(degrees.max()))
        # Each node's list starts at another place in the pool, so that another node's neighbour is noticed.
        lists = [np.roll(pool, node)[:degree] for node, degree in enumerate(degrees)]
        weights = [np.where(np.arange(degree) % 3 == 2, not zeros, True) for degree in degrees]
        indptr = np.concatenate([[0], np.cumsum(degrees), np.full(len(pool), degrees.sum())])
        graph = Graph.from_csc(indptr, np.concatenate(lists), edge_weight=np.concatenate(weights).astype(np.float32))
        hop_edges = draw(graph, np.arange(len(degrees)), [fanout], KEY)[0]
        faults = []
        for node, (neighbors, weight) in enumerate(zip(lists, weights, strict=True)):
            got, drawable = hop_edges.src[hop_edges.dst == node], neighbors[weight]
            expected = fanout * (len(drawable) > 0) if replace else min(len(drawable), fanout)
            num_distinct, num_neighbors = len(np.unique(got)), int(np.isin(got, drawable).sum())
            if (len(got), num_neighbors) != (expected, expected) or (num_distinct != expected and not replace):
                faults.append(
                    f"of {len(drawable)} neighbours to draw from, {expected} draws expected: "
                    f"{len(got)} found, {num_distinct} distinct, {num_neighbors} its own"
                )
        yield Evidence.of_rule(f"fanout {fanout}", len(degrees), faults)


def outcomes(
    draw: Draw, settings: Sequence[tuple[Sequence[float], int]], num_trials: int, *, replace: bool = False
) -> Iterator[Evidence]:
    """Each outcome of a draw has the probability that enumeration gives: equal weights, each subset the same.

    ``settings`` are ``(weights, fanout)``, few neighbours each, with ``num_trials`` draws.
    """
    for weights, fanout in settings:
        law = outcome_law(weights, fanout, replace)
        draws = np.sort(positions(draw, np.asarray(weights), fanout, num_trials, KEY), axis=1)
        probabilities = np.array(list(law.values()))
        place_values = len(weights) ** np.arange(fanout)[::-1]  # as digits, outcomes keep their order
        values, times = np.unique(draws @ place_values, return_counts=True)
        cells = np.array(list(law)) @ place_values
        frequency = np.zeros(len(cells), np.int64)
        possible = np.isin(values, cells)
        frequency[np.searchsorted(cells, values[possible])] = times[possible]
        equal = len(set(weights)) == 1
        subject = f"degree {len(weights)}" if equal else f"weights {' '.join(f'{weight:g}' for weight in weights)}"
        setting, num_impossible = f"{subject}, fanout {fanout}", len(draws) - int(frequency.sum())
        if num_impossible:
            yield Evidence.of_rule(setting, len(draws), [f"{num_impossible} draws that are impossible"])
        else:
            worst = _worst(list(map(str, law)), frequency, len(draws) * probabilities)
            yield Evidence(setting, len(draws), multinomial(frequency, probabilities), worst)


def inclusion(draw: Draw, settings: Sequence[tuple[int, int]], num_trials: int) -> Iterator[Evidence]:
    """Each neighbour is drawn with probability fanout / degree."""
    for degree, fanout in settings:
        draws = positions(draw, np.ones(degree), fanout, num_trials, KEY)
        frequency = np.bincount(draws.ravel(), minlength=degree)
        yield _evidence(degree, fanout, len(draws), frequency, fanout / degree, _neighbors(degree))


def ends(draw: Draw, settings: Sequence[tuple[int, int]], num_trials: int) -> Iterator[Evidence]:
    """The first and the last neighbour are drawn with probability fanout / degree: where loops go wrong."""
    for degree, fanout in settings:
        draws = positions(draw, np.ones(degree), fanout, num_trials, KEY)
        frequency = np.array([(draws == position).sum() for position in (0, degree - 1)])
        yield _evidence(degree, fanout, len(draws), frequency, fanout / degree, ["the first", "the last"])


def pairs(draw: Draw, settings: Sequence[tuple[int, int]], num_trials: int) -> Iterator[Evidence]:
    """Any two neighbours are drawn together with probability f (f - 1) / (d (d - 1)).

    It sees dependence between neighbours where subsets are too many to count.
    """
    for degree, fanout in settings:
        draws = positions(draw, np.ones(degree), fanout, num_trials, KEY)
        # float32, as NumPy multiplies whole numbers without BLAS; counts below 2**24 are exact in it.
        chosen = np.zeros((len(draws), degree), np.float32)
        np.put_along_axis(chosen, draws, 1, axis=1)
        first, second = np.triu_indices(degree, 1)
        together = np.rint((chosen.T @ chosen)[first, second]).astype(np.int64)
        probability = fanout * (fanout - 1) / (degree * (degree - 1))
        names = [f"neighbours {a} and {b}" for a, b in zip(first, second, strict=True)]
        yield _evidence(degree, fanout, len(draws), together, probability, names)


def proportions(draw: Draw, settings: Sequence[tuple[np.ndarray, int]], num_trials: int) -> Iterator[Evidence]:
    """Draws with replacement, and single draws, are independent and proportional to the weights.

    ``settings`` are ``(weights, fanout)``, with ``num_trials`` nodes, each of which makes ``fanout`` draws.
    """
    for weights, fanout in settings:
        draws = positions(draw, weights, fanout, num_trials, KEY).ravel()
        frequency, law = np.bincount(draws, minlength=len(weights)), weights / weights.sum()
        worst = _worst(_neighbors(len(weights)), frequency, len(draws) * law)
        yield Evidence(f"degree {len(weights)}, fanout {fanout}", len(draws), multinomial(frequency, law), worst)


def coincidences(draw: Draw, settings: Sequence[tuple[int, int]], num_trials: int) -> Iterator[Evidence]:
    """With replacement, any two draws of a node coincide with probability 1 / degree: no random word serves twice."""
    for degree, fanout in settings:
        draws = positions(draw, np.ones(degree), fanout, num_trials, KEY)
        first, second = np.triu_indices(fanout, 1)
        equal = (draws[:, first] == draws[:, second]).sum(axis=0)
        names = [f"draws {a} and {b} coincide" for a, b in zip(first, second, strict=True)]
        yield _evidence(degree, fanout, len(draws), equal, 1 / degree, names)


def hubs(draw: Draw, weights: np.ndarray, fanout: int, num_trials: int) -> Iterator[Evidence]:
    """Checks a node with very many neighbours: each 64th of its list, and both ends, get their share of the draws.

    A draw of too few bits, or one that stops short, fails here. Where weights differ, the fanout must be 1.
    """
    degree = len(weights)
    draws = np.sort(positions(draw, weights, fanout, num_trials, KEY), axis=None)
    cuts = np.linspace(0, degree, 65, dtype=np.int64)
    begins = np.array([*cuts[:-1], 0, degree - degree // 1000])
    stops = np.array([*cuts[1:], degree // 1000, degree])
    frequency = np.searchsorted(draws, stops) - np.searchsorted(draws, begins)
    below = np.concatenate([[0.0], np.cumsum(weights)])
    shares = (below[stops] - below[begins]) / below[-1]
    names = [f"neighbours {begin} to {stop - 1}" for begin, stop in zip(begins, stops, strict=True)]
    yield _evidence(degree, fanout, draws.size, frequency, shares, names)


def between(draw: Draw, apart: str, num_trials: int) -> Iterator[Evidence]:
    """Two choices that differ in nothing but what the check names are independent, and uniform.

    ``apart`` is ``"nodes"``, ``"hops"``, ``"steps"``, ``"epochs"`` or ``"seeds"``. At the second hop it is the same
    node's second choice or, where a node is not expanded twice, that of the neighbour it chose.
    """
    degree, seed, epoch, step = 8, KEY.seed, KEY.epoch, KEY.step
    other_keys = {
        "steps": {"one step later": DrawKey(seed, epoch, step + 1)},
        "epochs": {"one epoch later": DrawKey(seed, epoch + 1, step)},
        "seeds": {"the next seed": DrawKey(seed + 1, epoch, step), "seed + 2**32": DrawKey(seed + 2**32, epoch, step)},
    }
    if apart == "hops":
        mine, partner = _two_hops(draw, degree, num_trials)
        partners = {"two hops": partner}
    elif apart == "nodes":
        chosen = positions(draw, np.ones(degree), 1, 2 * num_trials, KEY)[: 2 * num_trials, 0]
        mine, partners = chosen[::2], {"a node and the next": chosen[1::2]}
    else:
        star = star_graph(num_trials, np.ones(degree))
        mine, *partner_positions = (
            star_positions(draw, star, num_trials, 1, key)[:, 0] for key in (KEY, *other_keys[apart].values())
        )
        partners = dict(zip(other_keys[apart], partner_positions, strict=True))
    cells, law = [f"({a}, {b})" for a in range(degree) for b in range(degree)], np.full(degree**2, degree**-2)
    for name, partner in partners.items():
        frequency = np.bincount(mine * degree + partner, minlength=degree**2)
        yield Evidence(name, len(mine), multinomial(frequency, law), _worst(cells, frequency, len(mine) * law))


def over_time(draw: Draw, units: Sequence[str], num_trials: int) -> Iterator[Evidence]:
    """The choices of one node at successive steps, and in successive epochs, are uniform.

    That choices are uniform over nodes says nothing of one node over time.
    """
    star, law = star_graph(1, np.ones(10)), np.full(10, 0.1)
    for unit in units:
        keys = (DrawKey(0, 0, t) if unit == "steps" else DrawKey(0, t, 0) for t in range(num_trials))
        frequency = np.bincount([star_positions(draw, star, 1, 1, key)[0, 0] for key in keys], minlength=10)
        worst = _worst(_neighbors(10), frequency, num_trials * law)
        yield Evidence(f"{num_trials} {unit}", num_trials, multinomial(frequency, law), worst)


def _two_hops(draw: Draw, degree: int, num_trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws choices at two hops, ``[T]`` each. Nodes have neighbours of their own: trials must not share a choice."""
    first_leaf, first_end = num_trials, num_trials * (1 + degree)
    leaves = np.arange(first_leaf, first_end)
    shared = np.tile(np.arange(first_end, first_end + degree), len(leaves))
    indptr = np.concatenate([np.arange(first_end + 1) * degree, np.full(degree, first_end * degree)])
    indices = np.concatenate([leaves, shared])
    graph = Graph.from_csc(indptr, indices, edge_weight=np.ones(len(indices), np.float32))
    nodes = np.arange(num_trials)
    near, far = draw(graph, nodes, [1, 1], KEY)
    chosen = by_node(near, nodes, 1)[:, 0]
    again = by_node(far, nodes, 1)[:, 0] if np.isin(nodes, far.dst).all() else by_node(far, chosen, 1)[:, 0]
    # Both hops' neighbours begin at a multiple of the degree after the first leaf.
    return (chosen - first_leaf) % degree, (again - first_leaf) % degree


def _evidence(
    degree: int,
    fanout: int,
    num_trials: int,
    frequency: np.ndarray,
    probability: float | np.ndarray,
    names: Sequence[str],
) -> Evidence:
    expected = num_trials * np.broadcast_to(probability, frequency.shape)
    chance = binomials(frequency, num_trials, probability)
    return Evidence(f"degree {degree}, fanout {fanout}", num_trials, chance, _worst(names, frequency, expected))


def _worst(names: Sequence[str], frequency: np.ndarray, expected: np.ndarray) -> str:
    """Describes the count that lies farthest from what is expected, in units of its spread."""
    at = int(np.argmax(np.abs(frequency - expected) / np.sqrt(expected)))
    return f"{names[at]}: {frequency[at]} times, {expected[at]:.0f} expected"


def _neighbors(degree: int) -> list[str]:
    return [f"neighbour {position}" for position in range(degree)]
