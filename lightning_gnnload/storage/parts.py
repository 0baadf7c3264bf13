"""The parts of a partition's folder, each mapped when it is first asked for."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.features import gather as gather_rows
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.data.partition import Part
from lightning_gnnload.data.selected import select_rows
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, GraphFormatError, StoreFormatError
from lightning_gnnload.storage.disk import DiskFeatureStore
from lightning_gnnload.storage.graphs import map_arrays, open_topology, require_arrays
from lightning_gnnload.storage.manifest import MANIFEST, part_folder
from lightning_gnnload.storage.open_folder import OpenFolder, broken_folder

LIST_STARTS, RUN_STARTS = "list_starts", "run_starts"
"""The arrays of a partition's head that say where lists begin in the whole graph, and in one with types where runs do,
by which rows of edges are found."""
_REMEDY = "Make the partition again."


class StoredParts(Sequence[Part]):
    """Loads the parts of a partition's folder, each when it is first asked for, so that a rank touches its own alone.
    Threads may share it. The folder stays open, so that no part of another version is ever taken for one of this."""

    def __init__(
        self,
        folder: OpenFolder,
        described: Mapping[str, Any],
        numbering: Mapping[str, np.ndarray],
        y: torch.Tensor | None,
        types: GraphTypes | None = None,
        clock: Clock | None = None,
        tables: Mapping[str, PartedTable] = MappingProxyType({}),
        features: Literal["mapped", "disk"] = "mapped",
    ) -> None:
        self._folder, self._described, self._numbering, self._y = folder, described, numbering, y
        self._types, self._clock, self._tables, self._features = types, clock, tables, features
        self._bare: StoredParts | None = None
        self._x: FeatureStore | None = None
        self._loaded: dict[int, Part] = {}
        self._loading = threading.Lock()

    def with_features(self, x: FeatureStore | None) -> StoredParts:
        """Returns the same parts, with features of their nodes, as of all nodes ``x`` has them."""
        # Those may come out of these parts, which hence do not know them: else each would keep the other, and all that
        # is mapped, until Python looks for cycles.
        parts = copy(self)
        parts._bare, parts._x, parts._loaded, parts._loading = self, x, {}, threading.Lock()
        return parts

    def __len__(self) -> int:
        return len(self._described["parts"])

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> list[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | list[Part]:
        """Raises StoreFormatError: the part's folder is missing, broken, of another partition, or was replaced."""
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        number = range(len(self))[index]
        with self._loading:  # a thread that asks for a part that is being loaded waits, and maps it no second time
            if number not in self._loaded:
                self._loaded[number] = self._load(number, verify=False)
            return self._loaded[number]

    @property
    def here(self) -> list[int]:
        """Returns the numbers of the parts whose folders are on this machine, as of when the partition was loaded."""
        return [number for number in range(len(self)) if part_folder(number) in self._folder.parts_here]

    def seeds_of(self, phase: str) -> list[np.ndarray] | None:
        """Reads each part's seeds from its folder, without its graph; None where parts were made for other phases."""
        if phase not in self._described["phases"]:
            return None
        return [self._seeds(number, phase) for number in range(len(self))]

    def verify(self) -> None:
        """Reads every byte of all parts, and keeps none. Raises StoreFormatError: one is not what was written."""
        for number in self.here if "rows" in self._described else range(len(self)):
            self._load(number, verify=True)

    @contextmanager
    def _opened(self, number: int) -> Iterator[OpenFolder]:
        """Opens the folder of a part, after checking that it belongs to this partition."""
        if "rows" in self._described and number not in self.here:
            raise StoreFormatError(
                f"part {number} of {self._folder.path} is not on this machine: there is no {part_folder(number)}. Its "
                "lists and rows come from an owner that has it, by GraphDataModule(graph='remote', features='remote'); "
                "or copy that folder here."
            )
        try:
            with OpenFolder(part_folder(number), self._folder) as part:
                if manifest_checksum(part) != self._described["parts"][number]:
                    raise StoreFormatError(
                        f"{part.path / MANIFEST} is not the one of this partition. Make the partition again."
                    )
                yield part
        except StoreFormatError as error:
            if not self._folder.is_replaced:
                raise
            raise StoreFormatError(
                f"{self._folder.path} was replaced or removed after it was loaded, and part {number} was not loaded "
                f"before. What stands there now is not mixed with what is loaded: load it again, in all ranks."
            ) from error

    def _seeds(self, number: int, phase: str) -> np.ndarray:
        with self._opened(number) as part:
            arrays = map_arrays(part, verify=False, names=("node_ids", phase))
            require_arrays(part.path, arrays, ("node_ids", phase))
        try:
            ids = as_ids(arrays["node_ids"], name="node_ids", num_nodes=len(self._numbering["new_ids"]))
            return np.sort(ids[as_ids(arrays[phase], name=f"{phase} ids", num_nodes=len(ids))])
        except GraphDataError as error:
            raise broken_folder(part, error, _REMEDY) from error

    def _load(self, number: int, verify: bool) -> Part:
        if self._bare is not None:
            bare = self._bare._load(number, verify) if verify else self._bare[number]
            assert bare.graph.origin is not None, "_check_origin has seen it"
            return bare if self._x is None else replace(bare, x=select_rows(self._x, bare.graph.origin.node_ids))
        starts, new_ids, phases = self._numbering["starts"], self._numbering["new_ids"], self._described["phases"]
        with self._opened(number) as part:
            folder, arrays = part.path, map_arrays(part, verify)
            require_arrays(folder, arrays, phases)
            try:
                graph = open_topology(part, arrays, self._types, self._clock)
                seeds = {
                    phase: as_ids(arrays[phase], name=f"{phase} ids", num_nodes=graph.num_nodes) for phase in phases
                }
                ids, num_own = _check_origin(graph, new_ids, starts[number : number + 2], self._described)
                stores = self._own_rows(part, number, arrays)
            except (GraphFormatError, GraphDataError, OSError) as error:
                raise broken_folder(part, error, _REMEDY) from error
        return Part(
            number,
            graph,
            num_own,
            {phase: np.sort(ids[local]) for phase, local in seeds.items()},
            y=None if self._y is None else _rows(self._y, ids if "rows" in self._described else new_ids[ids]),
            stores=stores,
        )

    def _own_rows(self, part: OpenFolder, number: int, arrays: Mapping[str, torch.Tensor]) -> dict[str, FeatureStore]:
        """Opens the rows that a part owns. Raises GraphDataError: one table has others than the head says."""
        stores: dict[str, FeatureStore] = {}
        for name, table in self._tables.items():
            rows, num_rows = arrays.get(name), table.row_places.num_own(number)
            if rows is None or (tuple(rows.shape), rows.dtype) != ((num_rows, *table.row_shape), table.dtype):
                raise GraphDataError(
                    f"{name} must be {table.dtype} {[num_rows, *table.row_shape]}, the rows of what the part owns, but "
                    f"is {'not there' if rows is None else f'{rows.dtype} {list(rows.shape)}'}."
                )
            is_read = self._features == "disk" and num_rows
            stores[name] = DiskFeatureStore(part, name=name) if is_read else MemoryFeatureStore(rows)
        return stores


def manifest_checksum(folder: OpenFolder) -> int:
    """Returns the CRC-32 of a folder's manifest, and so of the checksums that it holds."""
    _ = folder.manifest  # is sound
    return zlib.crc32(folder.manifest_bytes)


def _check_origin(
    graph: Graph, new_ids: np.ndarray, bounds: np.ndarray, described: Mapping[str, Any]
) -> tuple[np.ndarray, int]:
    """Checks a part's origin; returns its nodes' ids in the whole graph and how many it owns: new ids in ``ends``."""
    origin = graph.origin
    if origin is None:
        raise GraphFormatError("there are no node_ids, which say where its nodes come from.")
    ids = origin.node_ids
    if ids.size and not (ids.min() >= 0 and ids.max() < len(new_ids)):
        raise GraphFormatError(f"node_ids span [{ids.min()}, {ids.max()}], but the partition has {len(new_ids)} nodes.")
    is_own = (new_ids[ids] >= bounds[0]) & (new_ids[ids] < bounds[1])
    num_own = int(is_own.sum())
    ascending = all((np.diff(run) > 0).all() for run in (ids[:num_own], ids[num_own:]))
    if not (is_own[:num_own].all() and ascending) or (described["hops"] == 0 and num_own != bounds[1] - bounds[0]):
        raise GraphFormatError(
            "node_ids must be the part's own, by new_ids of the partition, then mirrors, each ascending, but are not."
        )
    first, most = origin.edge_starts, described["num_edges"] - graph.in_degrees
    if not ((first >= 0) & (first <= most) | (origin.reach == 0)).all():
        raise GraphFormatError(f"edge_starts go beyond the {described['num_edges']} edges of the whole graph.")
    return ids, num_own


def _rows(table: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    out = torch.empty((len(rows), *table.shape[1:]), dtype=table.dtype)
    gather_rows(table, torch.from_numpy(rows), out)
    return out
