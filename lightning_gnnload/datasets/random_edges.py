"""Random edge lists with planted communities: Chung-Lu, R-MAT, citation and web.

Each generator yields chunks ``(first, second)`` of integer node ids, with self-loops and repeats, which
:func:`simple_graph` removes. All numbers come from the raw words of Philox bit generators, one for each
purpose, read in order: results depend on neither chunk sizes nor threads, and NumPy keeps these words stable.

Words of 64 bits give a fraction by their upper 53 bits and a coin toss by the other 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from enum import IntEnum

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import DatasetError

CHUNK = 1 << 18
RMAT_QUADRANTS = (0.57, 0.19, 0.19)
_COIN_SIDES = 1 << 11  # the bits of a word that a fraction leaves
_PAGES_A_HOST = 64

Pairs = Iterator[tuple[np.ndarray, np.ndarray]]


class Purpose(IntEnum):
    """Tells streams of random words apart, as the second word of their key. Numbers keep their meaning."""

    FIRST_END = 0
    SECOND_END = 1
    COMMUNITY = 2
    IDS = 3
    CENTROIDS = 4
    NOISE = 5
    SPLITS = 6
    FAME = 7
    PLACE = 8
    PURCHASES = 9


def stream(seed: int, purpose: Purpose) -> np.random.Philox:
    """Returns the random words of a seed for a purpose, apart from those for others."""
    return np.random.Philox(key=np.array([seed, purpose], np.uint64))


def fractions(words: np.ndarray) -> np.ndarray:
    """Returns a fraction in [0, 1) for each word, float64."""
    return (words >> np.uint64(11)) * 2.0**-53


def tosses(words: np.ndarray, probability: float) -> np.ndarray:
    """Returns a bool for each word, true with ``probability`` (to 1 in 2048), independent of its :func:`fractions`."""
    return (words & np.uint64(_COIN_SIDES - 1)) < np.uint64(round(probability * _COIN_SIDES))


def chung_lu(num_nodes: int, num_pairs: int, *, exponent: float, max_degree: float | None, seed: int) -> Pairs:
    """Draws both ends with probabilities proportional to ``(id + offset) ** (-1 / (exponent - 1))``.

    The degrees then follow a power law of that exponent; the offset makes node 0, the greatest, expect
    ``max_degree`` ends (None: the geometric mean of the mean and the most that can be). Drawn by inverting
    the distribution function: ids come by falling expected degree. A platform whose ``pow`` differs in the
    last bit may give one other end in some 10**9.

    Source: Chung and Lu, Connected components in random graphs with given expected degree sequences, 2002.
    """
    rise = 1 - 1 / (exponent - 1)
    offset = _offset(num_nodes, 2 * num_pairs, max_degree, rise)
    low, high = offset**rise, (num_nodes + offset) ** rise
    sides = stream(seed, Purpose.FIRST_END), stream(seed, Purpose.SECOND_END)

    def draw(words: np.ndarray) -> np.ndarray:
        rank = (low + fractions(words) * (high - low)) ** (1 / rise) - offset
        return np.clip(rank, 0, num_nodes - 1).astype(np.int64)

    for start in range(0, num_pairs, CHUNK):
        first, second = (draw(end.random_raw(min(CHUNK, num_pairs - start))) for end in sides)
        yield first, second


def _offset(num_nodes: int, num_ends: int, max_degree: float | None, rise: float) -> float:
    def greatest(offset: float) -> float:
        share: float = ((1 + offset) ** rise - offset**rise) / ((num_nodes + offset) ** rise - offset**rise)
        return num_ends * share

    reachable, mean = greatest(0.0), num_ends / num_nodes
    if max_degree is None:
        max_degree = math.sqrt(mean * reachable)
    if not mean < max_degree <= reachable:
        raise DatasetError(
            f"max_degree is {max_degree:g}, but with {num_nodes} nodes, a mean degree of {mean:g} and this "
            f"exponent it must lie above the mean and be at most {reachable:g}. Change max_degree, num_edges "
            f"or exponent."
        )
    low, high = -60.0, 60.0  # of log(offset); the greatest degree falls as the offset grows
    for _ in range(100):
        middle = (low + high) / 2  # 100 halvings reach the last bit of a float64
        low, high = (middle, high) if greatest(math.exp(middle)) > max_degree else (low, middle)
    return math.exp(low)


def rmat(num_nodes: int, num_pairs: int, *, seed: int) -> Pairs:
    """Draws each pair by halving the adjacency matrix again and again, with :data:`RMAT_QUADRANTS` as probabilities.

    Made for the next power of two and scaled down to ``num_nodes``. A level takes 16 bits.

    Source: Chakrabarti, Zhan and Faloutsos, R-MAT: a recursive model for graph mining, 2004.
    """
    levels = (num_nodes - 1).bit_length()
    num_words = -(-levels // 4)
    a, ab, abc = (np.uint64(round(bound * 2**16)) for bound in np.cumsum(RMAT_QUADRANTS))
    source = stream(seed, Purpose.FIRST_END)
    chunk = CHUNK // 4  # the temporaries of the loop below then stay in the core's own cache
    for start in range(0, num_pairs, chunk):
        size = min(chunk, num_pairs - start)
        words = np.ascontiguousarray(source.random_raw(size * num_words).reshape(size, num_words).T)
        first, second = np.zeros((2, size), np.int64)
        for level in range(levels):
            draw = (words[level // 4] >> np.uint64(16 * (level % 4))) & np.uint64(0xFFFF)
            lower = draw >= ab
            first = 2 * first + lower
            second = 2 * second + np.where(lower, draw >= abc, draw >= a)
        yield (first * num_nodes) >> levels, (second * num_nodes) >> levels


def with_communities(pairs: Pairs, num_nodes: int, num_communities: int, *, homophily: float, seed: int) -> Pairs:
    """Moves the second end, with probability ``homophily``, to the nearest id of the first end's community.

    A node's community is its id modulo their number. Nearby ids have like degrees in these generators, so
    that degrees hardly change: Chung-Lu becomes a degree-corrected block model. 0 leaves pairs as they are.
    """
    coins = stream(seed, Purpose.COMMUNITY)
    for first, second in pairs:
        kin = second - second % num_communities + first % num_communities
        kin -= num_communities * (kin >= num_nodes)
        yield first, np.where(tosses(coins.random_raw(len(first)), homophily), kin, second)


def citations(community: np.ndarray, num_pairs: int, *, exponent: float, homophily: float, seed: int) -> Pairs:
    """Draws citations: nodes arrive in the order of their ids, and each cites earlier ones, ``first > second``.

    A citation picks an earlier node uniformly and either cites it or, with probability ``1 / (exponent - 1)``, copies
    what that node cites: being cited often attracts citations, and in-degrees follow a power law. With probability
    ``homophily`` all this happens within the citing node's ``community``, integer ``[N]``. A node with nobody earlier
    to cite yields a self-loop.

    Source: Kleinberg et al., The web as a graph, 1999 (the copying model).
    """
    num_nodes = len(community)
    nodes = np.arange(num_nodes)
    by_community = np.argsort(community, kind="stable")
    grouped = community[by_community]
    eldest = np.searchsorted(grouped, grouped)  # for each position, where its community begins
    copying = 1 / (exponent - 1)
    anyone, own_words, coins = (
        stream(seed, purpose) for purpose in (Purpose.FIRST_END, Purpose.SECOND_END, Purpose.COMMUNITY)
    )
    num_rounds = -(-num_pairs // num_nodes)
    for round_ in range(num_rounds):
        cited = _cite_earlier(np.zeros(num_nodes, np.int64), anyone.random_raw(num_nodes), copying)
        kin = np.empty(num_nodes, np.int64)
        kin[by_community] = by_community[_cite_earlier(eldest, own_words.random_raw(num_nodes), copying)]
        words = coins.random_raw(num_nodes)
        second = np.where(tosses(words, homophily), kin, cited)
        if round_ < num_rounds - 1:
            yield nodes, second
        else:  # the mean number of citations is rarely whole: only some nodes make the last one
            # They are chosen by the bits that the toss above has not used.
            some = np.argsort(words >> np.uint64(11), kind="stable")[: num_pairs - round_ * num_nodes]
            yield some, second[some]


def _cite_earlier(eldest: np.ndarray, words: np.ndarray, copying: float) -> np.ndarray:
    """Draws for each position an earlier one, not before ``eldest``; its own where it is the eldest."""
    position = np.arange(len(eldest))
    earlier = eldest + (fractions(words) * (position - eldest)).astype(np.int64)
    # The eldest cites nobody, so that nothing can be copied from it.
    copied = np.where(tosses(words, copying) & (earlier > eldest), earlier, position)
    # Chains of copies end at a node that chose for itself; each turn halves what is left of every chain.
    while True:
        further = copied[copied]
        if np.array_equal(further, copied):
            return earlier[copied]
        copied = further


def simple_graph(
    pairs: Pairs,
    num_nodes: int,
    num_pairs: int,
    *,
    symmetric: bool,
    advance: Callable[[int], None] = lambda _: None,
) -> Graph:
    """Builds the graph of at most ``num_pairs`` pairs, without self-loops and repeats; in-neighbours come in ascending
    order. ``first -> second`` is an edge, with ``symmetric`` both ways. Memory: about 25 bytes a pair at the peak."""
    bits = max(1, (num_nodes - 1).bit_length())
    # A pair in one number: sorting these is several times as fast as sorting by two columns.
    keys = np.empty(num_pairs, np.int64)
    filled = 0
    for first, second in pairs:
        if symmetric:
            first, second = np.minimum(first, second), np.maximum(first, second)
        key = (np.left_shift(first, bits, dtype=np.int64) | second)[first != second]
        keys[filled : filled + len(key)] = key
        filled += len(key)
        advance(len(first))
    keys = keys[:filled]
    keys.sort()
    fresh = np.ones(filled, bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    keys = keys[fresh]

    count = len(keys)
    src, dst = (np.empty(2 * count if symmetric else count, np.int32) for _ in range(2))
    np.right_shift(keys, bits, out=src[:count], casting="unsafe")
    np.bitwise_and(keys, (1 << bits) - 1, out=dst[:count], casting="unsafe")
    del keys, fresh
    if symmetric:
        # Every node's smaller neighbours come from the first half and its greater ones from the second, both
        # ascending by src, and from_coo is stable: this is what sorts the in-neighbours.
        src[count:], dst[count:] = dst[:count], src[:count]
    return Graph.from_coo(src, dst, num_nodes)


def hosts(num_nodes: int, *, seed: int) -> np.ndarray:
    """Returns the first page of each host, int64 ``[H + 1]``, the last entry being ``num_nodes``; no host is empty. The
    host of rank r has pages in proportion to ``r ** -0.7``, 64 on average; hosts are shuffled."""
    count = max(1, num_nodes // _PAGES_A_HOST)
    sizes = np.arange(1, count + 1) ** -0.7
    shuffled = np.argsort(stream(seed, Purpose.IDS).random_raw(count), kind="stable")
    bounds = np.rint(np.cumsum(sizes[shuffled]) * (num_nodes / sizes.sum())).astype(np.int64)
    # Rounding may leave a small host without a page: its two equal bounds become one.
    return np.unique(np.concatenate([[0], bounds[:-1], [num_nodes]]))


def web(bounds: np.ndarray, num_pairs: int, *, homophily: float, seed: int) -> Pairs:
    """Links from pages drawn uniformly: with ``homophily`` to a page of the own host, else of one drawn by fame.

    Pages near the begin of a host, which ``bounds`` has as :func:`hosts` gives them, attract most links, as front pages
    do: a page's position is a uniform fraction to the power of 4. Hosts have random fame, which is drawn to the power
    of 5.

    Source: Boldi and Vigna, "The WebGraph framework I" (WWW'04), section 3: locality in the order of addresses.
    """
    num_hosts = len(bounds) - 1
    famous = np.argsort(stream(seed, Purpose.FAME).random_raw(num_hosts), kind="stable")
    sources, host_words, page_words, coins = (
        stream(seed, purpose) for purpose in (Purpose.FIRST_END, Purpose.SECOND_END, Purpose.PLACE, Purpose.COMMUNITY)
    )
    for start in range(0, num_pairs, CHUNK):
        size = min(CHUNK, num_pairs - start)
        first = (fractions(sources.random_raw(size)) * bounds[-1]).astype(np.int64)
        own_host = np.searchsorted(bounds, first, side="right") - 1
        famous_host = famous[(fractions(host_words.random_raw(size)) ** 5 * num_hosts).astype(np.int64)]
        host = np.where(tosses(coins.random_raw(size), homophily), own_host, famous_host)
        begin, end = bounds[host], bounds[host + 1]
        yield first, begin + (fractions(page_words.random_raw(size)) ** 4 * (end - begin)).astype(np.int64)
