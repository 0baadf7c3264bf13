"""Opens packed mini-batches: measures, decides how memory and disk are used, fills hot rows, and packs."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.budget import AUTO_SHARE
from lightning_gnnload.cache.builder import checksum_of_rows, lies_in_memory, print_line
from lightning_gnnload.cache.packed.epochs import PackedEpochs
from lightning_gnnload.cache.packed.folder import Decided, PackingFolder, decided_for, key_digest
from lightning_gnnload.cache.packed.groups import ScannedGroups
from lightning_gnnload.cache.packed.layout import Layout, Sizes, chunk_bytes_of, lay_out, sampled_sizes
from lightning_gnnload.cache.packed.pack import PackedTable, Packer, RowsOf
from lightning_gnnload.cache.packed.rates import all_in_memory, measure_rates
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.packed.store import ColdRows, PackedStore
from lightning_gnnload.cache.packed.stretch import StretchReader
from lightning_gnnload.cache.packed.window import Timeline
from lightning_gnnload.cache.peers import Membership, PeerGroup
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import PreSample
from lightning_gnnload.cache.static import StaticCache, exchange_files
from lightning_gnnload.cache.store import CacheLevels
from lightning_gnnload.cache.trace import sampled_ahead
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore, byte_rows
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.slab import Column
from lightning_gnnload.errors import PackingConfigError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.host.pages import mapped_file, private_bytes
from lightning_gnnload.ops.checks import ARENA_ALIGNMENT
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.disk import DiskFeatureStore

_SAMPLED = 8
"""Mini-batches that are sampled to learn how large they are."""
_PROBED_ROWS = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """The mini-batches to be packed, and who gathers them.

    Attributes:
        workload: of the training.
        rows_of: samples a mini-batch; the names are those of ``stores``, in the order in which they are gathered.
        stores: the tables, by name.
        columns: that their rows are in mini-batches, by name.
        nodes: of each table that has rows of nodes, which; of others None.
        ranks: the trainers whose mini-batches this machine makes.
        own_ranks: those whose mini-batches this process makes.
        num_threads: that gather at once in a process.
        num_processes: of this machine that gather.
        epoch, step: that training begins with.
        limit: steps of an epoch that the run takes, and steps that it takes at all; None: all.
        lasting_epochs: whose windows lie on the disk together; None: two windows do.
        progress: print and show bars.
    """

    workload: Workload
    rows_of: RowsOf
    stores: Mapping[str, FeatureStore]
    columns: Mapping[str, Column]
    nodes: Mapping[str, range | None]
    ranks: tuple[int, ...] = (0,)
    own_ranks: tuple[int, ...] = (0,)
    num_threads: int = 1
    num_processes: int = 1
    epoch: int = 0
    step: int = 0
    limit: tuple[int | None, int | None] = (None, None)
    lasting_epochs: int | None = None
    progress: bool = False
    tables: dict[str, FeatureStore] = field(init=False)

    def __post_init__(self) -> None:
        # Of quantised tables the codes, of which several times as many fit.
        tables = {
            name: store.codes if isinstance(store, QuantizedFeatureStore) else store
            for name, store in self.stores.items()
        }
        object.__setattr__(self, "tables", tables)

    @property
    def num_steps(self) -> int:
        """Steps of an epoch that the run takes."""
        num_steps = self.workload.plan(self.workload.num_ranks).num_steps
        return num_steps if self.limit[0] is None else max(min(num_steps, self.limit[0]), 1)

    @cached_property
    def identities(self) -> dict[str, list[Any]]:
        """What tells the tables, and their columns, from others: a pass over those that are in memory."""
        return {name: [*self.columns[name][1:], _identity(store)] for name, store in self.tables.items()}

    def key(self, packing: Packing) -> dict[str, Any]:
        """Returns all that packed rows depend on, as JSON values by names for people."""
        workload = self.workload
        return {
            **workload.description,
            "graph": workload.sampler.fingerprint_of(workload.graph),
            "tables": self.identities,
            # Windows know tables by number alone.
            "order of tables": list(self.tables),
            "seed": workload.seed,
            "batch size": workload.batch_size,
            "trainers": [list(self.ranks), workload.num_ranks],
            "drop_last": workload.drop_last,
            "fixed draws": workload.fixed_draws,
            "dtype": packing.dtype,
        }


def open_packed(packing: Packing, run: Run, membership: Membership | None = None) -> dict[str, FeatureStore]:
    """Opens a store of each table from which ``run``'s mini-batches are gathered: what was packed, and is packed from
    here on. The ranks of a machine that gather call it together, as ``membership`` says.

    Raises:
        PackingConfigError: settings that cannot work.
        PackingMismatchError: the folder has mini-batches of another run.
        FeatureFileError: a table cannot be read, or the folder not be written to.
    """
    check_tables(packing, run.tables)
    if all_in_memory(list(run.tables.values())) and not packing.always:
        if run.progress:
            print_line(
                "packing: the tables are in memory, where packing saves nothing; always=True packs all the same."
            )
        return unpacked(packing, run)
    folder = PackingFolder(str(packing.folder))
    try:
        with nullcontext() if membership is None else membership.connect() as peers:
            if peers is None or peers.membership.index == 0:
                with folder.deciding() as is_alone:
                    layout, decided = decide(packing, run, folder, is_alone)
                if run.progress:
                    print_line(_described(packing, layout))
            else:
                layout, decided = None, None
            layout, decided = _in_all_ranks(peers, layout, decided)
            if peers is not None and peers.membership.index > 0:
                folder.join()  # not before, as the rank that leads would not be alone
            tables = filled_tables(run, packing, decided, peers, layout.chunk_bytes)
        cold = _cold_rows(packing, run, folder, layout, decided, tables)
    except BaseException:
        folder.close()
        raise
    if cold is None:
        opened: list[FeatureStore] = [StaticCache(table.store, table.location, table.shards) for table in tables]
    else:
        opened = [PackedStore(table, number, cold) for number, table in enumerate(tables)]
    return {
        name: store.over(CacheLevels(table, [front])) if isinstance(store, QuantizedFeatureStore) else front
        for (name, store), table, front in zip(run.stores.items(), run.tables.values(), opened, strict=True)
    }


def unpacked(packing: Packing, run: Run) -> dict[str, FeatureStore]:
    """Returns stores of the same rows as :func:`open_packed` does, of which nothing is packed: where packing rounds
    rows, they are rounded alike."""
    if packing.dtype is None:
        return dict(run.stores)
    check_tables(packing, run.tables)
    none = [np.full(store.shape[0], -1, np.int32) for store in run.tables.values()]
    tables = [
        PackedTable(*item, location, halves=True) for item, location in zip(run.tables.items(), none, strict=True)
    ]
    return {table.name: PackedStore(table, number, ColdRows()) for number, table in enumerate(tables)}


def check_tables(packing: Packing, tables: Mapping[str, FeatureStore]) -> None:
    """Raises PackingConfigError: a table of whole numbers is to be packed in half precision."""
    if packing.dtype is None:
        return
    for name, store in tables.items():
        if not store.dtype.is_floating_point or store.dtype.itemsize < 2:
            raise PackingConfigError(
                f"dtype={packing.dtype!r} rounds rows, but the table {name!r} has {store.dtype}, whose numbers would "
                "become others. Leave dtype out."
            )


def decide(packing: Packing, run: Run, folder: PackingFolder, is_alone: bool) -> tuple[Layout, Decided]:
    """Decides how packing uses memory and disk, or reads what was decided for the folder.

    Raises PackingConfigError, PackingMismatchError: as :func:`open_packed`.
    """
    workload, tables = run.workload, run.tables
    memory = packing.memory_bytes or int(free_bytes() * AUTO_SHARE)
    disk = shutil.disk_usage(folder.path)
    whole = None if run.lasting_epochs is None else run.lasting_epochs * run.num_steps
    steps = range(0, run.num_steps, max(run.num_steps // _SAMPLED, 1))
    requests = [BatchRequest(run.epoch, step, run.ranks[0], workload.num_ranks) for step in steps[:_SAMPLED]]
    mean, most = sampled_sizes([rows for _, rows in sampled_ahead(run.rows_of, requests)])
    # What was packed ahead of the run is faster in any case.
    always = packing.always or folder.has_lasting_windows()
    rates = measure_rates(list(tables.values()), folder.path, chunk_bytes_of(memory))
    hotness: dict[str, np.ndarray | None] = {}
    layouts = list[Layout]()

    def arrange(window: int | None, share: float | None) -> Layout:
        used = sum(file.stat().st_size for file in folder.windows.glob("*/rows.bin"))
        # What its windows take is theirs already.
        room = packing.room_bytes or (disk.free + used) // 2
        sizes = Sizes(
            tables,
            hotness,
            mean,
            most,
            num_ranks=len(run.ranks),
            num_gathering=run.num_threads * run.num_processes,
            num_processes=run.num_processes,
            num_steps=_end_of(packing, run, run.num_steps),
            packed_bytes={name: _packed_bytes(store, packing) for name, store in tables.items()},
        )
        return lay_out(sizes, memory, room, window=window, whole=whole, rates=rates, always=always, hot_share=share)

    def choose() -> Decided:
        hotness.update(_hotness(run))
        layouts.append(layout := arrange(packing.window, None))
        hot = []
        for name, store in tables.items():
            ranked = hotness[name]
            count = 0 if ranked is None else int(layout.hot_share * store.shape[0])
            hot.append(np.sort(hottest(ranked, store.shape[0], count)) if count else np.empty(0, np.int64))  # type: ignore[arg-type]
        return Decided(layout.window, layout.first, run.num_steps, layout.hot_share, tuple(hot))

    num_rows = [store.shape[0] for store in tables.values()]
    decided = decided_for(folder, run.key(packing), num_rows, run.num_steps, is_alone, choose)
    if is_alone:
        folder.clear_leftovers()
    if packing.window is not None and packing.window != decided.window:
        raise PackingConfigError(
            f"window={packing.window}, but the windows in {folder.path} have {decided.window} steps. Leave window out, "
            "give another folder, or remove that one."
        )
    if not layouts:
        # How often its other rows come is not known; what they take was decided with the same settings.
        hotness.update(
            {name: _as_hotness(hot, store) for (name, store), hot in zip(tables.items(), decided.hot, strict=True)}
        )
        layouts.append(arrange(decided.window, decided.hot_share))
    return layouts[0], decided


def packer_for(
    packing: Packing, run: Run, folder: PackingFolder, layout: Layout, decided: Decided, tables: Sequence[PackedTable]
) -> Packer:
    """Makes what packs the windows of a run."""
    return Packer(
        folder.windows,
        key_digest(run.key(packing)),
        tuple(tables),
        run.rows_of,
        timeline_of(packing, run, decided),
        chunk_bytes=layout.chunk_bytes,
        staging_bytes=layout.staging_bytes,
        stays=run.lasting_epochs is not None,
    )


def timeline_of(packing: Packing, run: Run, decided: Decided) -> Timeline:
    """Returns the order of a run's mini-batches over all epochs."""
    return Timeline(
        decided.num_steps,
        run.ranks,
        run.workload.num_ranks,
        decided.window,
        decided.first,
        _end_of(packing, run, decided.num_steps),
        comes_again=packing.cycle is not None,
    )


def _end_of(packing: Packing, run: Run, num_steps: int) -> int | None:
    """Returns how many steps there are, of epochs of so many; None: without an end."""
    if packing.cycle is not None:
        return packing.cycle * num_steps
    limits = [run.workload.end_epoch, run.limit[1]]
    if num_steps != run.num_steps:
        limits[1] = None  # a folder of longer epochs, whose steps count otherwise
    limits[0] = None if limits[0] is None else limits[0] * num_steps
    return max(min(end for end in limits if end is not None), 1) if limits != [None, None] else None


def _cold_rows(
    packing: Packing, run: Run, folder: PackingFolder, layout: Layout, decided: Decided, tables: Sequence[PackedTable]
) -> ColdRows | None:
    """Makes what has the rows that memory does not keep; None: the tables alone."""
    packer = packer_for(packing, run, folder, layout, decided, tables)

    def without_room() -> ColdRows:
        if layout.without_room == "direct":
            return ColdRows()
        return ScannedGroups(
            packer.tables,
            run.rows_of,
            packer.timeline,
            run.own_ranks,
            num_bytes=layout.group_bytes,
            chunk_bytes=layout.chunk_bytes,
        )

    if layout.way != "packed":
        folder.close()
    if layout.way == "direct":
        # Rows that memory keeps are rounded, and the others are to be like them.
        return None if packing.dtype is None else ColdRows()
    if layout.way == "scanned":
        return without_room()
    reader = StretchReader(layout.reader_bytes, run.num_threads)
    epochs = PackedEpochs(packer, reader, without_room, leave=folder.close, progress=run.progress)
    epochs.open(run.epoch, run.step)
    return epochs


def filled_tables(
    run: Run, packing: Packing, decided: Decided, peers: PeerGroup | None, chunk_bytes: int | None
) -> list[PackedTable]:
    """Fills the rows that memory keeps, once on the machine: the rank that leads reads each table in order, in chunks.
    With ``chunk_bytes`` None, only which rows these are."""
    filled = []
    for (name, store), hot in zip(run.tables.items(), decided.hot, strict=True):
        num_rows, row_bytes = store.shape[0], store.row_bytes
        begin = -(-4 * num_rows // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
        size = begin + len(hot) * row_bytes
        leads = peers is None or peers.membership.index == 0
        file = MemoryFile.create("packing", size) if peers is not None and leads else None
        memory = private_bytes(size) if peers is None else None if file is None else file.array
        table = None
        if memory is not None:
            location = memory[: 4 * num_rows].view(np.int32)
            location.fill(-1)
            location[hot] = np.arange(len(hot), dtype=np.int32)
            rows = memory[begin:size].reshape(len(hot), row_bytes)
            table = PackedTable(name, store, location, (rows,), halves=packing.dtype is not None)
            if chunk_bytes is not None:
                _read_rows(table, hot, rows, chunk_bytes)
        if peers is not None:
            (shared,) = exchange_files(peers, file, [size])
            memory = shared.array
            location = memory[: 4 * num_rows].view(np.int32)
            rows = memory[begin:size].reshape(len(hot), row_bytes)
            table = PackedTable(name, store, location, (rows,), halves=packing.dtype is not None)
        assert table is not None
        filled.append(table)
    return filled


def _read_rows(table: PackedTable, ids: np.ndarray, rows: np.ndarray, chunk_bytes: int) -> None:
    """Reads some rows of a table, ascending, in order."""
    at = 0
    with TableScan(table.store, chunk_bytes) as scan:
        for first, chunk in scan.chunks([ids]):
            end = at + int(np.searchsorted(ids[at:], first + len(chunk)))
            ops.gather_rows(chunk, ids[at:end] - first, rows[at:end])
            at = end
    table.round(rows)


def _in_all_ranks(peers: PeerGroup | None, layout: Layout | None, decided: Decided | None) -> tuple[Layout, Decided]:
    """Returns what the rank that leads has decided."""
    if peers is None:
        assert layout is not None
        assert decided is not None
        return layout, decided
    fields: dict[str, Any] = {}
    if layout is not None and decided is not None:
        lengths = [decided.window, decided.first, decided.num_steps]
        fields = {"layout": asdict(layout), "lengths": lengths, "num_tables": len(decided.hot)}
    leading = peers.all_gather(fields)[0].fields
    layout = Layout(**leading["layout"])
    hot = [peers.broadcast(None if decided is None else decided.hot[n]) for n in range(leading["num_tables"])]
    window, first, num_steps = leading["lengths"]
    return layout, Decided(window, first, num_steps, layout.hot_share, tuple(hot))


def _hotness(run: Run) -> dict[str, np.ndarray | None]:
    """Ranks the rows of all tables of nodes by the visits of the run's first epochs."""
    if all(nodes is None for nodes in run.nodes.values()):
        return dict.fromkeys(run.nodes)
    ranked = PreSample(progress=run.progress).hotness(run.workload, 0)
    return {name: None if nodes is None else ranked[nodes.start : nodes.stop] for name, nodes in run.nodes.items()}


def _as_hotness(hot: np.ndarray, store: FeatureStore) -> np.ndarray | None:
    if not len(hot):
        return None
    hotness = np.ones(store.shape[0], np.float32)
    hotness[hot] = 8  # about what a row that stays is visited more often than another
    return hotness


def _packed_bytes(store: FeatureStore, packing: Packing) -> int:
    return store.row_bytes if packing.dtype is None else 2 * store.shape[1]


def _identity(store: FeatureStore) -> str:
    """Returns digits that tell a table from others: by checksums of files, or of what lies in memory; of a file that is
    mapped for reading, which would take a pass over it, by when it was written; of other stores by some of their rows
    alone."""
    spaced = np.linspace(0, max(store.shape[0] - 1, 0), min(_PROBED_ROWS, store.shape[0])).astype(np.int64)
    sums = store.checksums if isinstance(store, DiskFeatureStore) else ()
    facts = [list(store.shape), str(store.dtype), checksum_of_rows(store, spaced), *sums]
    file = mapped_file(store.rows.data_ptr()) if type(store) is MemoryFeatureStore else None
    # What was changed in a map that may be written to is not in its file, or not yet.
    if lies_in_memory(store) or (file is not None and file.is_writable):
        facts.append(zlib.crc32(byte_rows(store.rows).data))  # type: ignore[attr-defined]
    elif file is not None:
        with suppress(OSError):  # of a file that was deleted
            written = os.stat(file.path)
            facts += [file.inode, file.offset, written.st_ino, written.st_size, written.st_mtime_ns]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _described(packing: Packing, layout: Layout) -> str:
    ways = {
        "packed": f"packing to {packing.folder}",
        "scanned": "packing: groups of mini-batches are scanned from the table instead",
        "direct": "packing does not pay here, and the table is read at random instead",
    }
    return f"{ways[layout.way]}: {layout.reason}."
