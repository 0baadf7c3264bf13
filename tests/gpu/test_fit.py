"""A fit on a GPU whose batches are made there sees the batches and losses of one whose batches the CPU makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from torch.nn import functional

from lightning_gnnload import FeatureCache
from lightning_gnnload.data.block import MiniBatch
from tests.integration.scripts.toy import Recorder, digest, toy_module


class DeviceRecorder(Recorder):
    """Looks at batches that lie on a device."""

    def look(self, phase: str, batch: MiniBatch, batch_idx: int, loader: int = 0) -> torch.Tensor:
        assert batch.x.device == self.device
        loss = functional.cross_entropy(self(batch), batch.y)
        tensors = [batch.nodes, batch.x, batch.y, *(t for block in batch.blocks for t in (block.indptr, block.indices))]
        self.seen.append([phase, batch_idx, digest(tensor.cpu() for tensor in tensors), loss.item().hex()])
        return loss


def fit(**settings: Any) -> list[list[Any]]:
    seed_everything(3, verbose=False)
    model = DeviceRecorder()
    trainer = Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=3,
        deterministic="warn",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, toy_module(**settings))
    return model.seen


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_features_from_a_cache_change_nothing(place: str) -> None:
    plain = fit(sampling_device="cpu")
    assert fit(sampling_device=place, cache=FeatureCache(ratio=0.2)) == plain


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_cache_that_opens_after_some_steps_changes_nothing(place: str) -> None:
    """With device="cuda", one that finds no room would be an error."""
    plain = fit(sampling_device="cpu")
    assert fit(sampling_device=place, cache=FeatureCache("degree", device="cuda")) == plain


def test_batches_made_on_the_gpu_change_nothing() -> None:
    on_host = fit(sampling_device="cpu")
    on_device = fit(sampling_device="cuda")
    assert [seen[:3] for seen in on_device] == [seen[:3] for seen in on_host]
    assert on_device == on_host
