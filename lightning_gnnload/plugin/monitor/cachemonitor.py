"""CacheMonitor: what a feature cache achieves, epoch by epoch, of all trainers together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed

from lightning_gnnload.cache.metrics import AccessSimilarity, BytesRead, HitRate, is_cache
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.features import Reads, summed_reads
from lightning_gnnload.errors import CacheConfigError, LoaderConfigError
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.pipeline.stats import Delivery
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule

_NAMES_BYTES = 1024  # all ranks must reduce tensors of one size


class CacheMonitor(pl.Callback):
    """A callback that logs a cache's figures at the end of each training epoch, summed over all trainers, under
    ``cache/``:

    - ``hit_rate``: of the feature rows gathered, the share that caches gave; and ``hit_rate_cache_2`` and so on, where
      there are several;
    - ``bytes_memory``, ``bytes_disk`` and so on: bytes read from each tier;
    - ``similarity``, if asked for: how much of this epoch's visits to its hottest nodes the one before foretells.

    Nothing is logged of features whose store does not count. An epoch that a run resumes in counts from there on.

    Args:
        similarity: the share of the nodes that counts as hot, such as 0.1; takes 8 bytes a node and trainer, and 4 in
            each checkpoint. None: similarity is not computed.

    Raises:
        CacheConfigError: a share that is not in (0, 1].

    Source: GNNLab (EuroSys'22), section 6.2, Table 2 (similarity).

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[CacheMonitor(similarity=0.1)], logger=False, accelerator="cpu")
    """

    def __init__(self, similarity: float | None = None) -> None:
        if similarity is not None and not 0 < similarity <= 1:
            raise CacheConfigError(f"similarity={similarity!r}: a share of the nodes above 0 and up to 1 is needed.")
        self.similarity = similarity
        self._reads: Reads = ()
        self._last: Delivery | None = None
        self._access: AccessSimilarity | None = None
        self._earlier: torch.Tensor | None = None  # from a checkpoint: of all trainers

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._reads, self._last = (), None
        if self.similarity is None:
            return
        module = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(module, GraphDataModule):
            raise LoaderConfigError("CacheMonitor(similarity=...) needs a GraphDataModule, whose nodes it counts.")
        self._access = AccessSimilarity(module.graph_data.num_nodes, self.similarity).to(trainer.strategy.root_device)
        if self._earlier is not None and trainer.is_global_zero:
            self._access.earlier += self._earlier.to(trainer.strategy.root_device)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loader: object = trainer.train_dataloader
        if not isinstance(loader, EpochLoader) or loader.last is None or loader.last is self._last:
            return
        self._last = loader.last
        self._reads = summed_reads((self._reads, loader.last.reads))
        if self._access is not None:
            self._access.update(_input_nodes(batch))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        reads, self._reads = self._reads, ()
        tiers = _tiers_of_all(trainer, [read.tier for read in reads])
        caches = [tier for tier in tiers if is_cache(tier)]
        metrics: dict[str, HitRate | BytesRead] = {f"bytes_{tier}": BytesRead(tier) for tier in tiers}
        if caches:
            metrics["hit_rate"] = HitRate()
        if len(caches) > 1:
            metrics |= {f"hit_rate_{tier}": HitRate(tier) for tier in caches}
        values = {}
        # Alike in all trainers and in one order, as each metric is a collective.
        for name, metric in metrics.items():
            metric.to(trainer.strategy.root_device)
            metric.update(reads)
            values[f"cache/{name.replace(' ', '_')}"] = metric.compute().float()
        if self._access is not None:
            values["cache/similarity"] = self._access.compute().float()
            self._begin_epoch(trainer, self._access)
        pl_module.log_dict(values, sync_dist=True)  # they are alike already, which Lightning cannot know

    def state_dict(self) -> dict[str, Any]:
        return {} if self._earlier is None else {"earlier": self._earlier}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict.get("earlier")

    def _begin_epoch(self, trainer: pl.Trainer, access: AccessSimilarity) -> None:
        # Rank 0 takes all ranks' counts, so that its checkpoint contains them.
        visits = trainer.strategy.reduce(access.visits, reduce_op="sum")
        assert isinstance(visits, torch.Tensor)
        access.next_epoch()
        access.earlier = visits if trainer.is_global_zero else torch.zeros_like(visits)
        self._earlier = visits.cpu()


def _input_nodes(batch: Any) -> torch.Tensor:
    """The input nodes of a mini-batch in any of the formats."""
    if isinstance(batch, MiniBatch):
        return batch.nodes
    return batch[0] if isinstance(batch, tuple | list) else batch.n_id


def _tiers_of_all(trainer: pl.Trainer, tiers: list[str]) -> list[str]:
    """Gathers the tiers that any trainer has read from: all trainers must reduce the same metrics."""
    encoded = torch.zeros(_NAMES_BYTES, dtype=torch.uint8)
    text = "\n".join(tiers).encode()[:_NAMES_BYTES]
    encoded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else 0
    gathered = [encoded.to(trainer.strategy.root_device) for _ in range(trainer.world_size)]
    if trainer.world_size > 1:
        torch.distributed.all_gather(gathered, gathered[0].clone())
    names = (bytes(row.tolist()).rstrip(b"\0").decode(errors="replace").split("\n") for row in gathered)
    return [name for name in dict.fromkeys(name for rank_names in names for name in rank_names) if name]
