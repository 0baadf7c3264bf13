"""The same job by DGL's own example of GraphSAGE on mini-batches: its loader, layers and loop, without Lightning."""

from __future__ import annotations

import os
import resource
import time
from itertools import pairwise
from typing import Any

import dgl
import torch
from dgl.nn.pytorch import SAGEConv
from torch import nn
from torch.nn import functional

import lightning_gnnload
from tests.benchmarks.errors import Unavailable
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.our_training import BATCH_SIZE, DROPOUT, FANOUTS, HIDDEN, LR, model_of_ours
from tests.benchmarks.peer_dgl import PeerDGL
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import PROCESSOR_MS


class SAGE(nn.Module):
    """As ``examples/pytorch/graphsage/node_classification.py`` of DGL 1.1 has it."""

    def __init__(self, in_size: int, hidden: int, out_size: int, dropout: nn.Module) -> None:
        super().__init__()
        widths = [in_size] + [hidden] * (len(FANOUTS) - 1) + [out_size]
        self.layers = nn.ModuleList(SAGEConv(*pair, "mean") for pair in pairwise(widths))
        self.dropout = dropout

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        h = x
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if index != len(self.layers) - 1:
                h = self.dropout(functional.relu(h))
        return h


class PeerDGLTraining:
    """On the first ``cores`` cores; a turn is an epoch."""

    def __init__(self, graph: str, cores: int) -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        torch.set_num_threads(cores)
        self.peer, self.data = PeerDGL(graph), GRAPHS[graph].load()
        self._models: dict[str, tuple[SAGE, torch.optim.Optimizer]] = {}

    def epoch(self, turn: int, precision: str, num_workers: int, our_dropout: bool) -> dict[str, Any]:
        model, optimizer = self._model(f"{precision} {num_workers}", our_dropout)
        wanted = {"prefetch_node_feats": ["feat"], "prefetch_labels": ["label"]}
        loader = dgl.dataloading.DataLoader(
            self.peer.graph,
            torch.from_numpy(self.peer.train),
            dgl.dataloading.NeighborSampler(FANOUTS[::-1], **wanted),
            batch_size=BATCH_SIZE,
            shuffle=True,
            num_workers=num_workers,
        )
        model.train()
        began, began_using, total_loss = time.perf_counter(), _used_s(), 0.0
        for _input_nodes, _output_nodes, blocks in loader:
            x, y = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = functional.cross_entropy(model(blocks, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        took, used = time.perf_counter() - began, _used_s() - began_using
        return {"values": [took * 1e3], PROCESSOR_MS: used * 1e3, "loss": total_loss / len(loader)}

    def _model(self, name: str, our_dropout: bool) -> tuple[SAGE, torch.optim.Optimizer]:
        if (key := f"{name} {our_dropout}") not in self._models:
            kind = getattr(lightning_gnnload, "Dropout", None) if our_dropout else nn.Dropout
            if kind is None:
                raise Unavailable("this version has no Dropout of its own")
            torch.manual_seed(0)
            model = SAGE(self.data.num_features, HIDDEN, self.data.num_classes, kind(DROPOUT))
            # From the same weights, so that losses can be compared.
            for layer, conv in zip(model.layers, model_of_ours(self.data).convs, strict=True):
                layer.fc_self.load_state_dict(conv.own.state_dict())
                layer.fc_neigh.load_state_dict(conv.neighbors.state_dict())
            self._models[key] = model, torch.optim.Adam(model.parameters(), lr=LR)
        return self._models[key]


def _used_s() -> float:
    """Of this process and of workers that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    serve(PeerDGLTraining)
