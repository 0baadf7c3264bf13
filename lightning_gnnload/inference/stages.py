"""Stages: what a forward pass does between two convolutions, for few nodes at a time.

A stage runs the model on nodes and their in-neighbours. Convolutions that are done give what is stored of these nodes,
the one at hand is kept for the nodes alone, and the rest of the forward pass is cut off. So the model is what it is,
and what stands between its convolutions need not be known.
"""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference import convolution
from lightning_gnnload.inference.calls import Call, Interrupted, Rows, in_place_of, rows_of
from lightning_gnnload.inference.neighborhoods import ABSENT, BLANK, Batches, with_oddities


class Key(NamedTuple):
    """What a stage gives: the rows of a call, or the degrees that a call divides by; after the last call, the output.

    Attributes:
        call: its number.
        degrees: not its rows, but the degrees.
    """

    call: int
    degrees: bool = False


class Held(Protocol):
    """The interface of rows that stages have given for the nodes of a type."""

    def take(self, ids: np.ndarray) -> torch.Tensor:
        """Returns the rows of nodes, int64 ``[V]``, ids within the type."""


Stored = Mapping[tuple[Key, str], Held]
"""Rows by stage and node type."""


@dataclass
class Reads:
    """What a stage reads of what it could, for nodes of one type.

    Attributes:
        unread: tables of the data that it does not read, each with what stands for them.
        stored: the calls whose rows it reads.
        kinds: the numbers of the edge types that it reads; None for all.
        form: how its convolution is called.
    """

    unread: dict[str, str] = field(default_factory=dict)
    stored: frozenset[int] = frozenset()
    kinds: tuple[int, ...] | None = None
    form: Callable[[convolution.Given, int], convolution.Given] = convolution.as_called


@dataclass
class Stages:
    """Runs the stages of a model.

    Attributes:
        run: a forward pass.
        modules: the convolutions by name.
        calls: in the order of a forward pass.
        batches: makes what the model is given.
        types: of the graph; None where it has none.
        degrees_of: for each call that divides by degrees, the call whose degrees these are.
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
        found = []
        for call in self.calls:
            if self.degrees_of.get(call.number) == call.number:
                found.append(Key(call.number, degrees=True))
            found.append(Key(call.number))
        return [*found, self.output]

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

    def at(self, key: Key, hop: MiniBatch, node_type: str, reads: Reads, stored: Stored) -> torch.Tensor:
        """Returns what a stage gives for the S nodes of a hop, ``[S, ...]``.

        Args:
            key: which stage.
            hop: the nodes, all of one type, with their in-neighbours.
            node_type: their type; ``""`` in a graph without types.
            reads: what it reads.
            stored: what stages before it gave.

        Raises:
            InferenceError: the model does not call its convolutions in the order in which it did.
        """
        batch = self.batches.at_layer(hop, self.layer_of(key), reads.unread)
        ids, num_dst, found = self.ids_by_type(hop.nodes), hop.num_seeds, dict[str, torch.Tensor]()

        def answer(number: int, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if number >= len(self.calls) or called[-1] != self.calls[number].name:
                raise InferenceError(
                    f"convolution {called[-1]!r} is called out of turn: the model does not call its convolutions in "
                    "one order, whatever the mini-batch. Predict batch by batch: gnnload predict."
                )
            call = self.calls[number]
            if number < key.call:
                return self._answered(call, ids, reads, stored)
            given = convolution.positional((args, kwargs), list(inspect.signature(real).parameters))
            if key.degrees:
                found[node_type] = convolution.degrees(call.module, given, num_dst)
                raise Interrupted
            if number in self.degrees_of:
                of_nodes = stored[Key(self.degrees_of[number], degrees=True), node_type].take(ids[node_type])
                given = convolution.with_degrees(given, of_nodes, num_dst)
            else:
                given = reads.form(given, num_dst)
            found.update(rows_of(real(*given[0], **given[1]), f"convolution {call.name!r}", node_type))
            raise Interrupted

        with torch.no_grad(), in_place_of(self.modules, answer) as called:
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
                found.update(rows_of(output, "the model", node_type))
        if node_type not in found:
            raise InferenceError(
                f"the model gives rows of {', '.join(map(repr, found)) or 'no type'}, but none of {node_type!r}. Ask "
                "for nodes of the types that it has rows for: nodes=."
            )
        return found[node_type][:num_dst]

    def layer_of(self, key: Key) -> int:
        """Returns the layer that a stage passes: calls side by side are of one."""
        return self.batches.num_layers if key == self.output else self.calls[key.call].layer

    def _answered(self, call: Call, ids: dict[str, np.ndarray], reads: Reads, stored: Stored) -> Any:
        rows = {
            name: stored[Key(call.number), name].take(ids[name]).to(self.batches.device)
            if call.number in reads.stored
            else torch.empty((0, *each.row_shape), dtype=each.dtype, device=self.batches.device)
            for name, each in call.gives.items()
        }
        return rows if call.of_types else next(iter(rows.values()))


class _Invented:
    """Rows that differ from node to node, in place of those that no stage has given yet."""

    def __init__(self, rows: Rows, number: int) -> None:
        shape, generator = (997, *rows.row_shape), torch.Generator().manual_seed(number)
        numbers = torch.rand(shape, generator=generator) + 0.5  # positive, as degrees are
        self.rows = numbers.to(rows.dtype) if rows.dtype.is_floating_point else (numbers * 8).to(rows.dtype)

    def take(self, ids: np.ndarray) -> torch.Tensor:
        return self.rows[torch.from_numpy(ids % len(self.rows))]


Hop = Callable[[tuple[int, ...] | None], MiniBatch]
"""Samples the same few nodes' in-neighbours by edges of some types."""


def find_reads(stages: Stages, key: Key, node_type: str, hop: Hop) -> Reads:
    """Finds what a stage reads, by leaving out one thing after the other on a small mini-batch: what changes nothing is
    not read.

    Raises:
        Exception: what the model raises where nothing is left out.
    """
    invented = {
        (each, name): _Invented(rows, index)
        for index, each in enumerate(stages.keys[:-1])
        for name, rows in stages.gives(each).items()
    }
    everything = Reads(stored=frozenset(range(key.call)))
    whole = hop(None)
    wanted = stages.at(key, whole, node_type, everything, invented)

    def is_enough(reads: Reads, batch: MiniBatch = whole, *, exactly: bool = True) -> bool:
        try:
            with redirect_stderr(io.StringIO()), warnings.catch_warnings():  # torch.fx prints what it raises
                warnings.simplefilter("ignore")
                found = stages.at(key, batch, node_type, reads, invented)
        except Exception:  # whatever a model or its library raises where something is missing
            return False
        if exactly and found.is_floating_point():
            return torch.equal(found.nan_to_num(-1.5), wanted.nan_to_num(-1.5))
        return found.shape == wanted.shape and torch.allclose(
            found.double(), wanted.double(), rtol=1e-4, atol=1e-5, equal_nan=True
        )

    reads, names = everything, stages.batches.columns.present(whole)
    least = Reads(dict.fromkeys(names, ABSENT), frozenset({key.call - 1} if key.call else ()))
    if key.call and is_enough(least):
        reads = least
    else:
        for name in names:
            for blank in (ABSENT, BLANK):
                fewer = Reads({**reads.unread, name: blank}, reads.stored)
                if is_enough(fewer):
                    reads = fewer
                    break
    for number in sorted(reads.stored):
        fewer = Reads(reads.unread, reads.stored - {number})
        if is_enough(fewer):
            reads = fewer
    if key == stages.output:
        return reads
    if stages.types is not None:
        reads = _find_kinds(stages, reads, node_type, hop, is_enough)
    if not key.degrees and key.call not in stages.degrees_of:
        # Forms that would merge edges, or that know nothing of loops, differ here.
        odd = with_oddities(whole if reads.kinds is None else hop(reads.kinds))
        wanted = stages.at(key, odd, node_type, reads, invented)
        for form in convolution.FORMS:
            faster = Reads(reads.unread, reads.stored, reads.kinds, form)
            if is_enough(faster, odd, exactly=False):
                return faster
    return reads


def _find_kinds(stages: Stages, reads: Reads, node_type: str, hop: Hop, is_enough: Callable[..., bool]) -> Reads:
    types = stages.types
    assert types is not None
    kinds = types.slots_of(node_type)
    seen = set(edge_types(hop(None).blocks[0], stages.batches.columns.data.graph).tolist())
    for kind in [each for each in kinds if each in seen]:
        fewer = tuple(each for each in kinds if each != kind)
        if is_enough(reads, hop(fewer), exactly=False):
            kinds = fewer
    return Reads(reads.unread, reads.stored, kinds)
