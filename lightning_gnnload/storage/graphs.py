"""The on-disk format: a folder of raw little-endian arrays and one manifest, read by memory mapping.

``manifest.json`` names each array's file, dtype, shape and checksum (CRC-32 of its bytes). A folder is written
beside its final place and moved there, so that readers see all of it or nothing, of one version or another. It is
complete in itself: the rows of every :class:`FeatureStore`, wherever they are, are copied, so that a folder can be
moved and no other file can change what it holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch

from lightning_gnnload.data.arrays import as_array, tensor_view
from lightning_gnnload.data.by_type import table_of_type
from lightning_gnnload.data.clock import Clock
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import PHASES, PREDICT, SPLITS, GraphData
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.tables import EDGE_PREFIX, NodeTable
from lightning_gnnload.data.types import EdgeType, GraphTypes
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError, GraphFormatError, SamplerConfigError, StoreFormatError, warn
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.storage.aggregates import AddTables, check_entries, open_aggregates
from lightning_gnnload.storage.damage import damage_error, find_damage
from lightning_gnnload.storage.disk import DiskFeatureStore
from lightning_gnnload.storage.folders import (
    array_entry,
    array_file,
    byte_chunks,
    new_folder,
    write_chunks,
    write_manifest,
)
from lightning_gnnload.storage.manifest import MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder, StoredArray, broken_folder, read_folder
from lightning_gnnload.storage.seeds import (
    described_seeds,
    described_tasks,
    open_seeds,
    open_tasks,
    seed_arrays,
    task_arrays,
)
from lightning_gnnload.storage.tables import quantized_dtypes, raw_stores, table_name

ORIGIN = ("edge_starts", "node_ids", "reach")
"""Arrays of a graph that is part of another."""
RANKED = "clock_ranked"
"""The array of a clock that numbers times by their rank."""


def save_graph_data(
    data: GraphData,
    folder: str | os.PathLike[str],
    *,
    attributes: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes ``data`` as a folder, atomically.

    Args:
        data: features in any store; they are read a few megabytes at a time, as what the store gives. Quantised ones
            stay so: their bytes are written, and the scale and offset of each column.
        folder: must not exist, unless ``overwrite``.
        attributes: JSON values kept in the manifest (a data set's settings, a licence).
        overwrite: replace the folder, if it is one of a graph and holds nothing else.

    Raises:
        StoreFormatError: ``folder`` exists and ``overwrite`` is false, or is not replaced, as :func:`.check_target` has
            it; ``attributes`` are no JSON.
        StaleTableError: a table is an aggregate of another graph, or of other rows.
        FeatureFileError: no room, or the disk fails; nothing is then left behind.

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> save_graph_data(GraphData(Graph.from_coo([0, 1], [1, 0])), "both_ways")
        >>> load_graph_data("both_ways").graph.num_edges
        2
    """
    if not isinstance(data, GraphData):
        raise StoreFormatError(
            f"a {type(data).__name__} is given to be saved; save_graph_data(data, folder) takes a GraphData first."
        )
    write_graph(data, folder, attributes or {}, overwrite=overwrite)


def write_graph(
    data: GraphData,
    folder: str | os.PathLike[str],
    attributes: dict[str, Any],
    *,
    overwrite: bool,
    repair: bool = False,
    add: AddTables | None = None,
) -> None:
    """Writes ``data`` as :func:`save_graph_data` does; with ``repair``, also in place of a broken folder that has a
    name of this package's own. ``add`` writes further tables to the new folder."""
    _check_attributes(attributes)
    arrays = {name: (array_file(name), array) for name, array in _arrays(data).items()}
    with new_folder(folder, "graph", overwrite=overwrite, repair=repair) as target:
        entries = {name: _write_array(target / file, array) for name, (file, array) in arrays.items()}
        tables = first_nodes(data)
        aggregates = {name: aggregate for name, aggregate in data.aggregates.items() if name in tables}
        check_entries(Path(folder), entries, aggregates)
        more = {} if add is None else add(target)
        entries |= {table_name(name): table.entry for name, table in more.items()}
        tables |= {name: table.first for name, table in more.items()}
        aggregates |= {name: table.aggregate for name, table in more.items()}
        write_manifest(
            target,
            entries,
            attributes=attributes,
            tables=tables,
            aggregates={name: aggregate.to_json() for name, aggregate in aggregates.items()},
            **described_data(data),
        )


def _check_attributes(attributes: dict[str, Any]) -> None:
    try:
        json.dumps(attributes)
    except (TypeError, ValueError) as error:
        raise StoreFormatError(
            f"attributes are no JSON values: {error}. Give numbers, texts, lists and dicts."
        ) from error


def first_nodes(data: GraphData) -> dict[str, int | None]:
    """Returns the first node that each table has a row for, by name; None: it has one for each."""
    return {name: table.first if isinstance(table, NodeTable) else None for name, table in data.tables.items()}


def described_data(data: GraphData) -> dict[str, Any]:
    """Returns what a manifest says of the data beside their arrays."""
    graph, named = data.graph, sorted(data.edge_tables.keys() - _x_by_type(data.graph.types))
    return {
        "num_nodes": data.num_nodes,
        "num_classes": data._num_classes,
        "quantized": quantized_dtypes(stores_by_array(data)),
        "edge_tables": named if data.names_edge_tables else None,
        "lost_order": graph.lost_order,
        "types": None if graph.types is None else graph.types.to_json(),
        "clock": None if graph.clock is None else graph.clock.to_json(),
        "seed_tables": described_seeds(_own_seeds(data)),
        "user_ids": {name: {"kind": ids.kind, "column": ids.column} for name, ids in data.user_ids.items()},
        "class_names": data.class_names,
        "vocabularies": {name: names for name, names in data.vocabularies.items() if name in data.stores},
        "tasks": described_tasks(data.tasks),
        "task": data.task,
    }


def load_graph_data(
    folder: str | os.PathLike[str],
    *,
    task: str | None = None,
    verify: bool = False,
    features: Literal["mapped", "disk"] = "mapped",
    tables: Sequence[str] | None = None,
) -> GraphData:
    """Maps a folder written by :func:`save_graph_data`; arrays are read only when they are used.

    Sizes, dtypes and the graph's ids are always checked; ``verify`` also reads every byte and checks its checksum. All
    of it is of one version, also while another process replaces the folder; what is loaded stays so.

    Args:
        folder: that was written.
        task: whose splits to take, of a folder with several; where it has one alone, that is taken.
        verify: read all of it once.
        features: where x, tables and edge features are gathered from: ``"mapped"``: the system keeps of the files what
            memory has room for; ``"disk"``: a :class:`.DiskFeatureStore` of each, which takes no memory, for tables
            larger than it.
        tables: the names of the tables of nodes to take, as every one is gathered for each mini-batch; None: all. In a
            graph with types, names of columns do as well.

    Raises:
        StoreFormatError: the folder is missing, foreign, of a newer version, or broken; the message says which file.
        GraphDataError: there is no such task, or no such table.

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> save_graph_data(GraphData(Graph.from_coo([0, 1], [1, 0])), "pair")
        >>> load_graph_data("pair").graph.num_nodes
        2
    """
    data = read_folder(folder, lambda opened: open_graph(opened, verify=verify, features=features))
    data = data if tables is None else data.only_tables(tables)
    return data if task is None or task == data.task else data.with_task(task)


def open_graph(
    folder: OpenFolder,
    *,
    verify: bool = False,
    features: Literal["mapped", "disk"] = "mapped",
    check_aggregates: bool = True,
) -> GraphData:
    """Maps a folder that is open, as :func:`load_graph_data` does; aggregates may be stale where they are not
    checked."""
    path, manifest = folder.path, folder.manifest
    if "partition" in manifest["attributes"] and "indptr" not in manifest["arrays"]:
        raise StoreFormatError(
            f"{path} is a partition, not a graph. Give the graph, or load_partition(folder) for parts."
        )
    try:
        arrays = map_arrays(folder, verify)
        stores = open_stores(folder, arrays, features)
        graph = open_topology(folder, arrays, open_types(manifest), open_clock(manifest, arrays))
        data = open_data(manifest, arrays, graph, stores)
        for name, aggregate in open_aggregates(path, manifest, check=check_aggregates).items():
            if name in data.tables:
                is_sure = check_aggregates and aggregate.table in data.stores
                data.aggregates[name] = aggregate.bound(graph, data.stores[aggregate.table]) if is_sure else aggregate
    except (GraphFormatError, GraphDataError, SamplerConfigError, OSError) as error:
        raise broken_folder(folder, error) from error
    data.folder, data.folder_fingerprint = path.absolute(), folder.fingerprint
    return data


def open_data(
    manifest: Mapping[str, Any], arrays: Mapping[str, torch.Tensor], graph: Graph, stores: OpenedStores
) -> GraphData:
    """Makes the data of a graph, with the splits of the task that the manifest chooses.

    Raises:
        GraphDataError, SamplerConfigError: arrays and manifest make no data of this graph.
    """
    tasks = open_tasks(manifest.get("tasks", {}), arrays)
    splits: dict[str, Any] = {name: arrays.get(name) for name in PHASES}
    splits |= open_seeds(manifest.get("seed_tables", {}), arrays)
    data = GraphData(
        graph,
        stores.by_array.get("x"),
        arrays.get("y"),
        *(splits[name] for name in SPLITS),
        num_classes=manifest["num_classes"],
        tables=stores.tables,
        edge_x=stores.by_array.get("edge_x", _stored_x(stores.by_array, graph.types) or None),
        edge_tables=stores.edge_tables,
        user_ids=_user_ids(manifest, arrays, graph.types),
        class_names=manifest.get("class_names"),
        tasks=tasks,
        predict=splits[PREDICT],
    )
    data.vocabularies = _vocabularies(manifest, data)
    chosen = manifest.get("task") or (next(iter(tasks)) if len(tasks) == 1 else None)
    return data if chosen is None else data.with_task(chosen)


def open_topology(
    folder: OpenFolder, arrays: Mapping[str, torch.Tensor], types: GraphTypes | None, clock: Clock | None
) -> Graph:
    """Makes the graph of a folder's arrays; a part's types and clock are those of the partition that it is in."""
    path, manifest = folder.path, folder.manifest
    require_arrays(path, arrays, ("indptr", "indices", *(ORIGIN if arrays.keys() & set(ORIGIN) else ())))
    numpy = {name: as_array(arrays[name], name=name) for name in (*Graph.ARRAYS, *ORIGIN) if name in arrays}
    origin = Origin(**{name: numpy.pop(name) for name in ORIGIN}) if "node_ids" in numpy else None
    graph = Graph(**numpy, origin=origin, types=types, clock=clock)
    graph.lost_order = manifest.get("lost_order", False)
    if graph.edge_type is not numpy.get("edge_type"):
        warn(
            f"{path}: its lists do not lie by edge_type, as those of older folders. They were sorted in memory, where "
            "they now take room in each process. Write the folder anew: gnnload build, gnnload partition, or "
            "save_graph_data(data, folder, overwrite=True)."
        )
        if graph.lost_order and "edge_order" not in numpy:
            graph.edge_order = None  # positions in a list that nobody has
    if graph.num_nodes != manifest["num_nodes"]:
        raise GraphFormatError(
            f"{MANIFEST} says {manifest['num_nodes']} nodes, but indptr has {graph.num_nodes} + 1 entries."
        )
    return graph


def map_arrays(folder: OpenFolder, verify: bool, names: Container[str] | None = None) -> dict[str, torch.Tensor]:
    """Maps the arrays of a folder, and returns them by name: all, or those of these names."""
    return {name: _map_array(array, verify) for name, array in folder.arrays.items() if names is None or name in names}


class OpenedStores(NamedTuple):
    """Holds what a folder's features are gathered from: stores by the name of their array, tables by their own name,
    and the tables of edges likewise, None where none were named."""

    by_array: dict[str, Any]
    tables: dict[str, Any]
    edge_tables: dict[str, Any] | None


def open_stores(
    folder: OpenFolder,
    arrays: Mapping[str, torch.Tensor],
    features: Literal["mapped", "disk"],
    elsewhere: Mapping[str, FeatureStore] = MappingProxyType({}),
) -> OpenedStores:
    """Opens what a folder's features are gathered from; ``elsewhere`` has, by array, stores of rows that do not lie in
    this folder."""
    if features not in ("mapped", "disk"):
        raise StoreFormatError(f'features={features!r}, but must be "mapped" or "disk".')
    path, manifest = folder.path, folder.manifest
    table_arrays = {name: table_name(name) for name in manifest.get("tables", {})}
    edge_arrays = {name: EDGE_PREFIX + name for name in manifest.get("edge_tables") or ()}
    x_of_edges = arrays.keys() & {EDGE_PREFIX + name for name in _x_by_type(open_types(manifest))}
    stores: dict[str, Any] = {**arrays, **elsewhere}
    require_arrays(path, stores, (*table_arrays.values(), *edge_arrays.values()))
    if features == "disk":
        for name in arrays.keys() & {"x", "edge_x", *table_arrays.values(), *edge_arrays.values(), *x_of_edges}:
            stores[name] = DiskFeatureStore(folder, name=name)
    dtypes = manifest.get("quantized", {})
    stores |= {name: _quantized(name, stores, arrays, getattr(torch, dtypes[name]), path) for name in dtypes}
    firsts = manifest.get("tables", {})
    tables = {name: _node_table(name, stores[array], firsts[name]) for name, array in table_arrays.items()}
    edge_tables = {name: stores[edge_arrays[name]] for name in edge_arrays}
    return OpenedStores(stores, tables, edge_tables if manifest.get("edge_tables") is not None else None)


def _quantized(
    name: str, stores: Mapping[str, Any], arrays: Mapping[str, torch.Tensor], dtype: torch.dtype, path: Path
) -> QuantizedFeatureStore:
    if name not in stores or not {f"{name}.scale", f"{name}.offset"} <= arrays.keys():
        raise StoreFormatError(f"{path / MANIFEST} lists no scale or offset of {name!r}. Prepare it again.")
    return QuantizedFeatureStore(stores[name], arrays[f"{name}.scale"], arrays[f"{name}.offset"], dtype)


def _node_table(name: str, store: Any, first: int | None) -> Any:
    try:
        return store if first is None else NodeTable(store, first)
    except GraphDataError as error:
        raise GraphDataError(f"table {name!r}: {error}") from error


def open_types(manifest: Mapping[str, Any]) -> GraphTypes | None:
    """Reads the names of types out of a manifest."""
    types = manifest.get("types")
    return None if types is None else GraphTypes.from_json(types)


def open_clock(manifest: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> Clock | None:
    """Reads the clock out of a manifest and the array of its times, where it has one."""
    clock, ranked = manifest.get("clock"), arrays.get(RANKED)
    return None if clock is None else Clock.from_json(clock, None if ranked is None else as_array(ranked, name=RANKED))


def _x_by_type(types: GraphTypes | None) -> dict[str, EdgeType]:
    """Returns the names of tables of the edge types' features, which are there whether or not other tables were
    named."""
    return {} if types is None else {table_of_type("x", edge_type): edge_type for edge_type in types.edge_types}


def _stored_x(stores: Mapping[str, Any], types: GraphTypes | None) -> dict[EdgeType, Any]:
    """Returns the features of edges by type, as far as they were stored."""
    return {
        edge_type: stores[EDGE_PREFIX + name]
        for name, edge_type in _x_by_type(types).items()
        if EDGE_PREFIX + name in stores
    }


def _user_ids(manifest: Mapping[str, Any], arrays: Mapping[str, torch.Tensor], types: GraphTypes | None) -> Any:
    """Opens the user's ids, as :class:`GraphData` takes them; None where there are none."""
    by_type = {}
    for name, described in manifest.get("user_ids", {}).items():
        needed = [ids_name(name), f"{ids_name(name)}.offsets"][: 2 if described["kind"] == "text" else 1]
        if not arrays.keys() >= set(needed):
            raise GraphDataError(f"the ids of node type {name!r} lack an array of {', '.join(needed)}.")
        values, *offsets = (arrays[array_name].numpy() for array_name in needed)
        try:
            by_type[name] = UserIds(values, offsets=next(iter(offsets), None), column=described["column"])
        except GraphDataError as error:
            raise GraphDataError(f"ids of node type {name!r}: {error}") from error
    return (by_type or None) if types is not None else by_type.get("")


def _vocabularies(manifest: Mapping[str, Any], data: GraphData) -> dict[str, tuple[str | None, ...]]:
    """Raises GraphDataError: these are not of the columns of tables that are there."""
    named = {name: tuple(names) for name, names in manifest.get("vocabularies", {}).items()}
    stores = data.stores
    for name, names in named.items():
        store = stores.get(name)  # None of tables that were not loaded
        if store is not None and store.shape[1] != len(names):
            raise GraphDataError(f"table {name!r} has {store.shape[1]} columns, but {len(names)} vocabularies.")
    return named


def ids_name(node_type: str) -> str:
    """Returns the name of the array of the user's ids of a node type; where texts end is in ``<name>.offsets``."""
    return f"ids.{node_type}"


def _own_seeds(data: GraphData) -> dict[str, Any]:
    """Returns the seed tables that are no task's."""
    return {} if data.task is not None else data.seed_tables


def require_arrays(path: Path, arrays: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises StoreFormatError: the folder lacks one."""
    for name in names:
        if name not in arrays:
            raise StoreFormatError(
                f"{path / MANIFEST} lists no array {name!r}; the folder is broken. Prepare it again."
            )


def _arrays(data: GraphData) -> dict[str, torch.Tensor | FeatureStore]:
    graph = data.graph
    lists: dict[str, Any] = {name: getattr(graph, name) for name in Graph.ARRAYS}
    if graph.origin is not None:
        lists |= {name: getattr(graph.origin, name) for name in ORIGIN}
    arrays = {name: tensor_view(array) for name, array in lists.items() if array is not None}
    return {**arrays, **data_arrays(data), **raw_stores(stores_by_array(data))}


def data_arrays(data: GraphData) -> dict[str, torch.Tensor]:
    """Returns the arrays of what data hold beside lists and rows of features: splits, seed tables, tasks, the user's
    ids, labels, and the times of a clock that numbers them by rank."""
    clock, arrays = data.graph.clock, dict[str, torch.Tensor]()
    if data.task is None:
        # Folders without rows to predict are those that earlier releases read, too.
        names = [*SPLITS, *([PREDICT] if len(data.predict) else [])]
        arrays |= {name: tensor_view(data.split(name)) for name in names if data.table(name) is None}
    if clock is not None and clock.ranked is not None:
        arrays[RANKED] = tensor_view(clock.ranked)
    arrays |= {**seed_arrays(_own_seeds(data)), **task_arrays(data.tasks)}
    for name, ids in data.user_ids.items():
        arrays[ids_name(name)] = tensor_view(ids.values)
        if ids.offsets is not None:
            arrays[f"{ids_name(name)}.offsets"] = tensor_view(ids.offsets)
    return arrays | ({} if data.y is None else {"y": data.y})


def stores_by_array(data: GraphData) -> dict[str, FeatureStore]:
    """Returns the stores by the name of the array that holds their rows."""
    return {table_name(name) if name in data.tables else name: store for name, store in data.stores.items()}


def _write_array(file: Path, array: torch.Tensor | FeatureStore) -> dict[str, Any]:
    shape = (array.shape[0], *array.row_shape) if isinstance(array, FeatureStore) else array.shape
    return array_entry(file, array.dtype, shape, write_chunks(file, byte_chunks(array)))


def _map_array(array: StoredArray, verify: bool) -> torch.Tensor:
    if array.size_bytes == 0:
        return torch.empty(array.shape, dtype=array.dtype)
    if verify and (damaged := find_damage(array)):
        raise damage_error(array, damaged)
    try:
        fd = array.open()
        try:
            mapped = mapped_bytes(array.file, fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare it again.") from error
    return tensor_view(mapped).view(array.dtype).view(array.shape)
