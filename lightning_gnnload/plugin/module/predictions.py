"""PredictionWriter: what a model predicts, in one file, beside the user's own ids of what each row is of."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from lightning_gnnload.data.id_columns import NodeIdColumns
from lightning_gnnload.data.moment import moment_text
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.predicted import CLASS, PREDICTION, named_predictions
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.inference.retrieval import Ranking
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import end_on_sigterm, pl
from lightning_gnnload.storage.output import (
    TABLE_SUFFIXES,
    OutputFile,
    check_output,
    explain_write_errors,
    private_file,
    suffix_of,
)

RANK, SCORE = "rank", "score"


class PredictionWriter(pl.Callback):
    """In ``trainer.predict``, writes what ``predict_step`` returns to one file, a row for each seed, beside its ids.

    The columns of the file, which is ``.parquet``, ``.csv``, ``.csv.gz``, ``.npz`` or ``.npy`` as :class:`.OutputFile`
    has them, are

    - of nodes, the user's ids, named as the user's column, or ``node``, their numbers, where the data have no ids; of
      nodes of several types also ``node_type``;
    - of the rows of a :class:`.SeedTable`, ``row``, their numbers in it, the ids of the node, or of both ends of a link
      as ``src`` and ``dst``, and ``time``, where the table has one, as dates or numbers as it was given;
    - ``prediction``; or, where ``predict_step`` returns a dict of tensors, each under its name. Of seeds of several
      types, rows are those of ``TypedMiniBatch.seeds``, type by type; a dict by node type is one ``prediction``, too;
    - where it returns a :class:`.Ranking`, a row for each item of each seed: ``rank``, from 1 on, the item by the
      user's ids, named as the user's column, with ``dst_`` before it where seeds have such a column, and ``score``;
    - ``class``, the name of the largest entry of ``prediction``, where the data name as many classes as it has entries;
    - in tables, which are ``.parquet``, ``.csv`` and ``.csv.gz``, in place of ``prediction`` a column ``p_NAME`` for
      each class, and of numbers one named by the label, as :func:`.named_predictions` has them.

    Rows come in the order of ``GraphDataModule(predict=...)``, each once, whatever the number of trainers: each of
    these writes its own file while it predicts, and trainer 0 joins them, so that no rank has all rows in memory.
    On several machines ``path`` must therefore lie in a folder that they share. Lightning keeps what ``predict_step``
    returns as well, except for ``trainer.predict(..., return_predictions=False)``.

    Args:
        path: of the file. One of that name is replaced when the new one is whole.

    Raises:
        OutputError, StoreFormatError, MissingExtraError: at the beginning: ``path`` cannot be written, or is a
            ``.parquet`` file, and pyarrow is not installed; later: the disk is full.
        LoaderConfigError: when a batch was predicted: ``predict_step`` returned no tensors with a row for each seed, or
            the mini-batches are not a GraphDataModule's; at the end: a rank's file is missing.

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[PredictionWriter("predictions.npz")], logger=False, accelerator="cpu")
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._part: IO[bytes] | None = None
        self._rows: _Rows | None = None
        self._values = PREDICTION
        self._zone: str | None = None
        self._names: tuple[Any, Any] = None, None
        self._subject = ""

    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        check_output(self.path)  # now, not after an hour of work
        part = self._part_path(trainer.global_rank)
        with explain_write_errors(part):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._part = private_file(part)

    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        end_on_sigterm(trainer)
        loaders: Any = trainer.predict_dataloaders
        loader = loaders[dataloader_idx] if isinstance(loaders, list | tuple) else loaders
        if not isinstance(loader, EpochLoader) or dataloader_idx:
            raise LoaderConfigError(
                f"PredictionWriter needs one loader, a GraphDataModule's, but predict loader {dataloader_idx} is a "
                f"{type(loader).__name__}. Write predictions of other loaders by a callback of your own."
            )
        if self._rows is None:
            self._rows = _Rows(loader.source)
            self._zone, self._names, self._subject = self._rows.zone, self._rows.names, self._rows.subject
        columns = self._rows.columns(BatchRequest(0, batch_idx, loader.rank, loader.num_ranks), outputs)
        names = outputs if isinstance(outputs, Mapping) else (SCORE,)
        self._values = PREDICTION if PREDICTION in columns else next(iter(names))
        assert self._part is not None, "Lightning has begun the epoch"
        # Of the order of all ranks' rows: by steps, and in a step by ranks.
        with explain_write_errors(self._part_path(trainer.global_rank)):
            _write_rows(self._part, batch_idx * loader.num_ranks + loader.rank, columns)

    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        with explain_write_errors(self._part_path(trainer.global_rank)):
            self._close()
        trainer.strategy.barrier("predictions")
        if not trainer.is_global_zero:
            self._part = None  # rank 0's to remove
            return
        parts = [self._part_path(rank) for rank in range(trainer.world_size)]
        # The barrier is over, so that all are written: one that is not seen lies on another machine's disk.
        if missing := [part for part in parts if not part.exists()]:
            raise LoaderConfigError(
                f"{missing[0]} is not there: give PredictionWriter a path in a folder that all machines share."
            )
        is_table = suffix_of(self.path) in TABLE_SUFFIXES
        try:
            with OutputFile(self.path, values=self._values, zone=self._zone) as file:
                for _, columns in merge(*map(_read_rows, parts), key=itemgetter(0)):
                    end_on_sigterm(trainer)
                    file.write(named_predictions(columns, *self._names) if is_table else columns)
        finally:
            self._part = None
            for part in parts:  # others' too, which are done: nobody else removes them
                part.unlink()
        pl.utilities.rank_zero.rank_zero_info(f"Predictions of {file.num_rows} rows{self._subject} are in {self.path}.")

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Removes this rank's unfinished file."""
        if self._part is not None:
            with suppress(OSError):  # of rows that a full disk did not take
                self._close()
            self._part = None
            self._part_path(trainer.global_rank).unlink(missing_ok=True)

    def _close(self) -> None:
        """Closes this rank's file, which remains its own to remove."""
        self._rows = None
        if self._part is not None:
            self._part.close()

    def _part_path(self, rank: int) -> Path:
        return self.path.with_name(f"{self.path.name}.rank{rank}")


class _Rows:
    """The columns that say which seeds rows are of, and the predictions for them."""

    def __init__(self, source: BatchSource) -> None:
        self._workload = workload = source.workload
        self.names = source.data.class_names, source.data.label_names
        self._data, self._task, self._clock = source.data, source.data.task, source.data.graph.clock
        endpoints = workload.kind.nodes_of(workload.seeds).T
        self._ends = [NodeIdColumns(source.data, nodes) for nodes in endpoints]
        table = workload.kind.table
        self._targets = None if table is None or table.dst_ptr is None else table.targets_in(workload.graph)
        # Seeds are the nodes themselves, unless they are rows: of a table, or as another library's loaders have them.
        self._are_rows = not (_are_nodes(table) if table is not None else workload.kind.form.rows_are_seeds)

    def columns(self, request: BatchRequest, outputs: Any) -> dict[str, np.ndarray]:
        """Raises LoaderConfigError: outputs that have no row for each seed of the mini-batch."""
        seeds = self._workload.seeds_of(request)
        nodes = self._nodes_of(seeds, request)
        columns = self._named(seeds, nodes)
        types = self._workload.graph.types
        positions = None
        if types is not None and len(nodes) == 1:
            type_numbers = types.number_of(nodes[0])
            outputs = _join_types(outputs, types, type_numbers)
            # Models see seeds type by type, and those of a type in their order.
            positions = np.argsort(np.argsort(type_numbers, kind="stable"))
        if isinstance(outputs, Ranking):
            return self._ranked(columns, outputs)
        predicted = outputs if isinstance(outputs, Mapping) else {PREDICTION: outputs}
        for name, values in predicted.items():
            rows = _as_rows(name, values, len(seeds), columns)
            columns[name] = rows if positions is None else rows[positions]
        classes, scores = self.names[0], columns.get(PREDICTION)
        if classes is not None and scores is not None and scores.shape[1:] == (len(classes),) and CLASS not in columns:
            columns[CLASS] = np.array(classes)[scores.argmax(1)]
        return columns

    def _ranked(self, columns: Mapping[str, np.ndarray], ranking: Ranking) -> dict[str, np.ndarray]:
        """Returns a row for each item of each seed: its rank, from 1 on, the item by the user's ids, and the score."""
        items = ranking.items.cpu().numpy()
        if len(items) != len(next(iter(columns.values()))):
            raise LoaderConfigError(
                f"predict_step returned a Ranking for {len(items)} seeds of {len(next(iter(columns.values())))}: one "
                "for each seed is needed."
            )
        seed, position = np.nonzero(items >= 0)
        rows = {name: column[seed] for name, column in columns.items()}
        # Of any candidate: they are of one type, and the columns are the same where a mini-batch has no item at all.
        names = NodeIdColumns(self._data, np.arange(ranking.candidates.start, ranking.candidates.start + 1))
        ids = {
            f"dst_{name}" if name in rows or name in (RANK, SCORE) else name: column
            for name, column in names.columns(items[seed, position]).items()
        }
        return rows | {RANK: position + 1} | ids | {SCORE: ranking.scores.cpu().numpy()[seed, position]}

    def _nodes_of(self, seeds: np.ndarray, request: BatchRequest) -> np.ndarray:
        """The nodes of seeds, ``[1, n]``, or the endpoints of links, ``[2, n]``."""
        nodes, table = self._workload.kind.nodes_of(seeds).T, self._workload.kind.table
        if table is not None and self._targets is not None:  # of several, those that this mini-batch took
            key = self._workload.key_of(request)
            nodes[1] = self._targets[table.taken(seeds, key.seed, key.epoch)]
        return nodes

    def _named(self, seeds: np.ndarray, nodes: np.ndarray) -> dict[str, np.ndarray]:
        columns = {"row": seeds} if self._are_rows else {}
        for end, ids, names in zip(("src", "dst"), nodes, self._ends, strict=False):
            named = names.columns(ids)
            if len(nodes) > 1:
                named = {end if name == names.column else f"{end}_{name}": rows for name, rows in named.items()}
            columns |= named
        table = self._workload.kind.table
        if table is not None and len(table.rows_by_type) > 1:
            types = ["__".join(link.edge_type or ()) for link in self._workload.kind.form.links]
            columns["edge_type"] = np.array(types, object)[table.types_of(seeds)]
        if table is None or table.time is None:
            return columns
        times, form = table.time[seeds], table.time_form
        return {**columns, "time": times if form is None else form.of_nanoseconds(times)}

    @property
    def subject(self) -> str:
        """Says of what task and time the rows are, where that is one."""
        table = self._workload.kind.table
        subject = "" if self._task is None else f" of task {self._task!r}"
        if table is None or table.time is None or not len(table) or table.time.min() != table.time.max():
            return subject
        return f"{subject}, as of {moment_text(table.time[0].item(), self._clock)},"

    @property
    def zone(self) -> str | None:
        """The time zone of the seeds' times, if they have one."""
        table = self._workload.kind.table
        return None if table is None or table.time_form is None else table.time_form.zone


def _are_nodes(table: SeedTable) -> bool:
    """Whether rows are but nodes at one time, each once: their numbers tell nothing."""
    is_plain = table.kind == "nodes" and table.columns.keys() == {"time"} and table.y is None
    times = () if table.time is None else table.time
    return is_plain and len(np.unique(times)) < 2 and len(np.unique(table.ends)) == len(table)


def _as_rows(name: str, values: Any, num_seeds: int, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    if not isinstance(values, torch.Tensor) or values.ndim < 1 or len(values) != num_seeds or name in columns:
        form = list(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
        raise LoaderConfigError(
            f"predict_step returned {form} as {name!r} for {num_seeds} seeds, which cannot be saved by row: "
            f"a tensor with a row for each seed is needed, or a dict of such, none of which is named "
            f"{' or '.join(map(repr, columns))}. GraphDataModule(predict=...) says for which seeds."
        )
    values = values.detach().cpu()
    return (values.float() if values.dtype is torch.bfloat16 else values).numpy()  # NumPy has no bfloat16


def _join_types(outputs: Any, types: GraphTypes, type_numbers: np.ndarray) -> Any:
    """Returns outputs by node type as one tensor, type by type, and others as they are; ``type_numbers`` int64 ``[n]``
    are those of the seeds. Raises LoaderConfigError: other numbers of rows than seeds, or other widths."""
    if not _is_by_type(outputs, types):
        return outputs
    counts = {name: int((type_numbers == number).sum()) for number, name in enumerate(types.node_types)}
    shapes = {name: list(values.shape) for name, values in outputs.items()}
    are_counted = all(shapes.get(name, [0])[:1] == [count] for name, count in counts.items())
    if not are_counted or len({tuple(shape[1:]) for shape in shapes.values()}) > 1:
        needed = {name: count for name, count in counts.items() if count}
        raise LoaderConfigError(
            f"predict_step returned rows by node type, {shapes}, but the seeds are {needed}: one row each is needed, "
            f"of one width. GraphDataModule(predict=...) says for which seeds."
        )
    return torch.cat([outputs[name].detach().cpu() for name in types.node_types if name in outputs])


def _is_by_type(outputs: Any, types: GraphTypes) -> bool:
    is_dict = isinstance(outputs, Mapping) and set() < outputs.keys() <= {*types.node_types}
    return is_dict and all(isinstance(values, torch.Tensor) for values in outputs.values())


def _write_rows(file: IO[bytes], number: int, columns: Mapping[str, np.ndarray]) -> None:
    np.save(file, np.array([str(number), *columns]))
    for rows in columns.values():
        np.save(file, rows.astype(str) if rows.dtype == object else rows, allow_pickle=False)


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the rows of a file as they were written, each with its step's number among those of all ranks."""
    size_bytes = path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() < size_bytes:
            number, *names = np.load(file, allow_pickle=False).tolist()
            yield int(number), {name: np.load(file, allow_pickle=False) for name in names}
