"""Layer-wise sampling on a device equals the CPU's, number for number, weights included."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey, importance_tree
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling import layer as layers
from lightning_gnnload.ops.cuda.sampling import layers as picking
from lightning_gnnload.ops.cuda.sampling.batch import DeviceBatch
from lightning_gnnload.ops.cuda.sampling.importance import DeviceTree
from lightning_gnnload.ops.cuda.sampling.layers import sample_layers
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.ops.philox import stream_keys
from tests import oracle
from tests.ops.graphs import random_graph
from tests.ops.layers import METHODS, sample

from .sampled import assert_equal, in_shards, skewed_graph, topology_of

SEEDS = np.array([17, 3, 44, 0, 59])
KEY = DrawKey(seed=7, epoch=2, step=5)


def check(
    device: Device, graph: Any, budgets: list[int], method: Any, seeds: np.ndarray = SEEDS, **options: Any
) -> None:
    key, names = options.pop("key", KEY), options.pop("names", None)
    workspace = options.pop("workspace", None) or DeviceWorkspace(device, len(graph[0]) - 1)
    topology = topology_of(device, *graph, names=None if names is None else device.put(names))
    options.setdefault("edge_ids", True)
    drawn = sample_layers(workspace, topology, seeds, budgets, method, key, **options)
    assert_equal(drawn, sample(*graph, seeds, budgets, method, key, names=names, **options))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budgets", [[1], [20, 30, 40], [-1, 7], [1000, 5]], ids=str)
def test_a_batch_is_that_of_the_cpu(device: Device, budgets: list[int], method: str, replace: bool) -> None:
    # Where a loop of draws meets a width of ids or a kind of table, it does not look at it.
    dtype, table = (np.int64, "hash") if replace == (len(budgets) > 1) else (np.int32, "stamp")
    graph = skewed_graph(seed=len(budgets), dtype=dtype)
    for expand, normalize, keep_known, edge_ids in [
        ("all", False, False, True),
        ("new", True, False, True),
        ("all", True, True, False),
        ("new", False, True, True),
    ]:
        options = {"expand": expand, "normalize": normalize, "edge_ids": edge_ids}
        options["keep_known"] = keep_known and method != "dsp"
        held = DeviceWorkspace(device, 60, table)  # type: ignore[arg-type]
        check(device, graph, budgets, method, replace=replace, workspace=held, **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_large_layer_is_that_of_the_cpu(device: Device, method: str) -> None:
    """Trees of three levels, sums over several tiles, rows of several warps, and draws that are made repeatedly."""
    graph = random_graph(3000, 9000, seed=5, dtype=np.int32)
    seeds = np.random.default_rng(0).permutation(3000)[:700]
    for replace in (False, True):
        check(device, graph, [300, 400], method, seeds, replace=replace, normalize=True)


def test_floyds_draws_that_collide_are_replaced_as_one_by_one(device: Device) -> None:
    """With budgets near the number of edges nearly every draw is replaced, in chains."""
    graph = (np.array([0, 0, 90, 90, 100, *[100] * 96]), np.arange(100))
    for budget in (50, 90, 98, 99, 100):
        for step in range(3):
            check(device, graph, [budget], "dsp", np.array([3, 1, 0]), key=DrawKey(1, 0, step))


def test_draws_that_must_be_made_again(device: Device) -> None:
    # 43 leaves of importance 2**56 or 2**55: of 2**64, up to a sixth is left over. Of 40 draws some are made again.
    graph = (np.concatenate([np.arange(44), np.full(43, 43)]), np.arange(43, 86))
    for method in ("ladies", "fastgcn"):
        for replace in (False, True):
            check(device, graph, [40], method, np.arange(43), replace=replace)


def test_a_tree_is_whole_again_after_each_batch(device: Device) -> None:
    graph = skewed_graph(seed=3)
    workspace, topology = DeviceWorkspace(device, 60), topology_of(device, *graph)
    before = device.num_reads
    for step in range(4):
        key = DrawKey(1, 0, step)
        drawn = sample_layers(workspace, topology, SEEDS, [20, 30], "fastgcn", key, edge_ids=True)
        assert_equal(drawn, sample(*graph, SEEDS, [20, 30], "fastgcn", key))
    assert device.num_reads == before + 1 + 4 * 3  # one tree
    other = skewed_graph(seed=4)
    check(device, other, [20, 30], "fastgcn", workspace=workspace)


@pytest.mark.parametrize("num_nodes", [1, 31, 64, 1500])
def test_a_tree_holds_the_importances_of_the_cpu(device: Device, num_nodes: int) -> None:
    graph = random_graph(num_nodes, 3 * num_nodes, seed=1, dtype=np.int32)
    tree, expected = DeviceTree.of(device, topology_of(device, *graph)), importance_tree(*graph)
    sums = np.concatenate([[0], np.cumsum(device.read(tree.importances))])
    np.testing.assert_array_equal(expected[1:], [sums[i] - sums[i - (i & -i)] for i in range(1, num_nodes + 1)])
    assert tree.most_positive == expected[0]


@pytest.mark.parametrize("num_items", [1, 31, 33, 1024, 1025])
def test_a_place_on_a_line_of_single_units_is_an_item(device: Device, num_items: int) -> None:
    """A search that stops one unit early or late fails here."""
    tree = DeviceTree(device, num_items)
    tree.importances.fill_(1)
    tree.sum_up()
    topology = topology_of(device, *skewed_graph(seed=1))
    batch = DeviceBatch(DeviceWorkspace(device, 60), topology, np.array([5]), KEY, num_hops=1)
    drawn = tree.draw(batch, dataclasses.replace(KEY, hop=3), 40, replace=True)
    draws = oracle.NodeDraws(stream_keys(KEY.seed, KEY.epoch)[0], KEY.step, 3, 5)
    assert drawn.items.tolist() == [draws.below64(j, num_items) for j in range(40)]
    np.testing.assert_array_equal(drawn.factors.cpu(), num_items / 40)


def test_a_part_draws_in_the_name_of_its_graph(device: Device) -> None:
    names = (np.arange(60) * 7919 + 2**41)[::-1].copy()
    for method in METHODS:
        check(device, skewed_graph(seed=1), [5, 3], method, names=names)


@pytest.mark.parametrize("method", METHODS)
def test_lists_are_read_from_shards(device: Device, method: str) -> None:
    indptr, indices = skewed_graph(seed=2)
    topology = in_shards(device, topology_of(device, indptr, indices))
    drawn = sample_layers(DeviceWorkspace(device, 60), topology, SEEDS, [20, 9], method, KEY, edge_ids=True)  # type: ignore[arg-type]
    assert_equal(drawn, sample(indptr, indices, SEEDS, [20, 9], method, KEY))


def test_the_host_waits_for_the_size_of_a_layer_that_is_read(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = skewed_graph(seed=1)

    def num_reads(budgets: list[int], method: str) -> int:
        before = device.num_reads
        check(device, graph, budgets, method)
        return device.num_reads - before

    assert num_reads([5, 5], "dsp") == 1
    assert num_reads([5, -1], "dsp") == 2
    assert num_reads([5, 5], "ladies") == 3
    monkeypatch.setattr(picking, "_MAX_BOUND_DRAWS", 10)
    assert num_reads([11, 5], "dsp") == num_reads([1000, 5], "dsp") == 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("expand", ["all", "new"])
def test_graphs_with_little_in_them(device: Device, method: str, expand: str) -> None:
    nothing = np.empty(0, np.int64)
    for replace in (False, True):
        options = {"expand": expand, "replace": replace}
        check(device, (np.zeros(6, np.int64), nothing), [3, -1, 2], method, np.array([4, 0]), **options)
        check(device, (np.array([0, 1]), np.array([0])), [3, 3], method, np.array([0]), **options)  # one loop
        check(device, skewed_graph(seed=1), [3, -1], method, SEEDS[:0], **options)
        check(device, skewed_graph(seed=1), [], method, **options)


def test_what_cannot_be_sampled_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, workspace = topology_of(device, *skewed_graph(seed=1)), DeviceWorkspace(device, 60)
    with pytest.raises(SamplerConfigError, match="keep_known does not go"):
        sample_layers(workspace, topology, SEEDS, [3], "dsp", KEY, keep_known=True)
    with pytest.raises(SeedError, match=r"seeds\[1\] is 60"):
        sample_layers(workspace, topology, np.array([1, 60]), [3], "ladies", KEY)
    monkeypatch.setattr(picking, "MAX_LOCAL", 20)
    with pytest.raises(SamplerConfigError, match=r"budgets\[0\]: the hop's 5 destinations have \d+ edges, .* 15 can"):
        sample_layers(workspace, topology, SEEDS, [3], "ladies", KEY)
    with pytest.raises(SamplerConfigError, match="beyond int32"):
        sample_layers(workspace, topology, SEEDS, [-1], "dsp", KEY)
    monkeypatch.setattr(layers.batches, "MAX_LOCAL", 10)
    with pytest.raises(SamplerConfigError, match="beyond int32"):
        sample_layers(workspace, topology, SEEDS, [12], "dsp", KEY)
