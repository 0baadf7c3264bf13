"""FolderChecks: the folders that a data module reads are compared with their checksums, once, while it trains."""

from __future__ import annotations

from lightning_gnnload.data.datasets.base import default_root
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.storage.background import BackgroundCheck
from lightning_gnnload.data.storage.partitions import StoredPartition
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.compat import pl


class FolderChecks:
    """Checks the folders of a data module, on each machine in the first of its ranks, which is a trainer.

    Args:
        wanted: False checks nothing.

    Raises:
        LoaderConfigError: ``wanted`` is neither True nor False.
    """

    def __init__(self, wanted: bool) -> None:
        if not isinstance(wanted, bool):
            raise LoaderConfigError(f"verify={wanted!r}, but must be True or False.")
        self.wanted = wanted
        self._checks: dict[str, BackgroundCheck] = {}

    def start(self, trainer: pl.Trainer | None, data: GraphData, partition: Partition | None) -> None:
        """Begins to read what was loaded, unless that was found whole before, or is being read."""
        folders = {data.folder_fingerprint: data.folder}
        if isinstance(partition, StoredPartition):
            folders[partition.folder_fingerprint] = partition.folder
        for fingerprint, folder in folders.items():
            if not self.wanted or trainer is None or folder is None or fingerprint is None or trainer.local_rank:
                continue
            if fingerprint not in self._checks:
                self._checks[fingerprint] = BackgroundCheck(folder, fingerprint, default_root() / "verified")

    def raise_damage(self) -> None:
        """Raises StoreFormatError: damage was found so far."""
        for check in self._checks.values():
            check.raise_damage()

    def close(self) -> None:
        """Reads no more; the next :meth:`start` begins anew what was not done."""
        for check in self._checks.values():
            check.stop()
        self._checks = {}
