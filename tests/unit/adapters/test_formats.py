"""What holds of every batch format, whichever library it serves."""

from __future__ import annotations

import importlib.util
from typing import Any, get_args

import pytest
import torch

from lightning_gnnload import GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.adapters.base import BatchFormat
from lightning_gnnload.adapters.formats import FORMATS, FormatName
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.inference.model import call_of
from tests.unit.toy import toy_data

ALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            each.library is not None and importlib.util.find_spec(each.library) is None, reason=f"needs {each.library}"
        ),
    )
    for name, each in FORMATS.items()
]


def test_checkers_of_types_and_the_command_line_know_all_rows() -> None:
    assert get_args(FormatName) == tuple(FORMATS)


@pytest.mark.parametrize("name", ALL)
def test_a_data_module_gives_batches_whose_floats_can_be_converted(name: FormatName) -> None:
    form, sampler = FORMATS[name], NeighborSampler([3, 2], expand="new")
    form.check_device(torch.device("cpu"))
    module = GraphDataModule(toy_data(), sampler, batch_size=50, batch_format=name, num_threads=0)
    batches = list(module.train_dataloader())
    assert len(batches) == 2
    assert isinstance(batches[0], MiniBatch) == (form.library is None)
    met: list[torch.dtype] = []
    form.converted(batches[0], lambda rows: met.append(rows.dtype) or rows)
    # Lightning converts a MiniBatch itself. A library's batch left out here would keep its precision, and fail in fp16.
    assert (torch.float32 in met) == (form.library is not None)


def test_a_row_is_all_that_the_rest_of_the_package_knows_of_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pairs(BatchFormat):
        """Gives the nodes and the features of a mini-batch as a pair."""

        library = "pairs"
        words = frozenset(("first_of_pair",))

        def adapter(self, data: Any, template: Any = None, links: Any = None, **names: str) -> Any:
            return lambda batch: (batch.nodes, batch.x)

        def argument(self, batch: Any, name: str, feature_name: str) -> Any:
            return {"ids": batch[0], "rows": batch[1]}.get(name)

    class Model(torch.nn.Module):
        def forward(self, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return rows.sum(1) + ids

    monkeypatch.setitem(FORMATS, "pairs", Pairs())  # type: ignore[arg-type]
    data, sampler = toy_data(), NeighborSampler([2])
    module = GraphDataModule(data, sampler, batch_size=50, batch_format="pairs", num_threads=0)  # type: ignore[arg-type]
    batch = next(iter(module.train_dataloader()))
    assert torch.equal(batch[1], data.x.rows[batch[0]].view(len(batch[0]), -1))
    run, is_one_graph = call_of(Model(), None, "pairs", "feat")
    assert (torch.equal(run(batch), batch[1].sum(1) + batch[0]), is_one_graph) == (True, False)
    with pytest.raises(AttributeError, match=r"batch_format='pairs'\) gives batches that do"):
        sampler.sample(data.graph, [0]).first_of_pair  # noqa: B018


def test_graphs_of_a_formats_library_are_sent_to_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "pairs", type("Pairs", (BatchFormat,), {"library": "pairs"})())  # type: ignore[arg-type]
    graph = type("PairGraph", (), {"__module__": "pairs.graphs"})()
    with pytest.raises(
        LoaderConfigError, match=r"a PairGraph of pairs; take GraphDataModule.from_pairs\(data, sampler"
    ):
        GraphDataModule(graph, NeighborSampler([2]))
