import hashlib

import numpy as np
import pytest

from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.datasets.purchases import ACTIVE, AHEAD, BOUGHT_BY, BUYS, DAY, Purchases, Shop
from lightning_gnnload.errors import DatasetError

SHOP = {"num_users": 300, "num_items": 40, "days": 400}


@pytest.fixture
def shop() -> Shop:
    return Shop(**SHOP, seed=0)


def fingerprint(shop: Shop) -> str:
    arrays = (shop.user, shop.item, shop.time, shop.user_features, shop.item_features)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def test_the_same_seed_gives_the_same_bytes_everywhere(shop):
    # A changed number means that every user's data change.
    assert fingerprint(shop) == "54d33b0272b1cb86"
    assert fingerprint(Shop(**SHOP, seed=1)) != fingerprint(shop)


def test_labels_say_whether_a_purchase_follows(shop):
    """Against a plain loop over purchases. A bound that counts the wrong end, or another user's, fails here."""
    cuts = (180, 210, 330)
    wanted = []
    for cut in cuts:
        for user in range(SHOP["num_users"]):
            days = [time / DAY for time in shop.time[shop.user == user]]
            if any(cut - ACTIVE < day <= cut for day in days):
                wanted.append((user, cut * DAY, not any(cut < day <= cut + AHEAD for day in days)))
    table = shop.leavers(cuts)
    assert list(zip(table.ends[:, 0], table.time, table.y.bool().tolist(), strict=True)) == wanted
    assert 0.2 < table.y.float().mean() < 0.8


def test_a_purchase_at_the_very_time_counts_as_before(shop):
    shop.time[0] = 180 * DAY
    user = shop.user[0]
    first = shop.user == user
    shop.time[first] = 180 * DAY  # his only ones
    assert shop.bought(90, 180)[user]
    assert not shop.bought(180, 210)[user]


def test_purchases_are_sorted_and_within_the_days(shop):
    assert (np.diff(shop.user * 10**9 + shop.time) >= 0).all()
    assert (shop.time >= 0).all()
    assert (shop.time < SHOP["days"] * DAY).all()
    assert len(np.unique(shop.item)) == SHOP["num_items"] // 16 * 16


def test_users_leave_after_flawed_items(shop):
    """The last purchases are of flawed items more often than others: 0.25 * 0.4 / (0.25 * 0.4 + 0.75 * 0.04) = 0.77."""
    shop = Shop(3000, 200, 700, seed=3)
    flawed = shop.item_features[:, 8]  # scatters around 1 where there is a flaw, else around 0
    last = np.append(shop.user[1:] != shop.user[:-1], True)
    early = shop.time < 500 * DAY
    assert flawed[shop.item[last & early]].mean() > flawed[shop.item[~last]].mean() + 0.3


@pytest.fixture
def data() -> GraphData:
    return Purchases(**SHOP).load()


def test_splits_do_not_share_days(data):
    """No label of one split tells what happens within the days of the next."""
    times = [np.asarray(data.table(name).time) for name in SPLITS]
    assert times[0].max() + AHEAD * DAY <= times[1].min()
    assert times[1].max() + AHEAD * DAY <= times[2].min()
    assert times[2].max() + AHEAD * DAY <= SHOP["days"] * DAY
    assert all(len(np.unique(each)) == 2 for each in times[1:])


def test_the_graph_has_every_purchase_both_ways(data, shop):
    types = data.graph.types
    assert types.edge_types == (BUYS, BOUGHT_BY)
    assert data.graph.num_edges == 2 * len(shop.user)
    user = int(np.argmax(np.bincount(shop.user)))
    bought = data.graph.in_neighbors(types.range_of("user")[user]) - types.range_of("item").start
    assert bought.tolist() == shop.item[shop.user == user].tolist()  # in the order of time


@pytest.mark.parametrize("wrong", [{"num_users": 0}, {"num_items": 15}, {"days": 329}, {"seed": -1}, {"days": 400.5}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(DatasetError, match=next(iter(wrong))):
        Purchases(**wrong)
