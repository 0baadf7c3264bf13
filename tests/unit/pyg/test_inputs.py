"""What the drop-in loaders are given: every form is read, and what PyG misreads, or breaks on, is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError, SeedError
from lightning_gnnload.pyg import HGTLoader, LinkNeighborLoader, NeighborLoader

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
        ({"neg_sampling": NegativeSampling("binary", 1, [1.0] * N)}, "src_weight is a list"),  # type: ignore[arg-type]
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
    with pytest.raises(GraphDataError, match=f"'names' is {what} with an entry for each node or edge"):
        next(iter(NeighborLoader(graph(names=value), [2])))
