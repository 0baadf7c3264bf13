"""What the drop-in loaders are given: every form is read, and what PyG misreads, or breaks on, is refused by name."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from lightning_fabric.utilities.data import _replace_dunder_methods
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lightning_gnnload import pyg
from lightning_gnnload.errors import (
    GraphDataError,
    LoaderConfigError,
    NoAttributeError,
    NotHereError,
    SamplerConfigError,
    SeedError,
    UnknownSettingError,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.testing import MyFeatureStore, MyGraphStore

    from lightning_gnnload.pyg import (
        HGTLoader,
        LightningLinkData,
        LightningNodeData,
        LinkNeighborLoader,
        NeighborLoader,
        ShaDowKHopSampler,
    )
    from lightning_gnnload.pyg.epochs import _say_once

N, E = 20, 60
A_TO_A = ("a", "to", "a")


def graph(**attributes: Any) -> Data:
    edge_index = torch.randint(N, (2, E), generator=torch.Generator().manual_seed(1))
    return Data(x=torch.arange(N), edge_index=edge_index, time=torch.arange(N), **attributes)


def typed() -> HeteroData:
    data = HeteroData()
    data["a"].x = torch.arange(N)
    data[A_TO_A].edge_index = graph().edge_index
    return data


def stores(kind: str | None) -> tuple[MyFeatureStore, MyGraphStore]:
    features, edges = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.arange(N), group_name=kind, attr_name="x", index=None)
    edge_type = None if kind is None else (kind, "to", kind)
    edges.put_edge_index(tuple(graph().edge_index), edge_type=edge_type, layout="coo", size=(N, N))
    return features, edges


def seeds_of(data: Any, nodes: Any, kind: str | None = None) -> list[int]:
    batches = list(NeighborLoader(data, [2], nodes if kind is None else (kind, nodes), batch_size=8, seed=1))
    of = [batch if kind is None else batch[kind] for batch in batches]
    return [int(node) for store in of for node in store.n_id[: store.batch_size]]


FORMS: list[tuple[Any, list[int]]] = [
    (None, list(range(N))),
    (slice(2, 8, 3), [2, 5]),
    ([], []),
    ((4, 2), [4, 2]),
    (np.array([4, 2], np.uint32), [4, 2]),
    (torch.arange(N) > N - 3, [N - 2, N - 1]),
    (torch.tensor([7, 3], dtype=torch.int32), [7, 3]),
]


@pytest.mark.parametrize(("form", "expected"), FORMS)
def test_every_form_of_seeds_is_read(form: Any, expected: list[int]) -> None:
    assert seeds_of(graph(), form) == seeds_of(stores(None), form) == expected
    assert seeds_of(typed(), form, "a") == seeds_of(stores("a"), form, "a") == expected


@pytest.mark.parametrize(
    "given",
    [
        [True] * N,  # PyG takes them for the ids 1, 1, 1 and so on
        np.ones(N, bool),
        [1.5, 2.0],  # PyG cuts the fraction off
        torch.zeros(2, 1, dtype=torch.long),
        torch.tensor(3),
        3,
        {1, 2},
        [None],
    ],
)
def test_what_are_no_seeds_is_refused(given: Any) -> None:
    for data, form in ((graph(), given), (stores(None), given), (typed(), ("a", given)), (stores("a"), ("a", given))):
        with pytest.raises(SeedError, match="input_nodes must be ids of nodes"):
            NeighborLoader(data, [2], form)
    with pytest.raises(SeedError, match="input_nodes must be ids of nodes"):
        HGTLoader(typed(), [2], ("a", given))


def test_a_mask_of_stores_is_of_all_nodes() -> None:
    for data, form in ((stores(None), torch.ones(3) > 0), (stores("a"), ("a", torch.ones(3) > 0))):
        with pytest.raises(SeedError, match="mask has 3 entries, but there are 20 nodes"):
            NeighborLoader(data, [2], form)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input_time": list(range(N)), "time_attr": "time"}, "input_time is a list"),
        ({"input_time": np.arange(N), "time_attr": "time"}, "input_time is a ndarray"),
        ({"input_id": list(range(N))}, "input_id is a list"),
    ],
)
def test_columns_of_nodes_are_tensors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SeedError, match=message):
        NeighborLoader(graph(), [2], **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edge_label": [1] * E}, "edge_label is a list"),
        ({"edge_label_time": np.arange(E), "time_attr": "time"}, "edge_label_time is a ndarray"),
        ({"edge_label_index": np.zeros((2, 3), np.int64)}, "edge_label_index must be a torch.Tensor"),
        ({"edge_label_index": (torch.arange(3), torch.arange(3))}, "edge_label_index must be a torch.Tensor"),
        ({"neg_sampling": {"mode": "binary", "amount": 1, "src_weight": [1.0] * N}}, "src_weight is a list"),
    ],
)
def test_columns_of_links_are_tensors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SeedError, match=message):
        LinkNeighborLoader(graph(), [2], **settings)


@pytest.mark.parametrize("links", [None, torch.zeros(2, 3, dtype=torch.long), (None, None)])
def test_links_of_stores_have_a_type_or_ends(links: Any) -> None:
    with pytest.raises(SeedError, match="edge_label_index"):
        LinkNeighborLoader(stores(None), [2], links)


def test_links_of_a_graph_without_edges_are_given() -> None:
    with pytest.raises(SeedError, match="it has no edge_index"):
        LinkNeighborLoader(Data(x=torch.arange(3)), [2])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("disjoint", [False, True])
def test_links_are_integers_of_any_width(dtype: torch.dtype, disjoint: bool) -> None:
    data = graph()
    settings: dict[str, Any] = {"neg_sampling": "binary", "disjoint": disjoint, "batch_size": E, "seed": 3}
    [wanted] = LinkNeighborLoader(data, [2], **settings)
    data.edge_index = data.edge_index.to(dtype)
    [batch] = LinkNeighborLoader(data, [2], **settings)
    assert torch.equal(batch.n_id, wanted.n_id)
    assert torch.equal(batch.edge_label_index, wanted.edge_label_index)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "must be a list"),
        (None, "must be a list"),
        ("ab", r"num_neighbors\[0\] is 'a'"),
        ([2.5], r"num_neighbors\[0\] is 2.5, but must be an integer"),
        ([[2]], "must be an integer"),
        ({A_TO_A: [2]}, "the graph has no types"),
    ],
)
def test_fanouts_are_a_list_of_integers(given: Any, message: str) -> None:
    with pytest.raises(SamplerConfigError, match=message):
        NeighborLoader(graph(), given)


def test_fanouts_by_type_are_integers() -> None:
    for given, message in ((3, "must be a list"), ({A_TO_A: [2.5]}, r"\[0\] is 2.5, but must be an integer")):
        with pytest.raises(SamplerConfigError, match=message):
            NeighborLoader(typed(), given, "a")
    assert len(list(NeighborLoader(typed(), np.array([2, 1]), "a", seed=np.int64(3)))) == N


@pytest.mark.parametrize("edge_index", [torch.zeros(3, 5), torch.zeros(5), torch.zeros(5, 2), [[0], [1]], (0, 1)])
def test_edges_are_two_rows(edge_index: Any) -> None:
    with pytest.raises(GraphDataError, match=r"edge_index of the PyG graph must be a tensor \[2, E\]"):
        NeighborLoader(Data(x=torch.arange(4), edge_index=edge_index), [2])


def test_weights_are_numbers() -> None:
    with pytest.raises(GraphDataError, match="weights must be numbers"):
        NeighborLoader(graph(weight="heavy"), [2], weight_attr="weight")


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_of_torch_are_refused() -> None:
    adj_t = torch.eye(4).to_sparse_csr()
    with pytest.raises(LoaderConfigError, match=r"data.adj_t is a Tensor.*edge_index"):
        NeighborLoader(Data(x=torch.arange(4), adj_t=adj_t), [2])


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ([str(node) for node in range(N)], "a list"),
        (tuple(range(N)), "a tuple"),
        (np.arange(N).astype("datetime64[D]"), r"an array of datetime64\[D\]"),
        (np.array(["text"] * N), "an array of <U4"),
    ],
)
def test_attributes_that_no_batch_can_have_are_refused_by_name(value: Any, what: str) -> None:
    data, message = graph(names=value), f"'names' is {what} with an entry for each node or edge"
    for loader in (NeighborLoader, LinkNeighborLoader):
        with pytest.raises(GraphDataError, match=message):
            loader(data, [2])
    with pytest.raises(GraphDataError, match=message):
        LightningNodeData(data, num_neighbors=[2]).train_dataloader()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_sparse_features_have_rows_or_are_refused_at_once(layout: torch.layout) -> None:
    x = torch.eye(N).roll(1, 0)
    with pytest.raises(GraphDataError, match=f"'x' is a tensor of layout {layout}.*to_dense"):
        NeighborLoader(Data(x=x.to_sparse(layout=layout), edge_index=graph().edge_index), [2])
    with pytest.raises(GraphDataError, match=f"'x' is a tensor of layout {layout}"):
        ShaDowKHopSampler(Data(x=x.to_sparse(layout=layout), edge_index=graph().edge_index), 1, 2)
    data = typed()
    data["a"].x = x.to_sparse(layout=layout)
    for loader in (lambda: NeighborLoader(data, [2], "a"), lambda: HGTLoader(data, [2], "a")):
        with pytest.raises(GraphDataError, match=f"'x' is a tensor of layout {layout}"):
            loader()
    batch = next(iter(NeighborLoader(Data(x=x.to_sparse(), edge_index=graph().edge_index), [2], batch_size=4)))
    assert torch.equal(batch.x.to_dense(), x[batch.n_id])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"sampler": [3, N]}, f"lists row {N}, but the loader has rows 0 to {N - 1}"),
        ({"sampler": [3, -1]}, "lists row -1, but the loader has rows"),
        ({"batch_sampler": [[3], [2, -1]]}, "lists row -1, but the loader has rows"),
        ({"sampler": SubsetRandomSampler([3, N])}, f"lists row {N}"),
        ({"sampler": RandomSampler(range(5))}, f"RandomSampler lists rows of 5, but the loader has {N}"),
        ({"batch_sampler": BatchSampler(RandomSampler(range(E)), 4, False)}, f"lists rows of {E}"),
        ({"sampler": WeightedRandomSampler([1.0] * 5, 3)}, "WeightedRandomSampler lists rows of 5"),
        ({"sampler": DistributedSampler(range(5), 2, 0)}, "DistributedSampler lists rows of 5"),  # type: ignore[arg-type]
    ],
)
def test_rows_of_others_are_refused(rows: dict[str, Any], message: str) -> None:
    for num_workers in (0, 1):
        with pytest.raises(SeedError, match=message):
            list(NeighborLoader(graph(), [2], num_workers=num_workers, **rows))
    if isinstance(rows.get("sampler"), torch.utils.data.Sampler):
        with pytest.raises(SeedError, match=message):
            LightningNodeData(graph(), num_neighbors=[2], **rows).train_dataloader()


@pytest.mark.parametrize("name", ["weight_attr", "time_attr"])
def test_an_attribute_has_a_name(name: str) -> None:
    for loader, data in ((NeighborLoader, graph()), (LinkNeighborLoader, graph()), (LightningLinkData, typed())):
        with pytest.raises(SamplerConfigError, match=f"{name}=.*must be the name of an attribute"):
            loader(data, num_neighbors=[2], **{name: [A_TO_A]})


@pytest.mark.parametrize("name", ["NeighborLoader", "LinkNeighborLoader", "HGTLoader", "ShaDowKHopSampler"])
def test_keywords_that_are_none_say_what_there_is(name: str) -> None:
    loader: Any = globals()[name]
    for keyword, message in (
        ("window", "What says the same here: time_window="),
        ("negatives", "What says the same here: neg_sampling"),
        ("batchsize", "Did you mean batch_size="),
    ):
        positional = (1, 2) if loader is ShaDowKHopSampler else ([2], "a") if loader is HGTLoader else ([2],)
        with pytest.raises(UnknownSettingError, match=f"{loader.__name__} has no {keyword}=. {message}"):
            loader(typed() if loader is HGTLoader else graph(), *positional, **{keyword: 3})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TemporalDataLoader", "There is NeighborLoader.*from torch_geometric.loader import TemporalDataLoader"),
        ("ImbalancedSampler", "PyG.s own works with the loaders from here"),
        ("DataLoader", "There is none for many small graphs. PyG's own stays where it is: from torch_geometric.loader"),
        ("NumNeighbors", "from torch_geometric.sampler import NumNeighbors"),
        ("LightningDataset", "from torch_geometric.data.lightning import LightningDataset"),
    ],
)
def test_other_names_of_pygs_say_where_they_are(name: str, message: str) -> None:
    with pytest.raises(NotHereError, match=message):
        exec(f"from lightning_gnnload.pyg import NeighborLoader, {name} as other")
    assert not hasattr(pyg, name)
    assert getattr(pyg, name, 5) == 5
    with pytest.raises(NoAttributeError, match=message) as caught:
        getattr(pyg, name)
    assert isinstance(caught.value, AttributeError)
    with pytest.raises(ImportError, match="cannot import name 'Loader'"):
        exec("from lightning_gnnload.pyg import Loader")


def led_away() -> Data:
    """A graph whose edges lead away from the first half of its nodes, with times."""
    ends = torch.stack([torch.arange(N // 2).repeat(2), torch.arange(N).remainder(N // 2) + N // 2])
    return Data(edge_index=ends, num_nodes=N, time=torch.arange(N), train_mask=torch.arange(N) < N // 2)


def test_seeds_that_edges_lead_away_from_are_told_once() -> None:
    data, seeds = led_away(), torch.arange(N // 2)
    hetero = HeteroData()
    hetero["a"].num_nodes = hetero["b"].num_nodes = N
    hetero["a", "to", "b"].edge_index = graph().edge_index
    message = r"without in-neighbours.* {} of {} {}, though most of them have out-neighbours.*edge_index.flip\(0\)"
    for make in (
        lambda: NeighborLoader(data, [2], seeds),
        lambda: NeighborLoader(data, [2], seeds, time_attr="time", subgraph_type="induced"),
        lambda: ShaDowKHopSampler(data, 1, 2, data.train_mask),
        lambda: HGTLoader(hetero, [2], ("a", graph().edge_index[0, :10].unique())),
    ):
        with pytest.warns(UserWarning, match=message.format(r"\d+", r"\d+", "seeds")):
            make()
    with pytest.warns(UserWarning, match=message.format(N, N, "sources of links")):
        loader = LinkNeighborLoader(data, [2], data.edge_index)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            list(loader)
        NeighborLoader(data, [2], neighbor_sampler=NeighborLoader(data, [2], seeds).neighbor_sampler, input_nodes=seeds)
        module = LightningNodeData(data, num_neighbors=[2])
        for _ in range(2):
            module.train_dataloader()
        NeighborLoader(data, [2], torch.arange(N // 2 - 4, N))  # few of them
        NeighborLoader(data, [], seeds)  # of which nothing was to be drawn
    assert len([each for each in told if "without in-neighbours" in str(each.message)]) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeighborLoader(graph(), [2], num_workers=1),
        lambda: LinkNeighborLoader(graph(), [2], edge_label_index=graph().edge_index, num_workers=1),
        lambda: ShaDowKHopSampler(graph(), depth=1, num_neighbors=2, num_workers=1),
    ],
    ids=["nodes", "links", "shadow"],
)
@pytest.mark.parametrize("is_wrapped", [False, True])  # as in a fit; and after one that failed, for Lightning leaves it
def test_what_workers_are_is_said_at_the_users_own_line(make: Any, is_wrapped: bool) -> None:
    _say_once.cache_clear()
    with (
        _replace_dunder_methods(DataLoader, "dataset") if is_wrapped else nullcontext(),
        pytest.warns(UserWarning, match="num_workers means threads") as told,
    ):
        make()
    assert [each.filename for each in told if "num_workers" in str(each.message)] == [__file__]
