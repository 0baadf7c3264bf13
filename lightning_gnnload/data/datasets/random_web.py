"""Random edge lists like the web's: pages in hosts, most links within a host, ids in the order of addresses."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.data.datasets.random_edges import CHUNK, Pairs, Purpose, fractions, stream, tosses

_PAGES_A_HOST = 64


def hosts(num_nodes: int, *, seed: int) -> np.ndarray:
    """Returns the first page of each host, int64 ``[H + 1]``, the last entry being ``num_nodes``; no host is empty.

    Host of rank r has pages in proportion to ``r ** -0.7``, 64 on average, and stands at a random place among the
    others.
    """
    count = max(1, num_nodes // _PAGES_A_HOST)
    sizes = np.arange(1, count + 1) ** -0.7
    shuffled = np.argsort(stream(seed, Purpose.IDS).random_raw(count), kind="stable")
    ends = np.rint(np.cumsum(sizes[shuffled]) * (num_nodes / sizes.sum())).astype(np.int64)
    # Rounding may leave a small host without a page: its two equal bounds become one.
    return np.unique(np.concatenate([[0], ends[:-1], [num_nodes]]))


def web(bounds: np.ndarray, num_pairs: int, *, homophily: float, seed: int) -> Pairs:
    """Links from pages drawn uniformly: with ``homophily`` to a page of the own host, else of one drawn by fame.

    Within a host, pages near its begin attract most links, as front pages do: a page's place is a uniform fraction to
    the power of 4. Hosts have random fame, which is drawn to the power of 5.

    Args:
        bounds: int64 ``[H + 1]``, as :func:`hosts` gives.

    Source: Boldi and Vigna, "The WebGraph framework I" (WWW'04), section 3: locality in the order of addresses.
    """
    num_hosts = len(bounds) - 1
    famous = np.argsort(stream(seed, Purpose.FAME).random_raw(num_hosts), kind="stable")
    ends, chosen, places, coins = (
        stream(seed, purpose) for purpose in (Purpose.FIRST_END, Purpose.SECOND_END, Purpose.PLACE, Purpose.COMMUNITY)
    )
    for start in range(0, num_pairs, CHUNK):
        size = min(CHUNK, num_pairs - start)
        first = (fractions(ends.random_raw(size)) * bounds[-1]).astype(np.int64)
        own = np.searchsorted(bounds, first, side="right") - 1
        other = famous[(fractions(chosen.random_raw(size)) ** 5 * num_hosts).astype(np.int64)]
        host = np.where(tosses(coins.random_raw(size), homophily), own, other)
        begin, end = bounds[host], bounds[host + 1]
        yield first, begin + (fractions(places.random_raw(size)) ** 4 * (end - begin)).astype(np.int64)
