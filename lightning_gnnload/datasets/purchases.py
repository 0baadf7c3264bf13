"""Purchases: who buys what and when, made up; users leave, and the task is to say who."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.random_edges import Purpose, fractions, stream
from lightning_gnnload.errors import DatasetError

DAY = 86_400
BUYS, BOUGHT_BY = ("user", "buys", "item"), ("item", "rev_buys", "user")
# Days in which a user must have bought to be asked about, and days ahead that the question is about.
ACTIVE, AHEAD = 90, 30
FIRST_DAY = np.datetime64("2024-01-01", "s")
"""In tables, which have dates."""
FIRST_CUT, EVALUATION_CUTS = 180, 2
_MOST = 64  # purchases of a user
_TASTES = 16
_LOYAL = 0.9  # of purchases that are of the user's own taste
_FLAWED, _QUITS, _QUITS_FLAWED = 0.25, 0.04, 0.4  # of items; of users after a purchase; after one of a flawed item


@dataclass(frozen=True)
class Purchases(Dataset):
    """Makes up a shop's purchases; the task is to say at a time who buys nothing in the 30 days that follow.

    Users join, buy at a pace of their own (a purchase in 4 to 40 days) mostly what suits their taste, and leave for
    good after a purchase: after one in 25, but after 4 in 10 of items with a flaw, which a quarter of the items have.
    Every purchase is an edge ``("user", "buys", "item")`` and an edge ``("item", "rev_buys", "user")`` at that time;
    the edge table ``"time"`` has it, too. Times are int64, seconds from the first day on.

    Seeds are rows: every 30 days, from day 180 on, all users who bought something in the last 90 days, with label 1
    where no purchase follows within 30 days. The last two of these days are for testing, the two before for
    validation.

    Features say less than the graph: of users a hint of taste and of pace, float32 ``[num_users, 9]``; of items of
    taste and of flaw, ``[num_items, 9]``.

    Args:
        num_users: at least 1.
        num_items: at least 16, one of each taste.
        days: at least 330, so that there is a day to train on.
        seed: 0 to 2**64 - 1.

    Raises:
        DatasetError: settings out of range.

    Example:
        >>> Purchases(num_users=100, num_items=32).cuts[:3]
        (180, 210, 240)
    """

    num_users: int = 20_000
    num_items: int = 2_000
    days: int = 720
    seed: int = 0

    def __post_init__(self) -> None:
        shortest = FIRST_CUT + 2 * EVALUATION_CUTS * AHEAD + AHEAD
        ranges = {
            "num_users": (1, 2**30),
            "num_items": (_TASTES, 2**30),
            "days": (shortest, 10**6),
            "seed": (0, 2**64 - 1),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise DatasetError(f"Purchases: {name} is {value!r}; a whole number in [{low}, {high}] is needed.")

    @property
    def cuts(self) -> tuple[int, ...]:
        """The days of the questions."""
        return tuple(range(FIRST_CUT, self.days - AHEAD + 1, AHEAD))

    def prepare(self) -> None:
        """Does nothing: the data are made when they are loaded, in half a second."""

    def load(self) -> GraphData:
        shop = Shop(self.num_users, self.num_items, self.days, self.seed)
        num_nodes = {"user": self.num_users, "item": self.num_items}
        edges = {BUYS: (shop.user, shop.item), BOUGHT_BY: (shop.item, shop.user)}
        times = dict.fromkeys(edges, shop.time)
        graph = Graph.from_hetero(num_nodes, edges, edge_time=times, keep_order=True)
        edge_tables: dict[Any, Any] = {edge_type: {"time": shop.time} for edge_type in edges}
        train, val = self.cuts[: -2 * EVALUATION_CUTS], self.cuts[-2 * EVALUATION_CUTS : -EVALUATION_CUTS]
        return GraphData(
            graph,
            x={"user": shop.user_features, "item": shop.item_features},
            edge_tables=edge_tables,
            train=shop.leavers(train),
            val=shop.leavers(val),
            test=shop.leavers(self.cuts[-EVALUATION_CUTS:]),
            num_classes=2,
        )

    def write_tables(self, folder: str | os.PathLike[str]) -> None:
        """Writes the shop as CSV files, which ``gnnload build`` and :class:`.Tables` read: ``users.csv`` with
        ``user_id`` as ``u17``, and ``hint_0`` to ``hint_8``; ``items.csv`` with ``sku`` as ``i5``, and such hints; and
        ``purchases.csv`` with ``user_id``, ``sku``, and ``at``, a time in UTC, of 2024-01-01 and later.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Purchases(num_users=50, num_items=16, days=330).write_tables(folder)
            ...     print(open(f"{folder}/purchases.csv").readline().strip())
            user_id,sku,at
        """
        shop, home = Shop(self.num_users, self.num_items, self.days, self.seed), Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        users, items = (
            np.char.add(letter, np.arange(count).astype(str))
            for letter, count in (("u", self.num_users), ("i", self.num_items))
        )
        hints = [f"hint_{number}" for number in range(shop.user_features.shape[1])]
        at = (FIRST_DAY + shop.time).astype(str)
        tables = {
            "users": (["user_id", *hints], users, *shop.user_features.T),
            "items": (["sku", *hints], items, *shop.item_features.T),
            "purchases": (["user_id", "sku", "at"], users[shop.user], items[shop.item], at),
        }
        for name, (header, *columns) in tables.items():
            with open(home / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(header)
                writer.writerows(zip(*(column.tolist() for column in columns), strict=True))


class Shop:
    """Draws purchases, sorted by user and time, from one stream of random words, read in a fixed order."""

    def __init__(self, num_users: int, num_items: int, days: int, seed: int) -> None:
        self.num_users, self.num_items, self.days = num_users, num_items, days
        # All draws below come from one stream: their order is part of the data set.
        self._words = stream(seed, Purpose.PURCHASES)
        taste, flawed = np.arange(num_items) % _TASTES, self._fractions(num_items) < _FLAWED
        likes = (self._fractions(num_users) * _TASTES).astype(np.int64)
        pace = 4 * 10 ** self._fractions(num_users)  # days from one purchase to the next
        joined = self._fractions(num_users) * 0.9 * days
        self.user_features = self._features(likes, np.log10(pace / 4))  # float32 ``[U, 9]``
        self.item_features = self._features(taste, flawed)  # float32 ``[I, 9]``

        times = joined[:, None] - np.log1p(-self._fractions(num_users, _MOST)).cumsum(1) * pace[:, None]
        items = self._items(likes)
        quits = self._fractions(num_users, _MOST) < np.where(flawed[items], _QUITS_FLAWED, _QUITS)
        stays: np.ndarray = np.cumsum(quits, axis=1) - quits == 0  # the purchase that makes a user leave is the last
        # int64 [P] each, and seconds: purchases by user and time.
        self.user, nth = np.nonzero(stays & (times < days))
        self.item = items[self.user, nth]  # int64 ``[P]``
        self.time = (times[self.user, nth] * DAY).astype(np.int64)  # int64 ``[P]``, seconds

    def _fractions(self, *shape: int) -> np.ndarray:
        return fractions(self._words.random_raw(int(np.prod(shape)))).reshape(shape)

    def _items(self, likes: np.ndarray) -> np.ndarray:
        """Draws int64 ``[U, _MOST]``: a taste, mostly the user's own, and one of its items, the first most often."""
        shape = len(likes), _MOST
        anything = (self._fractions(*shape) * _TASTES).astype(np.int64)
        taste = np.where(self._fractions(*shape) < _LOYAL, likes[:, None], anything)
        items_a_taste = self.num_items // _TASTES  # the last num_items % _TASTES items are nobody's
        rank = (self._fractions(*shape) ** 2 * items_a_taste).astype(np.int64)
        return taste + rank * _TASTES

    def _features(self, taste: np.ndarray, trait: np.ndarray) -> np.ndarray:
        """Returns float32 ``[n, 9]``: eight numbers that scatter around those of the taste, then one around the
        trait, which lies in [0, 1]."""
        centre = self._fractions(_TASTES, 8)
        hints = np.column_stack([centre[taste], trait])
        return (hints + 2 * (self._fractions(*hints.shape) - 0.5)).astype(np.float32)

    @cached_property
    def _key(self) -> np.ndarray:
        """int64 ``[P]``, ascending: a number for each user and time."""
        return self.user * self._span + self.time

    @property
    def _span(self) -> int:
        return (self.days + 1) * DAY

    def bought(self, since: int, until: int) -> np.ndarray:
        """Returns which users bought in days ``(since, until]``, bool ``[U]``."""
        first = np.arange(self.num_users) * self._span
        low, high = (np.searchsorted(self._key, first + day * DAY, side="right") for day in (since, until))
        return high > low

    def leavers(self, cuts: tuple[int, ...]) -> SeedTable:
        """Returns a row for each of these days and each user who bought in the 90 days before: whether he then buys
        nothing for 30 days."""
        nodes, times, labels = [], [], []
        for cut in cuts:
            users = np.flatnonzero(self.bought(cut - ACTIVE, cut))
            nodes.append(users)
            times.append(np.full(len(users), cut * DAY))
            labels.append(~self.bought(cut, cut + AHEAD)[users])
        node, time, label = (np.concatenate(column) for column in (nodes, times, labels))
        return SeedTable(node, node_type="user", time=time, y=label.astype(np.int64))
