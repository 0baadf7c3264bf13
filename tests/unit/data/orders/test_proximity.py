import itertools
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders import shuffling
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.reads import BatchSpan, batch_spans, cache_reads, neighborhoods
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.sequences import RingOrder, breadth_first_ring, epoch_order
from lightning_gnnload.data.orders.shuffling import MOST_EXCESS, _saved, label_distance, mean_distance, smallest_within
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CheckpointError, LoaderConfigError, SeedError
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.module.settings import seed_order
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.workload import Workload
from tests.unit.toy import toy_data


def undirected(pairs: np.ndarray, num_nodes: int) -> Graph:
    return Graph.from_coo(*np.concatenate([pairs, pairs[::-1]], axis=1), num_nodes=num_nodes)


def ring(num_nodes: int) -> Graph:
    ids = np.arange(num_nodes)
    return undirected(np.stack([ids, np.roll(ids, 1)]), num_nodes)


def rings(graph: Graph, seeds: np.ndarray, number: int, seed: int = 0) -> list[np.ndarray]:
    return [breadth_first_ring(graph, seeds, seed + each) for each in range(number)]


# Rings, and what an epoch cuts of them.


def test_a_ring_walks_away_from_a_random_root() -> None:
    seeds = np.arange(40)[::-1].copy()
    roots = set()
    for order in rings(ring(40), seeds, 10):
        nodes = seeds[order]
        away = np.abs(nodes - nodes[0])
        assert np.all(np.diff(np.minimum(away, 40 - away)) >= 0)
        roots.add(nodes[0])
    assert len(roots) > 5  # of 40: that 10 roots fall on 5 or fewer has a probability below 1e-4


def test_large_components_come_first_wherever_the_root_is() -> None:
    # Of 200 nodes, 100 are alone, 60 are in pairs and 40 on one path: most roots are in none of the large ones.
    ids = np.arange(40)
    pairs = np.concatenate([np.stack([ids[1:], ids[:-1]]), np.arange(40, 100).reshape(-1, 2).T], axis=1)
    graph, seeds = undirected(pairs, 200), np.random.default_rng(0).permutation(200)
    for order in rings(graph, seeds, 5):
        nodes = seeds[order]
        assert nodes[:40].max() < 40
        assert np.all(nodes[40:100:2] // 2 == nodes[41:100:2] // 2)  # pairs stay together
        assert nodes[100:].min() >= 100


def test_edges_count_in_both_directions() -> None:
    # Each of ten hubs is the one in-neighbour of ten seeds: along in-edges alone, no seed leads to another.
    seeds = np.random.default_rng(0).permutation(np.arange(10, 110))
    graph = Graph.from_coo((np.arange(10, 110) - 10) // 10, np.arange(10, 110))
    for order in rings(graph, seeds, 3):
        hubs = (seeds[order] - 10) // 10
        assert np.all(hubs.reshape(10, 10) == hubs[::10, None])


def test_rings_and_orders_do_not_depend_on_how_the_seeds_came() -> None:
    graph, seeds = ring(50), np.random.default_rng(0).permutation(50)[:30]
    given, in_order = ([ids[order] for order in rings(graph, ids, 3)] for ids in (seeds, np.sort(seeds)))
    np.testing.assert_array_equal(given, in_order)
    other = [np.sort(seeds)[order] for order in rings(graph, np.sort(seeds), 3, seed=3)]
    assert not np.array_equal(other, in_order)
    labels = torch.arange(50) // 10  # by which the number of sequences is chosen
    orders = [ProximityOrder().bind(graph, labels, 5).order(ids, seed=0, epoch=0) for ids in (seeds, np.sort(seeds))]
    np.testing.assert_array_equal(*orders)


@pytest.mark.parametrize(
    ("seeds", "message"), [([0, 7], "lie in .0, 7.*has 7 nodes"), ([-1, 0], "-1"), ([2, 2], "repeats")]
)
def test_seeds_that_are_none(seeds: list[int], message: str) -> None:
    with pytest.raises(SeedError, match=message):
        rings(ring(7), np.array(seeds), 1)


def test_every_place_is_as_likely_a_start() -> None:
    whole = np.arange(8, dtype=np.int32)
    starts = [epoch_order(whole, 1, 5, epoch)[0] for epoch in range(4000)]
    counts = np.bincount(starts, minlength=8)
    # 7 degrees of freedom: uniform starts exceed 40 with probability below 1e-5; the seed is fixed.
    assert ((counts - 500) ** 2 / 500).sum() < 40
    assert epoch_order(whole, 1, 5, 1).tolist() == np.roll(np.arange(8), -starts[1]).tolist()


@pytest.mark.parametrize(("num_seeds", "number"), [(1, 1), (7, 2), (60, 7), (61, 8), (300, 299), (5, 40)])
def test_sequences_take_turns_and_leave_no_gaps(num_seeds: int, number: int) -> None:
    given, turns = np.random.default_rng(0).permutation(num_seeds).astype(np.int32), min(number, num_seeds)
    place = np.argsort(given)
    for epoch in range(3):
        order = epoch_order(given, number, 0, epoch)
        assert sorted(order) == list(range(num_seeds))
        # The sequences: what each turn gave, in time; the last round may lack some.
        rounds = num_seeds // turns
        for turn in range(turns):
            places = place[order[: rounds * turns]][turn::turns]
            assert np.all(np.diff(places) % num_seeds == 1)


def test_turns_that_follow_each_other_are_far_apart() -> None:
    # Of 1,000 places in 64 sequences, those of any 8 turns in a row lie in all quarters: turns taken in the order of
    # places would leave them in one.
    order = epoch_order(np.arange(1000, dtype=np.int32), 64, 0, 0)
    for begin in range(0, 640, 8):
        quarters = (order[begin : begin + 8] - order[0]) % 1000 // 250
        assert len(set(quarters.tolist())) == 4


# The number of sequences.


def test_label_distance_by_hand() -> None:
    classes = np.array([0, 0, 1, 2, 0, 0, 1, 2, 1])
    # Shares 4/9, 3/9, 2/9; steps of 4: 2/4, 1/4, 1/4 twice; the last seed is left out.
    assert label_distance(classes, 4) == pytest.approx((2 / 4 - 4 / 9) + (1 / 4 - 2 / 9))
    assert label_distance(classes, 9) == 0
    assert label_distance(classes, 100) == 0  # one step, of all seeds
    assert label_distance(classes[:1], 4) == 0


def test_label_distance_is_the_total_variation() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, 640) * rng.integers(0, 2, 640)
    steps = [np.bincount(step, minlength=5) / 64 for step in classes.reshape(10, 64)]
    whole = np.bincount(classes) / 640
    assert label_distance(classes, 64) == pytest.approx(np.mean([np.abs(step - whole).sum() / 2 for step in steps]))


def test_labels_may_be_any_integers() -> None:
    classes = np.random.default_rng(0).integers(0, 5, 640)
    assert label_distance(np.array([-7, 3, 2**40, 11, 0])[classes], 64) == label_distance(classes, 64)


@pytest.mark.parametrize("first", [1, 2, 3, 7, 8, 9, 31, 32, 33, 40])
def test_the_smallest_number_within_the_bound(first: int) -> None:
    tried: list[int] = []

    def error(number: int) -> float:
        tried.append(number)
        return 1 / number

    assert smallest_within(1 / first, error, 33) == (min(first, 33), 1 / min(first, 33))
    assert len(tried) == len(set(tried)) <= 12
    assert max(tried) <= 33


def test_labels_and_reads_say_how_many_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    graph, seeds = ring(3000), np.arange(3000)
    # All of one label: one sequence is as good as a shuffle, and seeds beside each other share all neighbours.
    ProximityOrder().bind(graph, torch.zeros(3000, dtype=torch.long), 64).order(seeds, seed=0, epoch=0)
    said = capsys.readouterr().err
    assert "with 1 sequence, a cache of 10% of the rows misses" in said
    assert "shuffled" not in said
    # Labels go with the place on the ring: the number is the fewest whose labels are as near as was asked for.
    labels = torch.arange(3000) // 300
    order = ProximityOrder().bind(graph, labels, 64)
    order.order(seeds, seed=0, epoch=0)
    said = capsys.readouterr().err
    number = int(said.split("with ")[1].split()[0])
    assert 4 < number < 64
    size = {"seed": 0, "global_batch_size": 64}
    shuffled = mean_distance(Shuffled(), seeds, labels, **size)
    for tried, is_enough in ((number, True), (number - 1, False)):
        bound = ProximityOrder(tried).bind(graph, None, 64)
        assert (mean_distance(bound, seeds, labels, **size) <= shuffled + MOST_EXCESS) == is_enough
    given = ProximityOrder(number).bind(graph, None, 64)
    assert given.order(seeds, seed=0, epoch=3).tolist() == order.order(seeds, seed=0, epoch=3).tolist()
    assert not capsys.readouterr().err  # said once, and nothing where the number is given


def lattice(width: int) -> Graph:
    ids = np.arange(width * width).reshape(width, width)
    pairs = [(ids[:-1], ids[1:]), (ids[:, :-1], ids[:, 1:])]
    return undirected(
        np.concatenate([np.stack([one.ravel(), other.ravel()]) for one, other in pairs], axis=1), width**2
    )


def test_the_choice_does_not_depend_on_the_random_seed(capsys: pytest.CaptureFixture[str]) -> None:
    rows, columns = np.divmod(np.arange(60 * 60), 60)
    graph, labels = lattice(60), torch.from_numpy((rows * 7 + columns * 3) % 10)
    said, orders = set(), set()
    for seed in range(3):
        bound = ProximityOrder().bind(graph, labels, 32)
        orders.add(tuple(bound.order(np.arange(0, 3600, 2), seed=seed, epoch=0).tolist()))
        said.add(capsys.readouterr().err)
    assert len(said) == 1
    assert len(orders) == 3


@pytest.mark.parametrize(("width", "part", "sequences"), [(100, 40, 9), (100, 12, 40), (60, 8, 4)])
def test_what_is_saved_is_that_of_whole_epochs(width: int, part: int, sequences: int) -> None:
    graph, seeds, size = lattice(width), np.random.default_rng(1).permutation(width**2)[: width**2 // part], 16
    order = RingOrder(breadth_first_ring(graph, seeds, 0), sequences)
    num_steps = len(seeds) // size
    missed = []
    for each in (order, Shuffled()):
        stretch = BatchSpan(0, num_steps, max(600 // num_steps, 2) * num_steps)
        nodes = neighborhoods(graph, lambda epoch, each=each: each.order(seeds, seed=5, epoch=epoch), size, stretch)
        missed.append(cache_reads(nodes, stretch.warm_up, graph.num_nodes).missed)
    saved = 1 - missed[0] / missed[1]
    estimate = _saved(graph, order, seeds, size)
    assert estimate == pytest.approx(saved, abs=0.03)


def test_reads_are_looked_at_until_they_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[BatchSpan] = []

    def counted(*sizes: int) -> Iterator[BatchSpan]:
        for stretch in batch_spans(*sizes):
            taken.append(stretch)
            yield stretch

    monkeypatch.setattr(shuffling, "batch_spans", counted)
    seeds, order = np.arange(3000), RingOrder(breadth_first_ring(ring(3000), np.arange(3000), 0), 1)
    numbers = []
    for standard_errors in (4.0, 1e9):  # nine tenths are saved, which is soon clear; or nothing ever is
        monkeypatch.setattr(shuffling, "_STANDARD_ERRORS", standard_errors)
        _saved(ring(3000), order, seeds, 32)
        numbers.append(2 * sum(each.warm_up + each.counted for each in taken))
        taken.clear()
    assert 512 <= numbers[0] < numbers[1] <= 2560


def test_stretches_lie_all_over_the_epoch_each_after_what_warms_a_cache_up() -> None:
    # A cache of a tenth of 1000 rows turns over once in ten mini-batches of ten rows.
    some = list(itertools.islice(batch_spans(10, 1000, 400), 16))
    assert all(each.warm_up >= 15 and each.counted >= 16 and each.begin >= 0 for each in some)
    starts = [(each.begin + each.warm_up) % 400 for each in some]
    assert {start // 50 for start in starts[:13]} == set(range(8))
    epochs = [(each.begin + each.warm_up) // 400 for each in some]
    assert len(set(epochs)) == 16, "each is of another epoch, so that no cut of the ring decides"


def test_where_nothing_is_shared_seeds_are_shuffled(capsys: pytest.CaptureFixture[str]) -> None:
    # Of random neighbours, none are in common; and of pairs that are far between, any order breaks few.
    seeds = np.arange(0, 4000, 2)
    src, dst = np.random.default_rng(0).integers(0, 4000, (2, 40_000))
    graph, labels = Graph.from_coo(src, dst, num_nodes=4000), torch.zeros(4000, dtype=torch.long)
    order = ProximityOrder().bind(graph, labels, 16)
    assert order.order(seeds, seed=3, epoch=2).tolist() == Shuffled().order(seeds, seed=3, epoch=2).tolist()
    assert "5% are asked for: neighbours have too little in common. Seeds are shuffled." in capsys.readouterr().err


def test_labels_that_cannot_be_mixed_are_shuffled(capsys: pytest.CaptureFixture[str]) -> None:
    graph, seeds, labels = ring(8), np.arange(8), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    # A shuffle of few can be luckier than any cut of the ring, as here.
    ProximityOrder().bind(graph, labels, 3).order(seeds, seed=0, epoch=0)
    assert "no number of sequences mixes labels nearly as a shuffle does" in capsys.readouterr().err


def test_more_sequences_mix_labels_better() -> None:
    graph, seeds, labels = ring(2000), np.arange(2000), np.arange(2000) // 100
    distances = [
        np.mean(
            [
                label_distance(
                    labels[ProximityOrder(number).bind(graph, None, 64).order(seeds, seed=0, epoch=epoch)], 64
                )
                for epoch in range(4)
            ]
        )
        for number in (1, 4, 16, 64)
    ]
    assert all(more > 1.2 * fewer for more, fewer in itertools.pairwise(distances))


@pytest.mark.parametrize("labels", [None, torch.zeros(7, 2, dtype=torch.long), torch.zeros(7)])
def test_without_classes_the_number_must_be_given(labels: torch.Tensor | None) -> None:
    with pytest.raises(LoaderConfigError, match=r"ProximityOrder\(sequences=32\)"):
        ProximityOrder().bind(ring(7), labels, 2)
    ProximityOrder(1).bind(ring(7), labels, 2)


# The order.


def test_an_order_is_a_permutation_of_seed_and_epoch() -> None:
    graph, seeds = ring(60), np.random.default_rng(0).permutation(60)[:47]
    orders = {}
    for seed in range(4):
        bound = ProximityOrder(3).bind(graph, None, 8)
        for epoch in (0, 1, 2, 2**32 - 2):
            orders[seed, epoch] = bound.order(seeds, seed=seed, epoch=epoch).tolist()
            assert sorted(orders[seed, epoch]) == sorted(seeds)
    assert len({tuple(order) for order in orders.values()}) == 16
    # In another process, from the middle, with other batches: the same.
    again = pickle.loads(pickle.dumps(ProximityOrder(3))).bind(graph, None, 4)  # noqa: S301
    assert again.order(seeds, seed=2, epoch=1).tolist() == orders[2, 1]


def test_a_graph_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = breadth_first_ring
    monkeypatch.setattr(
        "lightning_gnnload.data.orders.proximity.breadth_first_ring",
        lambda *given: made.append(given) or original(*given),
    )
    order, graph, labels, seeds = ProximityOrder(), ring(60), torch.zeros(60, dtype=torch.long), np.arange(60)
    for epoch in range(3):
        order.bind(graph, labels, 8).order(seeds.copy(), seed=0, epoch=epoch)
    assert len(made) == 1
    for other in ({"seed": 1}, {"seed": 1, "size": 16}, {"seed": 1, "size": 16, "graph": ring(60)}):
        bound = order.bind(other.get("graph", graph), labels, other.get("size", 8))
        bound.order(seeds, seed=other["seed"], epoch=0)
    assert len(made) == 3, "for another batch size, and another graph, but for no other random seed"
    for seed in range(2):
        ProximityOrder(2).bind(graph, None, 8).order(seeds, seed=seed, epoch=0)
    assert len(made) == 5, "a search may start anywhere where the number is given"
    assert pickle.loads(pickle.dumps(order))._bound is None  # noqa: S301


def test_settings() -> None:
    assert isinstance(seed_order("proximity"), ProximityOrder)
    for settings in ({"sequences": 0}, {"sequences": 2.5}, {"sequences": True}):
        with pytest.raises(LoaderConfigError, match="a whole number of at least 1"):
            ProximityOrder(**settings)
    with pytest.raises(LoaderConfigError, match="bind"):
        ProximityOrder(1).order(np.arange(3), seed=0, epoch=0)
    # A checkpoint in mid-epoch must not go on with another number of sequences.
    assert ProximityOrder(2).name != ProximityOrder(3).name
    assert ProximityOrder(2).bind(ring(3), None, 1).name == ProximityOrder(2).name
    assert Shuffled().name == "Shuffled"


def test_other_orders_need_no_graph() -> None:
    class Own(SeedOrder):
        def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
            return seeds[::-1]

    own = Own()
    assert own.bind(ring(3), None, 8) is own
    assert own.name == "Own"


# In mini-batches.


def test_any_number_of_trainers_has_the_same_steps() -> None:
    data = toy_data(num_train=300, num_nodes=400)
    by_ranks = []
    for num_ranks in (1, 2, 4):
        order = ProximityOrder()  # as many as the global batch asks for
        sampler, size = NeighborSampler([2]), 32 // num_ranks
        workload = Workload(data.graph, sampler, data.train, batch_size=size, order=order, seed=3, labels=data.y)
        steps = range(workload.plan(num_ranks).num_steps)
        parts = [
            [workload.seeds_of(BatchRequest(1, step, rank, num_ranks)) for rank in range(num_ranks)] for step in steps
        ]
        by_ranks.append([np.concatenate(part).tolist() for part in parts])
    assert by_ranks[0] == by_ranks[1] == by_ranks[2]
    assert sorted(itertools.chain(*by_ranks[0])) == sorted(data.train)


def test_an_epoch_goes_on_from_its_middle() -> None:
    def loader(order: SeedOrder):
        return GraphDataModule(toy_data(), NeighborSampler([2]), batch_size=16, order=order).train_dataloader()

    whole = [batch.seeds.tolist() for batch in loader(ProximityOrder(4))]
    begun = loader(ProximityOrder(4))
    first = [batch.seeds.tolist() for batch in itertools.islice(begun, 3)]
    state, rest = begun.state_dict(), loader(ProximityOrder(4))
    rest.load_state_dict(state)
    assert first + [batch.seeds.tolist() for batch in rest] == whole
    other = loader(ProximityOrder(5))
    other.load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"sequences=4.*then and.*sequences=5"):
        next(iter(other))


def test_labels_that_are_no_classes_are_refused_at_once() -> None:
    data = toy_data()
    data.y = None
    with pytest.raises(LoaderConfigError, match="labels are none"):
        GraphDataModule(data, NeighborSampler([2]), order="proximity").train_dataloader()
