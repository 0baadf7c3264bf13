"""PredictionWriter: what a model predicts, in one file, with the node that each row is of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.storage.places import check_parent
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.plugin.compat import pl


class PredictionWriter(pl.Callback):
    """After ``trainer.predict``, writes what ``predict_step`` returned as one ``.npz`` file.

    It holds ``ids``, int64 ``[S]``, the nodes in the order of ``GraphDataModule(predict=...)``, or the row numbers of
    a :class:`.SeedTable`, and ``predictions`` ``[S, ...]``, a row for each; or, where ``predict_step`` returns a dict
    of tensors, each under its name. The rows of all trainers are there: each writes a file of its own, and rank 0
    joins them. On several machines ``path`` must therefore lie in a folder that they share. A file of that name is
    replaced when the new one is whole.

    Args:
        path: of the file; ``.npz`` is added where it is missing.

    Raises:
        StoreFormatError: at the beginning: ``path`` cannot be written.
        LoaderConfigError: at the beginning: ``path`` is a folder; when a batch was predicted: ``predict_step`` returned
            no tensors with a row for each seed, or the mini-batches are not a GraphDataModule's; at the end: a rank's
            file is missing.

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[PredictionWriter("predictions.npz")], logger=False, accelerator="cpu")
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix != ".npz":
            self.path = self.path.with_name(f"{self.path.name}.npz")
        self._rows: dict[str, list[np.ndarray]] = {}

    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Now, not after an hour of work.
        check_parent(self.path)
        if self.path.is_dir():
            raise LoaderConfigError(f"PredictionWriter: {self.path} is a folder; give the path of a file.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = {}

    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        loaders: Any = trainer.predict_dataloaders
        loader = loaders[dataloader_idx] if isinstance(loaders, list | tuple) else loaders
        if not isinstance(loader, EpochLoader) or dataloader_idx:
            raise LoaderConfigError(
                f"PredictionWriter needs one loader, a GraphDataModule's, but predict loader {dataloader_idx} is a "
                f"{type(loader).__name__}. Write predictions of other loaders by a callback of your own."
            )
        request = BatchRequest(0, batch_idx, loader.rank, loader.num_ranks)
        ids = loader.source.workload.seeds_of(request)
        rows = outputs if isinstance(outputs, Mapping) else {"predictions": outputs}
        for name, values in rows.items():
            if not isinstance(values, torch.Tensor) or values.ndim < 1 or len(values) != len(ids) or name == "ids":
                given = list(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
                raise LoaderConfigError(
                    f"predict_step returned {given} as {name!r} for {len(ids)} seeds, which cannot be saved by node: a "
                    f"tensor with a row for each seed is needed, or a dict of such, none of which is named 'ids'."
                )
            # A copy even from host memory: a view of the batch would keep the batch's slot to the end.
            values = values.detach().to("cpu", copy=True)
            self._keep(name, (values.float() if values.dtype is torch.bfloat16 else values).numpy())  # NumPy has none
        self._keep("ids", ids)
        # Of the order of all ranks' rows: by steps, and in a step by ranks.
        self._keep("place", np.full(len(ids), batch_idx * loader.num_ranks + loader.rank))

    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _save(self._part(trainer.global_rank), {name: np.concatenate(rows) for name, rows in self._rows.items()})
        self._rows = {}
        trainer.strategy.barrier("predictions")
        if not trainer.is_global_zero:
            return
        parts = [self._part(rank) for rank in range(trainer.world_size)]
        # The barrier is over, so that all are written: one that is not seen lies on another machine's disk.
        if missing := [part for part in parts if not part.exists()]:
            raise LoaderConfigError(
                f"{missing[0]} is not there: give PredictionWriter a path in a folder that all machines share."
            )
        found = [dict(np.load(part, allow_pickle=False)) for part in parts]
        # A rank that predicted no batch has an empty part, which names no array.
        whole = {name: np.concatenate([part[name] for part in found if part]) for name in max(found, key=len)}
        order = np.argsort(whole.pop("place", np.empty(0)), kind="stable")
        _save(self.path, {name: rows[order] for name, rows in whole.items()})
        for part in parts:
            part.unlink()
        pl.utilities.rank_zero.rank_zero_info(f"Predictions of {len(order)} nodes are in {self.path}.")

    def _keep(self, name: str, rows: np.ndarray) -> None:
        self._rows.setdefault(name, []).append(rows)

    def _part(self, rank: int) -> Path:
        return self.path.with_name(f"{self.path.name}.rank{rank}.npz")


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes all of it or nothing, as another process may be reading."""
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    partial.replace(path)
