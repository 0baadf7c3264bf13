"""Case: one mini-batch to ask a sampler for, what the sampler promises of it, and the errors of a broken promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.rows import NodeSeeds


@dataclass(frozen=True)
class Promise:
    """A promise says what a sampler's batches keep beyond the contract that every sampler keeps.

    Attributes:
        random: other seeds, epochs and steps draw other neighbours, where a node has many.
        edges_exist: every edge of a block is an edge of the graph. Not so where a block joins nodes that a walk
            met, or layers that were drawn as wholes.
        distinct_edges: no edge of the graph stands twice in a block. Not so with replacement.
        max_in_degree: the most edges of one destination, nearest hop first, -1 where all may come; None where the
            sampler says nothing of it. With ``expand="new"`` a block holds the edges of the hops before, too. In a
            graph with types, as many of each edge type.
        alone: a destination draws what it would draw in any other company.
    """

    random: bool = True
    edges_exist: bool = True
    distinct_edges: bool = True
    max_in_degree: Sequence[int] | None = None
    alone: bool = False


@dataclass(frozen=True)
class Case:
    """Holds the arguments of a call of :meth:`.Sampler.sample`, and what the sampler promises of the result."""

    graph_name: str
    graph: Graph
    seeds: np.ndarray  # int64 [S]
    key: DrawKey
    promise: Promise
    times: np.ndarray | None = None  # of the seeds, [S], in a graph with times
    names: np.ndarray | None = None  # int64 [S], by which rows draw that share no nodes; None: the seeds' ids

    def sample(self, sampler: Sampler, key: DrawKey | None = None) -> MiniBatch:
        """Samples the batch, under another key where one is given; raises CaseError where the sampler raises."""
        key = key or self.key
        with on(self):
            # A copy, so that a sampler that writes to its seeds spoils no other check.
            arguments = {name: rows for name, rows in (("times", self.times), ("rows", self.names)) if rows is not None}
            return sampler.sample(self.graph, self.seeds.copy(), key.seed, key.epoch, key.step, **arguments)

    def draw_into(self, sampler: Sampler, arena: np.ndarray) -> SampleLayout:
        """Samples the same batch into an arena."""
        nodes, names = self.rows_for(sampler), self.seeds if self.names is None else self.names
        draw = nodes.ask(nodes.rows, self.key, names=names).draw
        return sampler.draw(self.graph, draw._replace(seeds=self.seeds.copy()), arena)

    def rows_for(self, sampler: Sampler) -> NodeSeeds:
        """Returns how these seeds are asked for by the sampler's settings."""
        return NodeSeeds(
            self.graph, sampler, self.seeds if self.times is None else SeedTable(self.seeds, time=self.times)
        )

    def at(self, positions: Sequence[int]) -> Case:
        """Returns the case of some of the seeds alone."""
        columns = {name: getattr(self, name) for name in ("seeds", "times", "names")}
        return replace(
            self, **{name: column[list(positions)] for name, column in columns.items() if column is not None}
        )

    def __str__(self) -> str:
        key, times = self.key, "" if self.times is None else f"times {excerpt(self.times)}, "
        return (
            f"graph {self.graph_name!r} ({self.graph.num_nodes} nodes, {self.graph.num_edges} edges), "
            f"seeds {excerpt(self.seeds)}, {times}seed={key.seed}, epoch={key.epoch}, step={key.step}"
        )


def along_paths(sampler: Sampler, case: Case) -> bool:
    """Returns whether a node's edges are bounded by the time of the edge that found it."""
    return case.times is not None and getattr(sampler, "order", "root") == "path"


class PropertyViolation(Exception):  # noqa: N818  the finding of a check, reported as a Violation
    """A check raises this where a property does not hold: what should be, and what is."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(expected, actual)
        self.expected, self.actual = expected, actual


class CaseError(Exception):
    """Wraps an error with the case on which it came to light."""

    def __init__(self, case: Case) -> None:
        super().__init__(str(case))
        self.case = case


@contextmanager
def on(case: Case) -> Iterator[None]:
    """Raises CaseError from whatever is raised inside."""
    try:
        yield
    except CaseError:
        raise
    except Exception as error:
        raise CaseError(case) from error


def expect(holds: Any, expected: str, actual: str) -> None:
    """Raises PropertyViolation unless it holds."""
    if not holds:
        raise PropertyViolation(expected, actual)


def expect_same(expected: MiniBatch, actual: MiniBatch, when: str) -> None:
    """Raises PropertyViolation where the two differ in any tensor; ``when`` says how the second came about."""
    expect(len(actual.blocks) == len(expected.blocks), f"{len(expected.blocks)} blocks", f"{len(actual.blocks)} {when}")
    _expect_same_tensors("", expected, actual, when)
    for number, blocks in enumerate(zip(expected.blocks, actual.blocks, strict=True)):
        _expect_same_tensors(f"blocks[{number}].", *blocks, when)


def excerpt(values: np.ndarray | torch.Tensor) -> str:
    """Formats the first few values."""
    first = ", ".join(str(value) for value in values[:8].tolist())
    return f"[{first}{', ...' if len(values) > 8 else ''}]"


def _expect_same_tensors(prefix: str, expected: MiniBatch | Block, actual: MiniBatch | Block, when: str) -> None:
    for field in fields(expected):
        if field.name == "blocks":
            continue
        first, second = getattr(expected, field.name), getattr(actual, field.name)
        if not (torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second):
            texts = [excerpt(value) if isinstance(value, torch.Tensor) else str(value) for value in (first, second)]
            raise PropertyViolation(f"{prefix}{field.name} = {texts[0]}", f"{texts[1]} {when}")
