"""Every layer of DGL and PyG that a mini-batch can feed gives on ours what it gives on their own data."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from lightning_gnnload import GraphData, RandomWalkSampler
from lightning_gnnload.adapters.dgl.write import ToDGL
from tests.integration.layers import page
from tests.runif import RunIf

LIBRARIES = [
    pytest.param("dgl", "dgl.nn.pytorch.conv", marks=RunIf(extras="dgl")),
    pytest.param("pyg", "torch_geometric.nn.conv", marks=RunIf(extras="pyg")),
]


@pytest.mark.parametrize(("name", "package"), LIBRARIES)
def test_layers_give_what_they_give_on_the_librarys_own(name: str, package: str) -> None:
    library = import_module(f"tests.integration.layers.{name}_layers")
    # A layer that a new version brings is neither fed nor said not to be.
    listed = {layer.split(",")[0] for layer in [*library.ROWS, *library.NOT_FED]}
    assert set(import_module(package).__all__) <= listed
    # Edges, rows of edata or edge ids in another order than one another fail here, and blocks that kernels refuse.
    found, _ = page.table(name)
    wrong = {
        f"{layer}, {what}": verdict
        for layer, verdicts in found.items()
        for what, verdict in verdicts.items()
        if not (verdict == "equal" or (verdict == "refused" and what == "no edges") or what.startswith("fewer hops"))
    }
    assert not wrong
    # Where more hops than layers are asked for, fewer are not enough.
    assert all(
        verdicts.get("fewer hops than are needed", "differs").startswith("differs") for verdicts in found.values()
    )


@pytest.mark.parametrize(("name", "package"), LIBRARIES)
def test_the_page_says_what_layers_give(name: str, package: str) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.with_table(text, name), "python -m tests.integration.layers.page writes it anew"


class WeightedSage(torch.nn.Module):
    """A layer of DGL's PinSAGE example: neighbours count as often as walks visited them."""

    def __init__(self) -> None:
        super().__init__()
        self.neighbor, self.node = torch.nn.Linear(8, 8), torch.nn.Linear(16, 8)

    def forward(self, block: Any, h: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        import dgl.function as fn

        h_dst = h[: block.num_nodes("DST/" + block.ntypes[0])]
        with block.local_scope():
            block.srcdata["n"], block.edata["w"] = self.neighbor(h).relu(), weights
            block.update_all(fn.u_mul_e("n", "w", "m"), fn.sum("m", "n"))
            block.update_all(fn.copy_e("w", "m"), fn.sum("m", "ws"))
            mean = block.dstdata["n"] / block.dstdata["ws"][:, None].clamp(min=1)
            return torch.nn.functional.normalize(self.node(torch.cat([mean, h_dst], 1)).relu())


@RunIf(extras="dgl")
def test_the_layers_of_dgls_pinsage_example() -> None:
    import dgl

    from tests.integration.layers.dgl_layers import LONELY, SEEDS, graph, theirs

    torch.manual_seed(0)
    model, features = torch.nn.ModuleList([WeightedSage(), WeightedSage()]), torch.randn(graph().num_nodes(), 8)

    def outcome(blocks: list[Any]) -> list[torch.Tensor]:
        h = features[blocks[0].srcdata[dgl.NID]]
        for layer, block in zip(model, blocks, strict=True):
            h = layer(block, h, block.edata["weights"])
        return [h, *torch.autograd.grad(h.cos().sum(), list(model.parameters()))]

    walks = RandomWalkSampler(num_layers=2, num_neighbors=3)
    batch = walks.sample(GraphData.from_dgl(graph()).graph, SEEDS, seed=1)
    _, _, ours = ToDGL()(batch)
    assert LONELY in SEEDS  # whose destination has no weights to divide by
    assert all(len(block.edata["weights"].unique()) > 1 for block in ours)
    for mine, its in zip(outcome(ours), outcome(theirs(ours)), strict=True):
        assert mine.any()
        torch.testing.assert_close(mine, its)
