"""Stages: what a forward pass does between two convolutions, for few nodes at a time.

A stage runs the model on nodes and their in-neighbours. Convolutions that are done return the stored rows of these
nodes, the next one is computed for the nodes alone, and the rest of the forward pass is cut off. So the model need not
be changed, and what it does between its convolutions need not be known.
"""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference import convolution
from lightning_gnnload.inference.calls import Call, Interrupted, Rows, intercept, rows_by_type
from lightning_gnnload.inference.neighborhoods import ABSENT, BLANK, Batches, with_oddities


class Key(NamedTuple):
    """What a stage gives: the rows of a call, or the degrees that a call divides by; after the last call, the
    output."""

    call: int
    degrees: bool = False


class RowSource(Protocol):
    """The rows that stages have computed for the nodes of a type."""

    def take(self, ids: np.ndarray) -> torch.Tensor:
        """Returns the rows of nodes, int64 ``[V]``, ids within the type."""


Stored = Mapping[tuple[Key, str], RowSource]
"""Rows by stage and node type."""


@dataclass
class StageReads:
    """What a stage reads of what it could, for nodes of one type.

    ``unread`` are tables that it does not read, each with what replaces it; ``stored`` the calls whose rows it reads;
    ``edge_types`` the numbers of the types that it reads, None for all; ``form`` how its convolution is called.
    """

    unread: dict[str, str] = field(default_factory=dict)
    stored: frozenset[int] = frozenset()
    edge_types: tuple[int, ...] | None = None
    form: Callable[[convolution.Arguments, int], convolution.Arguments] = convolution.as_called


@dataclass
class Stages:
    """Runs the stages of a model, whose forward pass ``run`` makes ``calls`` of the convolutions ``modules``, in order.

    ``degrees_of`` says for each call that divides by degrees, which call's degrees these are.
    """

    run: Callable[[Any], Any]
    modules: dict[str, nn.Module]
    calls: list[Call]
    batches: Batches
    types: GraphTypes | None
    degrees_of: dict[int, int]

    @property
    def keys(self) -> list[Key]:
        """All stages, in order."""
        keys = []
        for call in self.calls:
            if self.degrees_of.get(call.number) == call.number:
                keys.append(Key(call.number, degrees=True))
            keys.append(Key(call.number))
        return [*keys, self.output]

    @property
    def output(self) -> Key:
        return Key(len(self.calls))

    def gives(self, key: Key) -> dict[str, Rows]:
        """Returns which rows a stage other than the last gives, by node type."""
        rows = self.calls[key.call].gives
        return dict.fromkeys(rows, Rows((), torch.get_default_dtype())) if key.degrees else rows

    def ids_by_type(self, nodes: torch.Tensor) -> dict[str, np.ndarray]:
        """Returns ids within the types of the nodes of a mini-batch, in its order."""
        ids = nodes.numpy()
        if self.types is None:
            return {"": ids}
        numbers = self.types.number_of(ids)
        return {
            name: ids[numbers == number] - self.types.first_node[number]
            for number, name in enumerate(self.types.node_types)
        }

    def at(self, key: Key, hop: MiniBatch, node_type: str, reads: StageReads, stored: Stored) -> torch.Tensor:
        """Returns what a stage gives for the S nodes of a hop, all of one type, ``[S, ...]``.

        ``node_type`` is ``""`` in a graph without types; ``stored`` are the rows that stages before it gave. A model
        that does not call its convolutions in one order raises InferenceError.
        """
        batch = self.batches.at_layer(hop, self.layer_of(key), reads.unread)
        ids, num_dst, results = self.ids_by_type(hop.nodes), hop.num_seeds, dict[str, torch.Tensor]()

        def answer(number: int, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if number >= len(self.calls) or called[-1] != self.calls[number].name:
                raise InferenceError(
                    f"convolution {called[-1]!r} is called out of turn: the model does not call its convolutions in "
                    "one order, whatever the mini-batch. Predict batch by batch: gnnload predict."
                )
            call = self.calls[number]
            if number < key.call:
                return self._answered(call, ids, reads, stored)
            arguments = convolution.positional((args, kwargs), list(inspect.signature(real).parameters))
            if key.degrees:
                results[node_type] = convolution.gcn_degrees(call.module, arguments, num_dst)
                raise Interrupted
            if number in self.degrees_of:
                degrees = stored[Key(self.degrees_of[number], degrees=True), node_type].take(ids[node_type])
                arguments = convolution.with_degrees(arguments, degrees, num_dst)
            else:
                arguments = reads.form(arguments, num_dst)
            output = real(*arguments[0], **arguments[1])
            results.update(rows_by_type(output, f"convolution {call.name!r}", node_type))
            raise Interrupted

        with torch.no_grad(), intercept(self.modules, answer) as called:
            try:
                output = self.run(batch)
            except Interrupted:
                pass
            else:
                if key != self.output:
                    raise InferenceError(
                        f"the model ended before convolution {self.calls[key.call].name!r} was called, as it did on "
                        "another mini-batch. Predict batch by batch: gnnload predict."
                    )
                results.update(rows_by_type(output, "the model", node_type))
        if node_type not in results:
            raise InferenceError(
                f"the model gives rows of {', '.join(map(repr, results)) or 'no type'}, but none of {node_type!r}. Ask "
                "for nodes of the types that it has rows for: nodes=."
            )
        return results[node_type][:num_dst]

    def layer_of(self, key: Key) -> int:
        """Returns the layer that a stage passes: calls side by side are of one."""
        return self.batches.num_layers if key == self.output else self.calls[key.call].layer

    def _answered(self, call: Call, ids: dict[str, np.ndarray], reads: StageReads, stored: Stored) -> Any:
        rows = {
            name: stored[Key(call.number), name].take(ids[name]).to(self.batches.device)
            if call.number in reads.stored
            else torch.empty((0, *shape.row_shape), dtype=shape.dtype, device=self.batches.device)
            for name, shape in call.gives.items()
        }
        return rows if call.is_typed else next(iter(rows.values()))


class _RandomRows:
    """Rows that differ from node to node, instead of those that no stage has computed yet."""

    def __init__(self, rows: Rows, number: int) -> None:
        # 997 is a prime: ids with a common step, as in a grid, do not all share few rows.
        shape, generator = (997, *rows.row_shape), torch.Generator().manual_seed(number)
        numbers = torch.rand(shape, generator=generator) + 0.5  # positive, as degrees are
        self.rows = numbers.to(rows.dtype) if rows.dtype.is_floating_point else (numbers * 8).to(rows.dtype)

    def take(self, ids: np.ndarray) -> torch.Tensor:
        return self.rows[torch.from_numpy(ids % len(self.rows))]


Hop = Callable[[tuple[int, ...] | None], MiniBatch]
"""Samples the same few nodes' in-neighbours by edges of some types."""


def find_reads(stages: Stages, key: Key, node_type: str, hop: Hop) -> StageReads:
    """Finds what a stage reads, by leaving out one thing after the other on a small mini-batch: what changes nothing is
    not read. Raises what the model raises where nothing is left out."""
    rows = {
        (stage, name): _RandomRows(shape, index)
        for index, stage in enumerate(stages.keys[:-1])
        for name, shape in stages.gives(stage).items()
    }
    everything = StageReads(stored=frozenset(range(key.call)))
    whole = hop(None)
    expected = stages.at(key, whole, node_type, everything, rows)

    def is_enough(reads: StageReads, batch: MiniBatch = whole, *, exactly: bool = True) -> bool:
        try:
            with redirect_stderr(io.StringIO()), warnings.catch_warnings():  # torch.fx prints what it raises
                warnings.simplefilter("ignore")
                actual = stages.at(key, batch, node_type, reads, rows)
        except Exception:  # whatever a model or its library raises where something is missing
            return False
        # To leave out what is not read changes no bit. Fewer edges change the order of sums, and so the rounding.
        if exactly and actual.is_floating_point():
            return torch.equal(actual.nan_to_num(-1.5), expected.nan_to_num(-1.5))
        return actual.shape == expected.shape and torch.allclose(
            actual.double(), expected.double(), rtol=1e-4, atol=1e-5, equal_nan=True
        )

    reads = _find_tables(key, stages.batches.columns.present(whole), everything, is_enough)
    if key == stages.output:
        return reads
    if stages.types is not None:
        reads = _find_edge_types(stages, reads, node_type, hop, is_enough)
    if not key.degrees and key.call not in stages.degrees_of:
        # Forms that would merge edges, or that know nothing of loops, differ here.
        odd = with_oddities(whole if reads.edge_types is None else hop(reads.edge_types))
        expected = stages.at(key, odd, node_type, reads, rows)
        for form in convolution.FORMS:
            faster = replace(reads, form=form)
            if is_enough(faster, odd, exactly=False):
                return faster
    return reads


def _find_tables(
    key: Key, num_rows: dict[str, int], reads: StageReads, is_enough: Callable[[StageReads], bool]
) -> StageReads:
    """Finds which of the tables, which have so many rows here, and of the calls' rows a stage reads."""
    # One row and none are broadcast to none, so that a model would not miss it here, but the two rows of others.
    blanks = {name: (ABSENT, BLANK) if count > 1 else (BLANK,) for name, count in num_rows.items()}
    # Most stages read the call before them alone: one try says so.
    least = StageReads({name: choices[0] for name, choices in blanks.items()}, frozenset({key.call - 1}))
    if key.call and is_enough(least):
        reads = least
    else:
        for name, choices in blanks.items():
            tries = (replace(reads, unread={**reads.unread, name: blank}) for blank in choices)
            reads = next((fewer for fewer in tries if is_enough(fewer)), reads)
    for number in sorted(reads.stored):
        fewer = replace(reads, stored=reads.stored - {number})
        if is_enough(fewer):
            reads = fewer
    return reads


def _find_edge_types(
    stages: Stages, reads: StageReads, node_type: str, hop: Hop, is_enough: Callable[..., bool]
) -> StageReads:
    assert stages.types is not None
    numbers = stages.types.slots_of(node_type)
    # Types without edges here would seem unread, but may have some elsewhere.
    present = set(edge_types(hop(None).blocks[0], stages.batches.columns.data.graph).tolist())
    for left_out in [number for number in numbers if number in present]:
        fewer = tuple(number for number in numbers if number != left_out)
        if is_enough(reads, hop(fewer), exactly=False):
            numbers = fewer
    return replace(reads, edge_types=numbers)
