"""Loads the folder of a partition by memory mapping.

It has ``manifest.json``, the numbering, and each part as a graph folder. Where each list lies with its owner alone, the
rows of features do, too, in its part's folder; what else belongs to the data lies beside the manifest, in the order of
the whole graph, and is the head: all that a trainer needs who asks owners for the rest. Where parts hold hops of their
seeds, features of all nodes lie beside the manifest, in the order of new ids, so that those of a part's own nodes are
one range.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.parted import PartedFeatureStore
from lightning_gnnload.data.partition import Part, Partition
from lightning_gnnload.data.remote_graph import RemoteGraph
from lightning_gnnload.data.selected import select_rows
from lightning_gnnload.data.tables import NodeTable, as_store
from lightning_gnnload.errors import (
    GraphDataError,
    GraphFormatError,
    PartitionError,
    SamplerConfigError,
    StoreFormatError,
)
from lightning_gnnload.host.leases import protect_mapped
from lightning_gnnload.storage.graphs import map_arrays, open_clock, open_stores, open_types, require_arrays
from lightning_gnnload.storage.head import Head, parted_tables
from lightning_gnnload.storage.manifest import MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder, broken_folder, read_folder
from lightning_gnnload.storage.parts import StoredParts

NUMBERING = ("starts", "node_ids", "new_ids")
_FIELDS = {
    "hops": int,
    "num_edges": int,
    "method": str,
    "fingerprint": str,
    "settings": dict,
    "report": dict,
    "phases": list,
    "parts": list,
}


@dataclass(frozen=True, eq=False, repr=False)
class StoredPartition(Partition):
    """A partition that is mapped from its folder. It is pickled as the folder's path, and mapped again on arrival."""

    folder: Path = Path()
    features: Literal["mapped", "disk"] = "mapped"
    head: Head | None = None

    @cached_property
    def graph_data(self) -> GraphData:
        """The data of the whole graph without its lists: ids, splits, labels, types, times, sizes. Rows of features
        come from the parts that are here; those of others, and lists, from owners.

        Raises:
            PartitionError: the folder has no head: parts hold hops of their seeds, or an earlier release wrote it.
            StoreFormatError: the head is broken.
        """
        if self.head is None:
            raise PartitionError(
                f"{self.folder} does not hold what a trainer without the graph needs. Make it with hops=0, so that "
                "each list and row lies with its owner: gnnload partition ... --hops 0."
            )
        try:
            data = self.head.open(self)
        except (GraphFormatError, GraphDataError, SamplerConfigError) as error:
            raise StoreFormatError(f"{self.folder} is broken: {error} Make the partition again.") from error
        data.folder, data.folder_fingerprint = self.folder, self.folder_fingerprint
        return data

    @cached_property
    def outline(self) -> RemoteGraph:
        return super().outline if self.head is None else self.head.outline(self)

    @property
    def parts_here(self) -> list[int]:
        """The numbers of the parts whose folders are on this machine."""
        assert isinstance(self.parts, StoredParts)
        return self.parts.here

    def __repr__(self) -> str:
        here, about = self.parts_here, super().__repr__()
        if len(here) == self.num_parts:
            return about
        return f"{about[:-1]}, parts here: {', '.join(map(str, here)) or 'none'})"

    def seeds_of(self, phase: str) -> list[np.ndarray] | None:
        """Reads the seeds of each part without mapping the parts."""
        assert isinstance(self.parts, StoredParts)
        return self.parts.seeds_of(phase)

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_again, (self.folder, self.features, self.folder_fingerprint)


def load_partition(
    folder: str | os.PathLike[str], *, verify: bool = False, features: Literal["mapped", "disk"] = "mapped"
) -> StoredPartition:
    """Maps a folder written by :func:`.partition_graph`. A part is mapped when it is first used.

    Sizes, dtypes and ranges are always checked; ``verify`` also reads every byte and compares checksums. All parts are
    of one version: using a new part after the folder was replaced is an error.

    Args:
        folder: written by :func:`.partition_graph`.
        verify: read all of it once.
        features: where x and tables are gathered from: ``"mapped"`` files, or by direct reads from ``"disk"``.

    Raises:
        StoreFormatError: the folder is missing, foreign, of a newer version, or broken; the message says which file.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, partition_graph
        >>> data = GraphData(Graph.from_coo([1, 3], [0, 2]), train=[0, 2])
        >>> _ = partition_graph(data, "halves", 2, hops=1, progress=False)
        >>> load_partition("halves")
        Partition(self-reliant, num_parts=2, num_nodes=4, hops=1)
    """
    path = Path(folder).absolute()  # by which other processes map it, whatever their working folder
    if not (path / MANIFEST).exists():
        raise StoreFormatError(
            f"{path} is not a partition: it has no {MANIFEST}. "
            f"Make one with partition_graph(data, folder, ...), or gnnload partition."
        )
    return read_folder(path, lambda opened: _open(opened, verify, features))


def _open(folder: OpenFolder, verify: bool, features: Literal["mapped", "disk"]) -> StoredPartition:
    path, manifest = folder.path, folder.manifest
    described = _description(path, manifest)
    try:
        arrays = map_arrays(folder, verify)
        require_arrays(path, arrays, NUMBERING)
        numbering: dict[str, Any] = {name: as_array(arrays[name], name=name) for name in NUMBERING}
        node_time = as_array(arrays["node_time"], name="node_time") if "node_time" in arrays else None
        duplicate = folder.again()
        # Protected for as long as parts are read, which these numbers index in memory.
        protect_mapped(duplicate, [*numbering.values(), *([] if node_time is None else [node_time])])
        _check_numbering(numbering, manifest["num_nodes"], len(described["parts"]), verify)
        types, clock = open_types(manifest), open_clock(manifest, arrays)
        if types is not None and int(types.first_node[-1]) != manifest["num_nodes"]:
            raise GraphFormatError(
                f"its types have {types.first_node[-1]} nodes, but {MANIFEST} says {manifest['num_nodes']}."
            )
        _check_node_time(node_time, manifest["num_nodes"], clock)
        parted = parted_tables(path / MANIFEST, described, manifest, numbering, arrays)
        y, new_ids = arrays.get("y"), numbering["new_ids"]
        parts = StoredParts(duplicate, described, numbering, y, types, clock, parted, features)
        elsewhere = {name: PartedFeatureStore(table, _store_of(parts, name)) for name, table in parted.items()}
        stores = open_stores(folder, arrays, features, elsewhere)
        if y is not None and (y.ndim == 0 or len(y) != len(new_ids)):
            raise GraphDataError(f"labels y are {list(y.shape)}, but {len(new_ids)} are needed, one a node.")
        x = {"x": stores.by_array["x"]} if "x" in stores.by_array else {}
        by_node = {
            name: _by_node(name, store, new_ids, is_parted=bool(parted))
            for name, store in {**x, **stores.tables}.items()
            if not isinstance(store, NodeTable)
        }
    except (GraphDataError, GraphFormatError, OSError) as error:
        raise broken_folder(folder, error, "Make the partition again.") from error
    if verify:
        parts.verify()
    return StoredPartition(
        **numbering,
        parts=parts.with_features(by_node.get("x")),
        **{name: described[name] for name in ("hops", "method", "fingerprint", "settings", "report")},
        x=by_node.pop("x", None),
        tables=by_node,
        types=types,
        clock=clock,
        node_time=node_time,
        parted=parted,
        head=Head(manifest, arrays, stores) if "rows" in described else None,
        folder_fingerprint=folder.fingerprint,
        folder=path,
        features=features,
    )


def _store_of(parts: Sequence[Part], name: str) -> Callable[[int], FeatureStore]:
    return lambda number: parts[number].stores[name]


def _by_node(name: str, store: Any, new_ids: np.ndarray, *, is_parted: bool) -> FeatureStore:
    rows = as_store(store, name=name, dims=(1, None))
    if rows.shape[0] != len(new_ids):
        raise GraphDataError(f"{name} has {rows.shape[0]} rows, but {len(new_ids)} are needed, one a node.")
    return rows if is_parted else select_rows(rows, new_ids)


def _load_again(folder: Path, features: Literal["mapped", "disk"], fingerprint: str) -> Partition:
    partition = load_partition(folder, features=features)
    if partition.folder_fingerprint != fingerprint:
        raise StoreFormatError(
            f"{folder} was replaced since the process that sent this partition loaded it. Load it again, in all ranks."
        )
    return partition


def _description(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Returns the manifest's description of the partition, after checking the type of each value."""
    described = manifest["attributes"].get("partition")
    if not isinstance(described, dict):
        raise StoreFormatError(
            f"{path} is a graph folder, but not a partition. "
            f"Make one with partition_graph(data, folder, ...), or gnnload partition."
        )
    for key, expected in _FIELDS.items():
        if not isinstance(described.get(key), expected):
            raise StoreFormatError(f"{path / MANIFEST}: {key!r} of the partition is missing or of the wrong kind.")
    sound = described["parts"] and all(type(checksum) is int for checksum in described["parts"])
    sound = sound and all(phase in SPLITS for phase in described["phases"])
    if not sound or not 0 <= described["hops"] < 256:
        raise StoreFormatError(f"{path / MANIFEST}: the partition that it describes is impossible. Make it again.")
    return described


def _check_node_time(node_time: np.ndarray | None, num_nodes: int, clock: Clock | None) -> None:
    """Raises GraphFormatError: no times of these nodes, or times without a clock."""
    if node_time is None:
        return
    if clock is None or node_time.dtype not in (np.int64, np.float64) or node_time.shape != (num_nodes,):
        raise GraphFormatError(
            f"node_time is {node_time.dtype} {list(node_time.shape)}, but must be int64 or float64 [{num_nodes}], in a "
            "partition that has a clock."
        )


def _check_numbering(numbering: Mapping[str, np.ndarray], num_nodes: int, num_parts: int, verify: bool) -> None:
    """Raises GraphFormatError: the arrays are not int64 numbers of these nodes and parts."""
    starts, node_ids, new_ids = (numbering[name] for name in NUMBERING)
    for name, length in (("starts", num_parts + 1), ("node_ids", num_nodes), ("new_ids", num_nodes)):
        array = numbering[name]
        if array.dtype != np.int64 or array.shape != (length,):
            raise GraphFormatError(f"{name} is {array.dtype} {list(array.shape)}, but must be int64 [{length}].")
    if starts[0] != 0 or starts[-1] != num_nodes or not (np.diff(starts) >= 0).all():
        raise GraphFormatError(f"starts must ascend from 0 to {num_nodes}, the number of nodes, but it does not.")
    for name, ids in (("node_ids", node_ids), ("new_ids", new_ids)) if num_nodes else ():
        if ids.min() < 0 or ids.max() >= num_nodes:  # later reads stay within the arrays
            raise GraphFormatError(f"{name} span [{ids.min()}, {ids.max()}], but nodes lie in [0, {num_nodes}).")
    # Reads at random, which takes long on a disk.
    if verify and not np.array_equal(new_ids[node_ids], np.arange(num_nodes)):
        raise GraphFormatError("node_ids and new_ids must be inverse to each other, but they are not.")
