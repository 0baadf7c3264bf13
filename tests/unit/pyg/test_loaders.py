"""Mini-batches of the drop-in loaders: field by field what PyG's own code makes of who was sampled."""

from __future__ import annotations

import os
import warnings
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from lightning_gnnload.errors import (
    CheckpointError,
    GraphDataError,
    GraphFormatError,
    LoaderConfigError,
    SamplerConfigError,
    SeedError,
)
from lightning_gnnload.ops import DrawKey

if TYPE_CHECKING:
    from torch_frame import TensorFrame, stype
    from torch_frame.data import MultiEmbeddingTensor, MultiNestedTensor
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.sampler import BaseSampler, NegativeSampling, SamplerOutput
    from torch_geometric.sampler.base import NumNeighbors

    from lightning_gnnload.pyg import GnnloadSampler, LinkNeighborLoader, NeighborLoader
    from lightning_gnnload.pyg.threads import ThreadedLoader

N, E = 120, 900
A_TO_B, B_TO_A, A_TO_A = ("a", "to", "b"), ("b", "to", "a"), ("a", "knows", "a")


@cache
def frame(num_rows: int) -> TensorFrame:
    """A table with a column of each kind, ragged ones among them."""
    generator = torch.Generator().manual_seed(num_rows)
    ragged = [[torch.arange(i % 3), torch.arange((i + 1) % 2)] for i in range(num_rows)]
    tokens = MultiNestedTensor.from_tensor_mat([[torch.arange(1 + i % 4)] for i in range(num_rows)])
    embeddings = [torch.randn(num_rows, 3, generator=generator), torch.randn(num_rows, 2, generator=generator)]
    return TensorFrame(
        {
            stype.numerical: torch.randn(num_rows, 2, generator=generator),
            stype.categorical: torch.randint(-1, 4, (num_rows, 3), generator=generator),
            stype.timestamp: torch.randint(0, 9, (num_rows, 1, 7), generator=generator),
            stype.embedding: MultiEmbeddingTensor.from_tensor_list(embeddings),
            stype.multicategorical: MultiNestedTensor.from_tensor_mat(ragged),
            stype.text_tokenized: {"input_ids": tokens, "attention_mask": tokens},
        },
        {
            stype.numerical: ["n0", "n1"],
            stype.categorical: ["c0", "c1", "c2"],
            stype.timestamp: ["t0"],
            stype.embedding: ["e0", "e1"],
            stype.multicategorical: ["m0", "m1"],
            stype.text_tokenized: ["s0"],
        },
        y=torch.arange(num_rows),
    )


def homogeneous() -> Data:
    return copy(_homogeneous())


@cache
def _homogeneous() -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(
        edge_attr=torch.randn(E, 3, generator=generator),
        x=torch.randn(N, 8, generator=generator),
        edge_index=torch.randint(N, (2, E), generator=generator),
        y=torch.randint(5, (N,), generator=generator),
        edge_weight=torch.rand(E, generator=generator),
        time=torch.randint(100, (N,), generator=generator),
        edge_time=torch.randint(100, (E,), generator=generator),
        train_mask=torch.rand(N, generator=generator) < 0.5,
        history=torch.randn(N, 4, 2, generator=generator).to(torch.bfloat16),
        signal=torch.randn(N, 2, dtype=torch.complex64, generator=generator),
        counts=np.arange(N, dtype=np.int16),
        transposed=torch.randn(5, N, generator=generator).t(),
        conjugate=torch.randn(N, 2, dtype=torch.complex64, generator=generator).conj(),
        node_index=torch.randint(9, (2, N), generator=generator),  # by node in its last dimension
        edge_image=torch.randn(E, 2, 2, dtype=torch.float64, generator=generator),
        tf=frame(N),
        name="a graph",
        mean=torch.zeros(3),
        **{"not an identifier": torch.arange(N), "positions": torch.arange(N)},
    )


def typed() -> HeteroData:
    return copy(_typed())


@cache
def _typed() -> HeteroData:
    generator = torch.Generator().manual_seed(2)
    data = HeteroData(name="typed")
    data["a"].x = torch.randn(N, 4, generator=generator)
    data["a"].y = torch.randint(3, (N,), generator=generator)
    data["a"].time = torch.randint(100, (N,), generator=generator)
    data["a"].tf = frame(N)
    data["a"]["my column"] = torch.arange(N)
    data["b"].num_nodes = 40
    data["b"].y = torch.arange(40.0)
    data["b"].train_mask = torch.arange(40) % 2 == 0
    data["alone"].x = torch.ones(7, 2)
    for kind, count in ((A_TO_B, E), (B_TO_A, E // 2), (A_TO_A, 2 * E), (("alone", "to", "alone"), 0)):
        ends = [torch.randint(data[end].num_nodes, (count,), generator=generator) for end in kind[::2]]
        data[kind].edge_index = torch.stack(ends)
        data[kind].edge_attr = torch.randn(count, 2, generator=generator)
        data[kind].weight = torch.rand(count, generator=generator)
    data[A_TO_B].edge_label = torch.zeros(3)  # of no edge: it goes along as it is
    return data


def expected(loader: Any, epoch: int, step: int, index: Any) -> Any:
    """What PyG makes of the same draws: its rules for seeds and negatives, and its filter of the data."""
    key, negatives = DrawKey(loader.seed, epoch, step), getattr(loader, "neg_sampling", None)
    return super(ThreadedLoader, loader).filter_fn(loader._sampler._sampled(loader.input_data[index], key, negatives))


def check_equal(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    stores = zip(found.stores, wanted.stores, strict=True)
    for mine, theirs in stores:
        assert list(mine.keys()) == list(theirs.keys()), mine._key
        for name, value in theirs.items():
            check_value(mine[name], value, f"{name} of {mine._key}")


def check_value(found: Any, wanted: Any, what: str) -> None:
    assert type(found) is type(wanted), what
    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
        assert ((found == wanted) | ((found != found) & (wanted != wanted))).all(), what  # NaN is NaN
    elif isinstance(wanted, TensorFrame):
        assert found == wanted, what
        assert list(found.feat_dict) == list(wanted.feat_dict), what
        assert found.num_rows == wanted.num_rows, what
    elif isinstance(wanted, np.ndarray):
        assert np.array_equal(found, wanted), what
    else:
        assert found == wanted, what


def check_loader(loader: Any, epochs: int = 1) -> None:
    for epoch in range(epochs):
        lists = BatchSampler(SequentialSampler(loader.dataset), loader.batch_size, drop_last=False)
        for step, (batch, index) in enumerate(zip(loader, lists, strict=True)):
            check_equal(batch, expected(loader, epoch, step, index))


NODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "replace": {"replace": True},
    "disjoint": {"disjoint": True},
    "weights": {"weight_attr": "edge_weight"},
    "weights, disjoint": {"weight_attr": "edge_weight", "disjoint": True},
    "times of nodes": {"time_attr": "time"},
    "given times": {"time_attr": "time", "input_time": torch.arange(N) % 100},
    "times of edges": {"time_attr": "edge_time", "input_time": torch.arange(N) % 100, "temporal_strategy": "last"},
    "all": {"num_neighbors": [-1, 2]},
    "a hop of nothing": {"num_neighbors": [3, 0, 2]},
    "no hop": {"num_neighbors": []},
}


@pytest.mark.parametrize("settings", NODES.values(), ids=NODES)
def test_batches_of_nodes_are_pygs(settings: dict[str, Any]) -> None:
    settings = {"num_neighbors": [4, 3], "batch_size": 50, "seed": 3, **settings}
    check_loader(NeighborLoader(homogeneous(), num_workers=2, **settings), epochs=2)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_neighbors": {A_TO_B: [3, 2], B_TO_A: [2, 0], A_TO_A: [1, 1], ("alone", "to", "alone"): [1, 1]}},
        {"num_neighbors": lambda: NumNeighbors({A_TO_B: [3, 2]}, default=[1, 1])},
        {"input_nodes": ("a", torch.tensor([5, 3, 8])), "disjoint": True},
        {"input_nodes": "alone"},
        {"input_nodes": ("a", None), "time_attr": "time"},
        {"time_attr": "time", "input_time": torch.arange(40)},
        {"weight_attr": "weight"},
        {"weight_attr": "weight", "disjoint": True},
    ],
)
def test_batches_of_typed_nodes_are_pygs(settings: dict[str, Any]) -> None:
    settings = {"num_neighbors": [4, 3], "input_nodes": "b", "batch_size": 16, "seed": 3, **settings}
    made = {name: value() if callable(value) else value for name, value in settings.items()}
    check_loader(NeighborLoader(typed(), **made))


LINKS: dict[str, dict[str, Any]] = {
    "no negatives": {},
    "labels": {"edge_label": torch.arange(E) % 3, "neg_sampling": "binary"},
    "half": {"neg_sampling": {"mode": "binary", "amount": 0.5}},
    "ratio": {"neg_sampling_ratio": 2.0},
    "triplets": {"neg_sampling": {"mode": "triplet", "amount": 2}},
    "weights": {"neg_sampling": lambda: NegativeSampling("binary", 1, torch.arange(N), torch.arange(N) + 1.0)},
    "disjoint": {"neg_sampling": "triplet", "disjoint": True},
    "times": {"neg_sampling": "binary", "edge_label_time": torch.full((E,), 60), "time_attr": "time"},
    "times of triplets": {"neg_sampling": "triplet", "edge_label_time": torch.full((E,), 60), "time_attr": "edge_time"},
}


@pytest.mark.parametrize("settings", LINKS.values(), ids=LINKS)
def test_batches_of_links_are_pygs(settings: dict[str, Any]) -> None:
    settings = {name: value() if callable(value) else value for name, value in settings.items()}
    check_loader(LinkNeighborLoader(homogeneous(), [3, 2], batch_size=300, seed=5, num_workers=2, **settings))


@pytest.mark.parametrize("edge_type", [A_TO_B, A_TO_A])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neg_sampling": "binary", "disjoint": True},
        {"neg_sampling": {"mode": "triplet", "amount": 3}},
        {"neg_sampling": "triplet", "edge_label_time": torch.full((30,), 60), "time_attr": "time"},
    ],
)
def test_batches_of_typed_links_are_pygs(edge_type: Any, settings: dict[str, Any]) -> None:
    data = typed()
    links = edge_type, data[edge_type].edge_index[:, :30]
    check_loader(LinkNeighborLoader(data, [3, 2], links, batch_size=20, seed=5, **settings))


def test_attributes_of_edges_may_have_names_of_ours() -> None:
    names = ("x", "y", "nodes", "blocks")
    data = Data(edge_index=homogeneous().edge_index, num_nodes=N, **dict.fromkeys(names, torch.randn(E, 2)))
    check_loader(NeighborLoader(data, [3], batch_size=50, seed=3))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_gradients_flow_to_features_that_are_learned(num_workers: int) -> None:
    data = Data(x=torch.ones(N, 2, requires_grad=True), edge_index=homogeneous().edge_index)
    batch = next(iter(NeighborLoader(data, [3], batch_size=8, num_workers=num_workers, seed=1)))
    batch.x.sum().backward()
    assert data.x is not None
    assert data.x.grad is not None
    assert torch.equal(data.x.grad[:, 0].nonzero().view(-1), batch.n_id.sort().values)


def test_what_is_sampled_are_edges_of_the_graph() -> None:
    data = typed()
    for batch in NeighborLoader(data, [4, 3], ("b", None), batch_size=16, seed=1):
        for kind in data.edge_types:
            src, dst = batch[kind].edge_index
            ends = torch.stack([batch[kind[0]].n_id[src], batch[kind[2]].n_id[dst]])
            assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])


def test_a_node_may_be_a_seed_more_than_once() -> None:
    data = homogeneous()
    seeds = torch.tensor([7, 7, 3, 7])
    [batch] = NeighborLoader(data, [-1, 2], seeds, batch_size=4, seed=1)
    assert torch.equal(batch.n_id[:4], seeds)
    degree = int((data.edge_index[1] == 7).sum())
    found = batch.edge_index[1].bincount(minlength=4)[:4]
    assert found.tolist() == [degree, degree, int((data.edge_index[1] == 3).sum()), degree]
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_nothing_later_than_its_seed_is_sampled() -> None:
    data = homogeneous()
    for batch in NeighborLoader(data, [-1, -1], input_time=torch.arange(N) % 100, time_attr="time", batch_size=60):
        own = torch.arange(batch.num_nodes) < batch.batch_size  # a seed may itself be later than it is asked about
        assert bool((batch.time <= batch.seed_time[batch.batch])[~own].all())


def test_batches_are_the_same_for_any_number_of_workers_and_in_each_run() -> None:
    made = [
        [
            batch
            for _ in range(2)
            for batch in NeighborLoader(homogeneous(), [4, 3], batch_size=32, shuffle=True, seed=9, num_workers=workers)
        ]
        for workers in (0, 1, 3)
    ]
    for others in made[1:]:
        for one, other in zip(made[0], others, strict=True):
            check_equal(one, other)


def test_each_epoch_draws_and_shuffles_anew_and_can_be_chosen() -> None:
    loader = NeighborLoader(homogeneous(), [2], batch_size=32, shuffle=True, seed=9)
    first, second = list(loader), list(loader)
    assert not torch.equal(first[0].input_id, second[0].input_id)
    assert sorted(torch.cat([batch.input_id for batch in second]).tolist()) == list(range(N))
    loader.set_epoch(0)
    check_equal(next(iter(loader)), first[0])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_iterators_read_in_turn_are_an_epoch_each(num_workers: int) -> None:
    def loader() -> NeighborLoader:
        return NeighborLoader(homogeneous(), [2], batch_size=32, shuffle=True, seed=9, num_workers=num_workers)

    one_by_one, in_turn = loader(), loader()
    epochs = [list(one_by_one) for _ in range(3)]
    first, second = iter(in_turn), iter(in_turn)
    for wanted, other in zip(*epochs[:2], strict=True):
        check_equal(next(first), wanted)
        check_equal(next(second), other)
        assert in_turn.state_dict()["epoch"] + in_turn.state_dict()["step"] // len(in_turn) in (1, 2)
    assert [*first, *second] == []
    for batch, wanted in zip(in_turn, epochs[2], strict=True):
        check_equal(batch, wanted)


def test_torchs_seed_decides_where_none_is_given() -> None:
    def first(seed: int) -> Any:
        torch.manual_seed(seed)
        return next(iter(NeighborLoader(homogeneous(), [2], batch_size=32, shuffle=True)))

    check_equal(first(4), first(4))
    assert not torch.equal(first(4).input_id, first(5).input_id)


def with_other_edges(data: Data) -> Data:
    """Returns data of as many nodes and edges."""
    data.edge_index = data.edge_index.roll(1, dims=1).flip(0)
    return data


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_goes_on_where_it_was(shuffle: bool) -> None:
    def loader() -> NeighborLoader:
        return NeighborLoader(homogeneous(), [2], batch_size=32, shuffle=shuffle, seed=9, num_workers=1)

    whole = loader()
    batches = [*whole, *whole]
    interrupted = loader()
    list(interrupted)
    second = iter(interrupted)
    next(second)
    state = interrupted.state_dict()
    second.close()
    resumed = loader()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    rest = list(resumed)
    assert len(rest) == 3
    for one, other in zip(rest, batches[5:], strict=True):
        check_equal(one, other)
    last = iter(resumed)
    for _ in range(len(resumed)):  # and no further, as Lightning
        next(last)
    at_its_end = loader()
    at_its_end.load_state_dict(resumed.state_dict())
    last.close()
    for one, other in zip(at_its_end, resumed, strict=True):  # the next epoch
        check_equal(one, other)
    assert at_its_end.epoch == 3
    other = NeighborLoader(homogeneous(), [2], batch_size=32, shuffle=shuffle, seed=8)
    other.load_state_dict(state)
    with pytest.raises(CheckpointError, match="seed=9 then and 8 now"):
        next(iter(other))
    for changed, says in (
        ({"input_nodes": torch.arange(N).flip(0)}, "seeds="),
        ({"num_neighbors": [3]}, "sampler="),
        ({"data": with_other_edges(homogeneous())}, "graph="),
    ):
        other = NeighborLoader(
            **{"data": homogeneous(), "num_neighbors": [2], **changed}, batch_size=32, shuffle=shuffle, seed=9
        )
        other.load_state_dict(state)
        with pytest.raises(CheckpointError, match=f"now: {says}"):
            next(iter(other))
        other.on_resume_change = "warn"
        other.load_state_dict(state)
        with pytest.warns(UserWarning, match=f"now: {says}"):
            assert len(list(other)) == 3


def test_rows_of_torchs_samplers_are_taken() -> None:
    lists = [[5, 3], [8], [1, 2, 4]]
    loader = NeighborLoader(homogeneous(), [2], batch_sampler=lists, num_workers=2, seed=1)
    assert [batch.input_id.tolist() for batch in loader] == lists
    loader = NeighborLoader(homogeneous(), [2], sampler=[9, 8, 7], batch_size=2, seed=1)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in loader] == [[9, 8], [7]]
    few = [0, 1, 2, 3, 4]
    for listed in ({"sampler": few, "batch_size": 2}, {"batch_sampler": BatchSampler(few, 2, False)}):
        loader = NeighborLoader(homogeneous(), [2], **listed)
        assert [batch.input_id.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    loader = NeighborLoader(homogeneous(), [2], batch_size=50, drop_last=True)
    assert [len(batch.input_id) for batch in loader] == [50] * len(loader) == [50, 50]


def test_attributes_are_those_that_the_data_has_when_an_epoch_begins() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [2], batch_size=N)
    del loader.data.x
    loader.data.n_id = torch.arange(N) * 10
    [batch] = loader
    assert "x" not in batch
    assert sorted(batch.n_id.tolist()) == list(range(0, 10 * N, 10))


def test_memory_is_recycled_but_not_that_of_batches_which_are_kept() -> None:
    loader = NeighborLoader(typed(), [4, 3], ("b", None), batch_size=4, seed=1, disjoint=True)
    kept, copies, places = [], [], set()
    for number, batch in enumerate(loader):
        places |= {batch["a"].x.data_ptr(), batch["a"].n_id.data_ptr()}
        assert batch["b"].batch[:4].tolist() == [0, 1, 2, 3]
        if number < 2:
            kept.append(batch)
            copies.append(batch.clone())
        del batch
    assert len(places) < 2 * (number + 1)
    for batch, wanted in zip(kept, copies, strict=True):
        check_equal(batch, wanted)


def test_who_keeps_labels_does_not_keep_features() -> None:
    data = Data(x=torch.randn(N, 32), y=torch.arange(N), edge_index=homogeneous().edge_index)
    loader = LinkNeighborLoader(data, [4, 3], data.edge_index[:, :160], torch.arange(160), batch_size=4, seed=1)
    kept, places = [], set()
    for batch in loader:
        places.add(batch.x.data_ptr())
        kept += [batch.y, batch.input_id, batch.edge_label, batch.edge_label_index]
        del batch
    assert len(places) < len(loader) // 4
    assert torch.equal(torch.cat(kept[2::4]), torch.arange(160))


def test_lists_are_pickled_without_the_memory_of_others() -> None:
    batch = next(iter(NeighborLoader(typed(), [4, 3], ("b", None), batch_size=4, seed=1)))
    for tensor in (batch["a"].n_id, batch["a"].x, batch[A_TO_B].edge_index, batch[A_TO_B].e_id):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_batches_outlive_the_loader() -> None:
    kept = [(batch, batch.x.clone()) for batch in NeighborLoader(homogeneous(), [4], batch_size=8, num_workers=2)]
    assert all(torch.equal(batch.x, copy) for batch, copy in kept)


def test_transforms_are_called() -> None:
    def mark(batch: Data) -> Data:
        batch.mark = batch.x.sum()
        return batch

    def drop_edges(output: Any) -> Any:
        output.row, output.col, output.edge = output.row[:1], output.col[:1], output.edge[:1]
        return output

    loader = NeighborLoader(homogeneous(), [4], batch_size=8, transform=mark, transform_sampler_output=drop_edges)
    batch = next(iter(loader))
    assert batch.mark == batch.x.sum()
    assert batch.edge_attr.shape == (1, 3)


def test_worker_init_fn_is_called_by_each_thread() -> None:
    seen: list[int] = []
    list(NeighborLoader(homogeneous(), [2], batch_size=8, num_workers=2, worker_init_fn=seen.append, prefetch_factor=3))
    assert sorted(seen) in ([0], [0, 1])  # a pool starts a thread when those it has are busy


def test_what_worker_init_fn_raises_is_raised() -> None:
    def fail(_: int) -> None:
        raise OSError("no such core")

    with pytest.raises(OSError, match="no such core"):
        list(NeighborLoader(homogeneous(), [2], num_workers=2, worker_init_fn=fail))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound to cores")
def test_cores_are_those_of_the_workers_threads() -> None:
    before, seen = os.sched_getaffinity(0), []
    loader = NeighborLoader(
        homogeneous(), [2], num_workers=1, worker_init_fn=lambda _: seen.append(os.sched_getaffinity(0))
    )
    with loader.enable_cpu_affinity([min(before)]):
        list(loader)
    assert seen == [{min(before)}]
    assert os.sched_getaffinity(0) == before  # PyG's own would have bound this thread


def test_with_anothers_sampler_it_is_pygs_own_loader() -> None:
    class Alone(BaseSampler):
        def sample_from_nodes(self, inputs: Any, **_: Any) -> SamplerOutput:
            none = torch.empty(0, dtype=torch.long)
            return SamplerOutput(inputs.node, none, none, none, metadata=(inputs.input_id, inputs.time))

        def sample_from_edges(self, *_: Any) -> Any:
            raise NotImplementedError

        edge_permutation = None

    settings: dict[str, Any] = {"batch_size": N, "neighbor_sampler": Alone(), "shuffle": True}
    NeighborLoader(homogeneous(), [2], num_workers=1, timeout=60, multiprocessing_context="spawn", **settings)
    loader = NeighborLoader(homogeneous(), [2], **settings)
    [[first], [second]] = list(loader), list(loader)
    assert not torch.equal(first.n_id, second.n_id)
    assert sorted(first.n_id.tolist()) == sorted(second.n_id.tolist()) == list(range(N))
    assert loader.state_dict() == {}  # for which Lightning asks, in each checkpoint
    with pytest.warns(UserWarning, match="begins anew: with the sampler Alone"):
        loader.load_state_dict({})


def test_a_sampler_is_shared() -> None:
    data = homogeneous()
    sampler = GnnloadSampler(data, [2], seed=4)
    loaders = [NeighborLoader(data, [2], neighbor_sampler=sampler, batch_size=32) for _ in range(2)]
    assert all(loader.node_sampler.graph is sampler.graph for loader in loaders)
    check_equal(*(next(iter(loader)) for loader in loaders))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_neighbors": [-2]}, SamplerConfigError, "must be positive, or -1"),
        ({"input_nodes": torch.tensor([0, N])}, SeedError, f"is {N}, but nodes are numbered from 0 to {N - 1}"),
        ({"input_nodes": torch.tensor([-1])}, SeedError, "is -1, but nodes are numbered"),
        ({"input_nodes": torch.ones(N + 1, dtype=torch.bool)}, SeedError, f"mask has {N + 1} entries"),
        ({"input_time": torch.arange(N)}, ValueError, "'time_attr' is not set"),
        ({"input_time": torch.arange(N - 1), "time_attr": "time"}, SeedError, f"{N - 1} entries for {N}"),
        ({"time_attr": "edge_time"}, SeedError, "the edges have times, but the seeds have none"),
        ({"time_attr": "name"}, GraphDataError, "neither a node-level nor an edge-level"),
        ({"time_attr": "nothing"}, GraphDataError, "neither a node-level nor an edge-level"),
        ({"weight_attr": "nothing"}, GraphDataError, "no edges have such an attribute"),
        ({"weight_attr": "minus"}, GraphFormatError, "must be finite and not negative"),
        ({"weight_attr": "edge_weight", "time_attr": "time"}, SamplerConfigError, "no weighted draws by time"),
        ({"temporal_strategy": "first"}, SamplerConfigError, "give 'uniform' or 'last'"),
        ({"subgraph_type": "round"}, ValueError, "round"),
        ({"seed": -1}, LoaderConfigError, "seed=-1"),
        ({"timeout": 5}, LoaderConfigError, "does not support timeout=5"),
        ({"multiprocessing_context": "spawn"}, LoaderConfigError, "workers are threads"),
        ({"in_order": False}, LoaderConfigError, "come in order"),
        ({"collate_fn": list}, LoaderConfigError, "Give transform="),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    data = homogeneous()
    data.minus = -data.edge_weight
    with pytest.raises(error, match=message):
        next(iter(NeighborLoader(data, **{"num_neighbors": [2], **settings})))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_neighbors": {("a", "no", "b"): [2]}}, ValueError, "edge types"),
        ({"num_neighbors": {A_TO_B: [2]}}, ValueError, "Missing number of neighbors"),
        (
            {"num_neighbors": {A_TO_B: [2], B_TO_A: [2, 3], A_TO_A: [1], ("alone", "to", "alone"): [1]}},
            ValueError,
            "hops must be the same across all",
        ),
        ({"input_nodes": "b", "time_attr": "time"}, SeedError, "the seeds' has none"),
        ({"input_nodes": "c"}, SeedError, "no nodes of type 'c'"),
        ({"input_nodes": None}, SeedError, "the type of the seeds"),
        ({"input_nodes": ("b", torch.tensor([40]))}, SeedError, "nodes of type 'b' are numbered from 0 to 39"),
    ],
)
def test_what_cannot_be_in_a_typed_graph_is_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        next(iter(NeighborLoader(typed(), **{"num_neighbors": [2], "input_nodes": "b", **settings})))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"edge_label_time": torch.zeros(E)}, ValueError, "'time_attr' is not set"),
        ({"time_attr": "time"}, ValueError, "'edge_label_time' is not set"),
        ({"edge_label_index": torch.tensor([[0], [N]])}, SeedError, f"is {N}, but nodes"),
        ({"edge_label_index": torch.zeros(3, dtype=torch.long)}, SeedError, "must be .2, R."),
        ({"edge_label": torch.zeros(3)}, SeedError, f"3 entries for {E}"),
        ({"neg_sampling": {"mode": "binary", "src_weight": -torch.ones(N)}}, SamplerConfigError, "src_weight must be"),
        (
            {"neg_sampling": {"mode": "binary", "dst_weight": torch.ones(3)}},
            SamplerConfigError,
            "dst_weight must be",
        ),
        ({"neg_sampling": "triplet", "edge_label": torch.zeros(E)}, ValueError, "'edge_label' needs to be undefined"),
    ],
)
def test_links_that_cannot_be_are_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        next(iter(LinkNeighborLoader(homogeneous(), [2], **settings)))


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (None, "must name the type of the links"),
        (torch.zeros(2, 3), "must name the type of the links"),
        (("a", "no", "b"), "no edges of type"),
        (("c", "to", "b"), "no edges of type"),
        ((("c", "to", "b"), torch.zeros(2, 3, dtype=torch.long)), "seeds of type 'c'"),
        ((A_TO_B, torch.tensor([[0], [40]])), "nodes of type 'b' are numbered from 0 to 39"),
    ],
)
def test_typed_links_that_cannot_be_are_refused(links: Any, message: str) -> None:
    with pytest.raises(SeedError, match=message):
        LinkNeighborLoader(typed(), [2], links)


def test_seeds_as_of_their_nodes_times_are_told() -> None:
    # Node 0 is there before those that lead to it: as in PyG, it sees none of them by its own time.
    data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]), time=torch.tensor([10, 20, 30, 40]), num_nodes=4)
    settings: Any = {"num_neighbors": [-1], "input_nodes": torch.tensor([0]), "time_attr": "time"}
    with pytest.warns(UserWarning, match=r"1 of 1 see no edge that has a time, and 0 of 3.*give input_time="):
        (batch,) = NeighborLoader(data, **settings)
    assert batch.num_edges == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (batch,) = NeighborLoader(data, **settings, input_time=torch.tensor([30]))
    assert batch.num_edges == 2
