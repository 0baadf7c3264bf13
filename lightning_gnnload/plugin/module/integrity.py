"""FolderChecks: compares the folders that a data module reads with their checksums, once, while it trains."""

from __future__ import annotations

import torch
import torch.distributed as dist

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.errors import DataDisagreementError, LoaderConfigError
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.storage.background import BackgroundCheck
from lightning_gnnload.storage.partitions import StoredPartition

_TEXT_BYTES = 256  # of what a rank has loaded, in a message of one size


def check_alike(data_by_rank: dict[str, str]) -> None:
    """Compares what ranks have loaded, by the ranks' names. Raises DataDisagreementError."""
    first = next(iter(data_by_rank))
    for name, data in data_by_rank.items():
        if data != data_by_rank[first]:
            raise DataDisagreementError(
                f"{first} has loaded {data_by_rank[first]}; but {name} {data}. All ranks need the same data and seed. "
                f"If a folder was replaced while they started, start the job again; if machines have folders of their "
                f"own, bring these to one version; if the script draws numbers, such as negatives, give it a seed."
            )


def check_trainers(trainer: pl.Trainer, data: GraphData, partition: Partition | None) -> None:
    """Compares the data of all trainers, if they have a process group. A collective. Raises DataDisagreementError, in
    all."""
    if not dist.is_initialized() or trainer.world_size == 1:
        return
    parts = "" if partition is None else f", partition {partition.folder_fingerprint or partition.fingerprint}"
    summary = f"{data.summary}{parts}".encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES)
    sent = torch.tensor(list(summary), dtype=torch.uint8, device=trainer.strategy.root_device)
    received = [torch.empty_like(sent) for _ in range(trainer.world_size)]
    dist.all_gather(received, sent)
    texts = [bytes(text.tolist()).decode().strip() for text in received]
    check_alike({f"trainer rank {rank}": text for rank, text in enumerate(texts)})


class FolderChecks:
    """Checks the folders of a data module, on each machine in the first of its ranks, which is a trainer."""

    def __init__(self, verify: bool) -> None:
        if not isinstance(verify, bool):
            raise LoaderConfigError(f"verify={verify!r}, but must be True or False.")
        self.verify = verify
        self._checks: dict[str, BackgroundCheck] = {}

    def start(self, trainer: pl.Trainer | None, data: GraphData, partition: Partition | None) -> None:
        """Begins to read the loaded folders, unless they were found whole before, or are being read."""
        folders = {data.folder_fingerprint: data.folder}
        if isinstance(partition, StoredPartition):
            folders[partition.folder_fingerprint] = partition.folder
        for fingerprint, folder in folders.items():
            if not self.verify or trainer is None or folder is None or fingerprint is None or trainer.local_rank:
                continue
            if fingerprint not in self._checks:
                self._checks[fingerprint] = BackgroundCheck(folder, fingerprint, default_root() / "verified")

    def raise_damage(self) -> None:
        """Raises StoreFormatError: damage was found so far."""
        for check in self._checks.values():
            check.raise_damage()

    def close(self) -> None:
        """Stops reading; the next :meth:`start` begins anew."""
        for check in self._checks.values():
            check.stop()
        self._checks = {}
