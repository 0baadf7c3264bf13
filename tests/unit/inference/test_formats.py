"""Models on blocks and DGL's over all nodes, layer by layer: what they give on everything at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_gnnload import (
    SAGE,
    Block,
    GraphDataModule,
    LinkPredictor,
    MiniBatch,
    NeighborSampler,
    SeedTable,
    infer,
    score_links,
)
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.plugin.compat import pl
from tests.plain_sage import GraphSAGE
from tests.runif import RunIf
from tests.unit.inference.models import HIDDEN, NUM_NODES, WIDTH, edges, features, flat_data

QUIET: dict[str, Any] = {"max_edges": 150, "progress": False}


def whole_block() -> Block:
    """All nodes and edges in one block."""
    batch = NeighborSampler([-1], edge_ids=True).sample(flat_data().graph, torch.arange(NUM_NODES))
    return batch.blocks[0]


def test_a_lightning_model_on_blocks_whatever_its_mini_batches() -> None:
    data = flat_data()
    model = GraphSAGE(WIDTH, 3, hidden=HIDDEN, num_layers=3).eval()
    module = GraphDataModule(data, NeighborSampler([2, 2, 2]))
    whole = MiniBatch(torch.arange(NUM_NODES), NUM_NODES, [whole_block()] * 3, x=features(data))
    with torch.no_grad():
        wanted = model(whole)
    torch.testing.assert_close(infer(model, module, method="forward", **QUIET), wanted, rtol=1e-5, atol=1e-5)
    chances = infer(model, module, **QUIET)  # predict_step is the model's own
    torch.testing.assert_close(chances, wanted.softmax(dim=1), rtol=1e-5, atol=1e-5)
    some = infer(model, data, nodes=[9, 3, 250], method="forward", **QUIET)  # which finds the number of layers
    torch.testing.assert_close(some, wanted[[9, 3, 250]], rtol=1e-5, atol=1e-5)


class Functions(nn.Module):
    """Layers that are functions of blocks: a model that says what each does."""

    num_layers = 2

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 4)])

    def layer(self, number: int, block: Block, rows: Tensor) -> Tensor:
        told = rows.new_zeros(block.num_dst, rows.shape[1]).index_add_(0, block.edge_dst(), rows[block.indices.long()])
        return self.own[number](told + rows[: block.num_dst]).relu()


def test_a_model_that_says_what_its_layers_do() -> None:
    data, model = flat_data(), Functions()
    rows, block = features(data), whole_block()
    with torch.no_grad():
        for number in range(2):
            rows = model.layer(number, block, rows)
    torch.testing.assert_close(infer(model, data, **QUIET), rows, rtol=1e-5, atol=1e-5)


def test_links_are_scored_by_rows_that_are_computed_once() -> None:
    data = flat_data(train=SeedTable(src=[5, 9], dst=[6, 250]))
    model = LinkPredictor(SAGE(hidden=HIDDEN), num_outputs=WIDTH, head="bilinear")
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    pl.Trainer(accelerator="cpu", max_steps=1, **quiet).fit(
        model, GraphDataModule(data, NeighborSampler([2, 2]), num_threads=0)
    )
    rows = infer(model, data, method="embed", **QUIET)
    scores = score_links(model.score, rows, SeedTable(src=[5, 9], dst=[6, 250]), data.graph)
    batch = GraphDataModule(
        data, NeighborSampler([-1, -1]), predict=SeedTable(src=[5, 9], dst=[6, 250]), exclude=None, num_threads=0
    ).predict_dataloader()
    with torch.no_grad():
        ends = model.eval()(next(iter(batch)))
        columns = next(iter(batch)).seed_columns
        wanted = model.score(ends[columns["src"]], ends[columns["dst"]])
    torch.testing.assert_close(scores, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InferenceError, match="one entry for each"):
        score_links(lambda src, dst: src.sum(), rows, ([0, 1], [2, 3]))


def test_a_model_whose_order_of_layers_depends_on_the_batch_is_refused() -> None:
    class Moody(GraphSAGE):
        def forward(self, batch: MiniBatch) -> Tensor:
            first, second = batch.blocks
            inner = self.convs[0](first, batch.x) if batch.num_nodes < 40 else self.convs[2](first, batch.x)
            return self.convs[1](second, inner)

    model = Moody(WIDTH, HIDDEN, hidden=HIDDEN, num_layers=3)
    model.convs[2] = type(model.convs[0])(WIDTH, HIDDEN)
    with pytest.raises(InferenceError, match=r"out of turn|other rows"):
        infer(model, flat_data(), num_layers=2, method="forward", progress=False)


@pytest.mark.parametrize("name", ["SAGEConv", "GATConv", "GraphConv"])
@RunIf(extras="dgl")
def test_models_of_dgl(name: str) -> None:
    import dgl
    import dgl.nn

    def conv(width: int) -> nn.Module:
        if name == "SAGEConv":
            return dgl.nn.SAGEConv(width, HIDDEN, "mean")
        if name == "GATConv":
            return dgl.nn.GATConv(width, HIDDEN, 1, allow_zero_in_degree=True)
        return dgl.nn.GraphConv(width, HIDDEN, norm="right", allow_zero_in_degree=True)

    class OnBlocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([conv(WIDTH), conv(HIDDEN)])

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            for each, block in zip(self.convs, blocks, strict=True):
                x = each(block, (x, x[: block.num_dst_nodes()])).flatten(1).relu()
            return x

    class OnGraph(OnBlocks):
        def forward(self, g: Any, x: Tensor) -> Tensor:
            for each in self.convs:
                x = each(g, x).flatten(1).relu()
            return x

    class OnTriples(OnBlocks):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            _, _, blocks = batch
            return self(blocks, blocks[0].srcdata["feat"])

    data, graph = flat_data(), dgl.graph(tuple(map(torch.from_numpy, edges())), num_nodes=NUM_NODES)
    torch.manual_seed(0)
    whole = OnGraph().eval()
    with torch.no_grad():
        wanted = whole(graph, features(data))
    for kind in (OnBlocks, OnGraph, OnTriples):
        model = kind()
        model.load_state_dict(whole.state_dict())
        torch.testing.assert_close(infer(model, data, batch_format="dgl", **QUIET), wanted, rtol=1e-5, atol=1e-5)
