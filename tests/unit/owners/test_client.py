"""Owners: the mini-batches and rows of the whole graph, from owners that are lost, replaced, late, or not ours."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    GraphData,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    ShadowSampler,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.features import byte_rows
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import (
    AddressError,
    ExchangeError,
    OwnerLostError,
    PartitionMismatchError,
    SecretError,
    SeedError,
    StrangerError,
)
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.parts.collective_walks import collective_random_walk
from lightning_gnnload.sample.walk import random_walk
from tests.unit.owners.serving import SECRET, graph_data, served
from tests.unit.partition.by_id import Given
from tests.unit.toy import content

SAMPLERS = [
    NeighborSampler([3, 2], edge_ids=True),
    NeighborSampler([2, -1, 2], expand="new", replace=True),
    NeighborSampler([{1: 2, 2: -1}, 1], edge_ids=True),
    WeightedNeighborSampler([3, 2], edge_ids=True),
    LaborSampler([3, 2], importance=2, edge_ids=True),
    LayerSampler([20, 20], "dsp", edge_ids=True, weighted=False),
    ShadowSampler([3, 2], 2),
]


@pytest.fixture(scope="module")
def data() -> GraphData:
    return graph_data()


@pytest.fixture(scope="module")
def partition(data: GraphData, tmp_path_factory: pytest.TempPathFactory) -> Partition:
    """Three parts, of which the last owns nothing but a hub."""
    part = (np.arange(data.num_nodes) % 2).astype(np.int32)
    part[0] = 2
    return made(data, part, 3, tmp_path_factory.mktemp("three"))


def made(data: GraphData, part: np.ndarray, num_parts: int, folder: Path) -> Partition:
    partition_graph(data, folder / "parts", num_parts, Given(part), hops=0, progress=False)
    return load_partition(folder / "parts")


def rows_by(owners: Owners, ids: np.ndarray, row_bytes: int = 20) -> np.ndarray:
    out = np.full((len(ids), row_bytes), 255, np.uint8)
    owners.gather("x", ids, out)
    return out


def rows_of(data: GraphData, ids: np.ndarray) -> np.ndarray:
    out = torch.empty(len(ids), 5)
    data.stores["x"].gather(torch.from_numpy(ids), out)
    return byte_rows(out)


@pytest.mark.parametrize("paradigm", ["push", "pull"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_batches_are_those_of_the_whole_graph(data, partition, sampler, paradigm) -> None:
    with served(partition, [[0, 2], [1]]) as (owners, _):
        collective = CollectiveSampler(sampler, owners, paradigm)
        for step in range(3):
            seeds = np.random.default_rng(step).permutation(data.num_nodes)[:20]
            ours = content(collective.sample(None, seeds, seed=9, epoch=3, step=step))
            assert ours == content(sampler.sample(data.graph, seeds, seed=9, epoch=3, step=step))


def test_walks_are_those_of_the_whole_graph(data, partition) -> None:
    with served(partition) as (owners, _):
        walks = collective_random_walk(owners, np.arange(30), 4, num_walks=2, seed=5)
    assert torch.equal(walks, random_walk(data.graph, np.arange(30), 4, num_walks=2, seed=5))


@pytest.mark.parametrize("num_rows", [0, 1, 60])
def test_rows_are_those_of_the_table(data, partition, num_rows) -> None:
    ids = np.random.default_rng(1).permutation(60)[:num_rows]
    with served(partition) as (owners, _):
        assert np.array_equal(rows_by(owners, ids), rows_of(data, ids))
        out, at = np.full((90, 20), 255, np.uint8), np.random.default_rng(2).permutation(90)[:num_rows]
        owners.gather("x", ids, out, at)
    assert np.array_equal(out[at], rows_of(data, ids))
    assert (np.delete(out, at, axis=0) == 255).all()


def test_many_rows_come_in_pieces_over_several_streams(tmp_path) -> None:
    data = graph_data(30_000, 30_000, width=256)  # more than one piece, and more than one stream, an owner
    partition = made(data, (np.arange(30_000) % 3 == 0).astype(np.int32), 2, tmp_path)
    ids = np.random.default_rng(1).permutation(30_000)
    with served(partition, num_streams=3) as (owners, _):
        out = np.empty((30_000, 1024), np.uint8)
        owners.gather("x", ids, out)
        assert (out.view(np.float32)[:, 0] == ids).all()
        assert (out.view(np.float32)[:, 255] == (ids + np.float32(255 / 8))).all()
        assert owners.traffic["rows"].bytes_received == out.nbytes


def test_rows_that_are_none_are_asked_of_nobody(partition) -> None:
    owners = Owners.connect(partition, ["127.0.0.1:1"], secret=SECRET)  # nobody listens there
    for ids in ([60], [-1]):
        with pytest.raises(SeedError, match="the table has rows 0 to 59"):
            rows_by(owners, np.array(ids))
    with pytest.raises(ExchangeError, match="has no table 'y'"):
        owners.gather("y", np.array([1]), np.empty((1, 20), np.uint8))


def test_an_owner_that_is_lost_again_and_again_changes_no_batch(data, partition) -> None:
    """Each owner is closed at random moments, and comes back at another port, which the addresses tell."""
    fronts = {part: TcpFront(Owner(partition, [part]), "127.0.0.1", 0, SECRET.encode()) for part in range(3)}
    owners = Owners.connect(partition, lambda: [str(front.address) for front in fronts.values()], secret=SECRET)
    stop, rng = threading.Event(), np.random.default_rng(4)
    num_lost = 0

    def lose() -> None:
        nonlocal num_lost
        while not stop.wait(rng.random() / 50):
            part = int(rng.integers(3))
            fronts[part].close()
            fronts[part] = TcpFront(Owner(partition, [part]), "127.0.0.1", 0, SECRET.encode())
            num_lost += 1

    losing = threading.Thread(target=lose)
    losing.start()
    sampler, ids = SAMPLERS[0], np.arange(60)
    collective = CollectiveSampler(sampler, owners)
    try:
        for step in range(30):
            assert content(collective.sample(None, ids[:20], step=step)) == content(
                sampler.sample(data.graph, ids[:20], step=step)
            )
            assert np.array_equal(rows_by(owners, ids), rows_of(data, ids))
    finally:
        stop.set()
        losing.join()
        owners.close()
        for front in fronts.values():
            front.close()
    assert num_lost > 5


def test_connections_of_an_owner_that_came_back_at_its_port_are_made_anew(data, partition) -> None:
    with served(partition, [[0, 1, 2]]) as (owners, [front]):
        rows_by(owners, np.arange(60))
        front.close()
        again = TcpFront(Owner(partition), "127.0.0.1", front.address.port, SECRET.encode())
        assert np.array_equal(rows_by(owners, np.arange(60)), rows_of(data, np.arange(60)))
        again.close()


def test_a_replica_takes_over(data, partition) -> None:
    with served(partition, [[0, 1, 2], [0, 1, 2]]) as (owners, fronts):
        rows_by(owners, np.arange(60))
        # Both in turn, so that whichever served is lost.
        fronts[0].close()
        assert np.array_equal(rows_by(owners, np.arange(60)), rows_of(data, np.arange(60)))
        again = TcpFront(Owner(partition), "127.0.0.1", fronts[0].address.port, SECRET.encode())
        fronts[1].close()
        assert np.array_equal(rows_by(owners, np.arange(60)), rows_of(data, np.arange(60)))
        again.close()


def test_no_owner_of_a_part_is_left(partition) -> None:
    with served(partition, [[0, 1, 2]], patience_s=0.3) as (owners, [front]):
        rows_by(owners, np.arange(60))
        front.close()
        begun = time.monotonic()
        with pytest.raises(OwnerLostError, match=r"no owner of part 0 is left .*refused.*gnnload own FOLDER --parts 0"):
            rows_by(owners, np.arange(60))
        assert 0.2 < time.monotonic() - begun < 3
    with (
        served(partition, [[0], [1]]) as (owners, _),
        pytest.raises(OwnerLostError, match=r"no owner of part 2 .*it has other parts"),
    ):
        rows_by(owners, np.arange(60))  # without waiting: nothing is to come


def test_requests_that_follow_each_other_share_one_patience(partition) -> None:
    with served(partition, [[0, 1, 2]], patience_s=1.0) as (owners, [front]):
        rows_by(owners, np.arange(60))
        front.close()
        begun = time.monotonic()
        for _ in range(4):  # as those that wait for a thread of few
            with pytest.raises(OwnerLostError):
                rows_by(owners, np.arange(60))
        assert 0.9 < time.monotonic() - begun < 2
        # An owner that is found ends it.
        again = TcpFront(Owner(partition), "127.0.0.1", front.address.port, SECRET.encode())
        while True:
            with contextlib.suppress(OwnerLostError):
                rows_by(owners, np.arange(60))
                break
        again.close()
        begun = time.monotonic()
        with pytest.raises(OwnerLostError):
            rows_by(owners, np.arange(60))
        assert time.monotonic() - begun > 0.9


def test_an_owner_that_refuses_is_not_asked_again(partition) -> None:
    with served(partition) as (owners, _):
        with pytest.raises(ExchangeError, match="there is no operation 'guess'"):
            owners.ask("guess", np.arange(60))
        with pytest.raises(ExchangeError, match="draw cannot be done: KeyError"):
            owners.ask("draw", np.arange(60))
        rows_by(owners, np.arange(60))  # no connection has an answer left on it


def test_strangers_know_each_other_by_the_secret(partition) -> None:
    with served(partition) as (_, fronts):
        owners = Owners.connect(partition, [str(fronts[0].address)], secret="another one, alas")
        with pytest.raises(StrangerError, match="does not take this secret") as caught:
            rows_by(owners, np.arange(60))
    assert SECRET not in str(caught.value)
    assert "alas" not in str(caught.value)


def test_owners_of_another_graph_are_refused(data, partition, tmp_path) -> None:
    other = made(graph_data(seed=1), np.zeros(60, np.int32), 1, tmp_path)
    with served(partition) as (_, fronts):
        owners = Owners.connect(other, [str(front.address) for front in fronts], secret=SECRET)
        with pytest.raises(
            PartitionMismatchError, match=r"the owner at 127.0.0.1:\d+ has another partition.*fingerprint"
        ):
            rows_by(owners, np.arange(60))


def test_an_owner_of_the_graph_is_found_among_foreign_ones(data, partition, tmp_path) -> None:
    other = made(graph_data(seed=1), np.zeros(60, np.int32), 1, tmp_path)
    with served(partition) as (_, fronts), served(other) as (_, foreign):
        addresses = [str(front.address) for front in (*foreign, *fronts)]
        owners = Owners.connect(partition, addresses, secret=SECRET)
        for _ in range(3):
            assert np.array_equal(rows_by(owners, np.arange(60)), rows_of(data, np.arange(60)))
        owners.close()


def test_many_threads_and_clients_ask_at_once(data, partition) -> None:
    errors: list[BaseException] = []
    with served(partition) as (first, _), served(partition) as (second, _):

        def ask(owners: Owners, number: int) -> None:
            try:
                for step in range(20):
                    ids = np.random.default_rng([number, step]).permutation(60)
                    assert np.array_equal(rows_by(owners, ids), rows_of(data, ids))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(owners, n)) for n in range(4) for owners in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


def _sum_of_rows(owners: Owners, queue: multiprocessing.Queue) -> None:
    queue.put(int(rows_by(owners, np.arange(60)).astype(np.int64).sum()))


def test_a_fork_connects_anew(partition) -> None:
    with served(partition) as (owners, _):
        total = int(rows_by(owners, np.arange(60)).astype(np.int64).sum())
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_sum_of_rows, args=(owners, queue))
        child.start()
        for _ in range(20):  # while the fork asks: they would read each other's answers
            assert int(rows_by(owners, np.arange(60)).astype(np.int64).sum()) == total
        assert queue.get(timeout=20) == total
        child.join(10)


def test_it_is_pickled_without_its_secret(data, partition, monkeypatch) -> None:
    with served(partition, deadline_s=7.0) as (owners, _):
        pickled = pickle.dumps(owners)
        assert SECRET.encode() not in pickled
        monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
        copy = pickle.loads(pickled)  # noqa: S301
        assert np.array_equal(rows_by(copy, np.arange(60)), rows_of(data, np.arange(60)))
        copy.close()


def test_mistakes_are_told_before_anything_is_connected(partition, monkeypatch, tmp_path) -> None:
    with pytest.raises(AddressError, match="'somewhere' is no address"):
        Owners.connect(partition, ["somewhere"], secret=SECRET)
    monkeypatch.delenv("GNNLOAD_SECRET", raising=False)
    monkeypatch.delenv("GNNLOAD_SECRET_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(SecretError, match="there is no secret"):
        Owners.connect(partition, ["127.0.0.1:1"])
