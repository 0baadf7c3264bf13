"""The contract that any sampler must keep, and its check, property by property."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightning_gnnload.conform.arenas import ARENA_PROPERTIES
from lightning_gnnload.conform.case import Case, CaseError, Promise, PropertyViolation, on
from lightning_gnnload.conform.graphs import example_graphs
from lightning_gnnload.conform.purity import PURITY_PROPERTIES, SamplerProperty
from lightning_gnnload.conform.rows import time_of_codes
from lightning_gnnload.conform.structure import BATCH_PROPERTIES, samples
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import Sampler

Graphs = Graph | Mapping[str, Graph]  # one graph, or several by name
_MAX_SEEDS = 200  # the checks compare in Python, node by node


@dataclass(frozen=True)
class Violation:
    """Describes how a property is violated, and on which case.

    Attributes:
        case: the input that shows it.
        expected: what should be.
        found: what is.
        cause: the exception, where one was raised.
    """

    case: str
    expected: str
    found: str
    cause: BaseException | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PropertyResult:
    """Holds the result of checking one property of the contract.

    Attributes:
        name: for example "seeds first".
        statement: what holds, in one line.
        remedy: what to look at where it does not.
        num_cases: inputs it was tried on; 0 where it was not reached.
        violation: the first input that breaks it; None where it holds.
    """

    name: str
    statement: str
    remedy: str
    num_cases: int
    violation: Violation | None = None


@dataclass(frozen=True)
class ContractReport:
    """Holds the result of checking a sampler against every property of the contract."""

    sampler: str
    properties: list[PropertyResult]

    @property
    def passed(self) -> bool:
        return self.broken is None

    @property
    def broken(self) -> PropertyResult | None:
        """Returns the first property that does not hold."""
        return next((result for result in self.properties if result.violation is not None), None)

    def __str__(self) -> str:
        lines = [f"{self.sampler}: {'keeps' if self.passed else 'breaks'} its contract"]
        for result in self.properties:
            holds = f"holds in {result.num_cases} cases" if result.num_cases else "not reached"
            lines.append(f"  {result.name}: {'BROKEN' if result.violation else holds}")
        return "\n".join(lines)


def check_sampler(sampler: Sampler, graphs: Graphs | None = None, *, promise: Promise | None = None) -> None:
    """Checks a sampler against the contract, for use in a test.

    Args:
        sampler: the sampler, with settings that leave it a choice: hubs of degree 500 are among the graphs.
        graphs: a graph, or several by name; None for :func:`example_graphs`. Among your own must be nodes with
            more neighbours than the sampler takes, where it promises to be random.
        promise: what the sampler says of its batches.

    Raises:
        ConformanceError: names the first broken property, the input that shows it, what was expected and found.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> check_sampler(NeighborSampler([5, 3]), promise=Promise(max_in_degree=[5, 3]))
    """
    for result in _results(sampler, graphs, promise):
        if result.violation is not None:
            raise ConformanceError(
                f"{sampler!r} breaks its contract, {violation_text(result)}"
            ) from result.violation.cause


def contract_report(
    sampler: Sampler, graphs: Graphs | None = None, *, promise: Promise | None = None
) -> ContractReport:
    """Checks every property of the contract, each with a verdict. The arguments are those of :func:`check_sampler`.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> contract_report(NeighborSampler([5])).passed
        True
    """
    return ContractReport(repr(sampler), list(_results(sampler, graphs, promise)))


def violation_text(broken: PropertyResult) -> str:
    """Describes a broken property in words."""
    assert broken.violation is not None
    case, expected, actual = broken.violation.case, broken.violation.expected, broken.violation.found
    return f"{broken.name!r}: {broken.statement}. On {case}: expected {expected}; found {actual}. {broken.remedy}"


def _results(sampler: Sampler, graphs: Graphs | None, promise: Promise | None) -> Iterator[PropertyResult]:
    if graphs is None:
        graphs = example_graphs()
    named = {"yours": graphs} if isinstance(graphs, Graph) else graphs
    by_graph = [_cases(sampler, name, graph, promise or Promise()) for name, graph in named.items()]
    batch_results = _judge_batches(sampler, [case for cases in by_graph for case in cases])
    yield from batch_results
    # Batches that are unsound by themselves need not be compared. One case a graph is enough for that.
    sound = all(result.violation is None for result in batch_results)
    compared = [cases[-1] for cases in by_graph]
    for check in (*PURITY_PROPERTIES, *ARENA_PROPERTIES):
        yield _judge(check, sampler, compared) if sound else _result(check, 0, None)


def _cases(sampler: Sampler, name: str, graph: Graph, promise: Promise) -> list[Case]:
    """Makes cases from no seeds to all of a small graph's; the last one has several, in no order."""
    nodes = np.random.default_rng(0).permutation(graph.num_nodes)[:_MAX_SEEDS]
    times = None
    if graph.clock is not None and getattr(sampler, "before", "<=") is not None:
        # Nodes recur, at other times; the first row comes after everything, the last before.
        late = _some_times(graph, len(nodes))
        times = np.concatenate([late, late[::3] + 1, late.min(keepdims=True) - 10**6])
        nodes = np.concatenate([nodes, nodes[::3], nodes[:1]])
    names = None if times is None else 1000 + 7 * np.arange(len(nodes))
    whole = Case(name, graph, nodes, DrawKey(seed=5, epoch=0, step=0), promise, times, names)
    counts = [0, 1, len(nodes), -(-len(nodes) // 2)]
    return [
        replace(whole.at(range(count)), key=DrawKey(seed=5, epoch=number, step=17 * number))
        for number, count in enumerate(counts)
    ]


def _some_times(graph: Graph, count: int) -> np.ndarray:
    """Draws times of the graph's, ``[count]``, first the last one."""
    assert graph.clock is not None
    codes = np.zeros(1, np.uint32) if graph.edge_time is None or not graph.num_edges else graph.edge_time
    times = time_of_codes(graph.clock, np.random.default_rng(1).integers(0, int(codes.max()) + 1, count))
    times[0] = time_of_codes(graph.clock, codes.max(keepdims=True))[0]
    return times


def _judge_batches(sampler: Sampler, cases: Sequence[Case]) -> list[PropertyResult]:
    """Checks properties of single batches; of one batch, none is tried after the first that does not hold."""
    num_cases = dict.fromkeys(BATCH_PROPERTIES, 0)
    violations: dict[Callable[..., None], Violation] = {}
    for case in cases:
        # What is tried when an error is raised: until there is a batch, that it can be sampled at all.
        check: Callable[..., None] = samples
        try:
            with on(case):
                batch = case.sample(sampler)
                for check in BATCH_PROPERTIES:
                    num_cases[check] += 1
                    check(sampler, case, batch)
        except CaseError as error:
            violations.setdefault(check, _violation(error))
    return [_result(check, num_cases[check], violations.get(check)) for check in BATCH_PROPERTIES]


def _judge(check: SamplerProperty, sampler: Sampler, cases: Sequence[Case]) -> PropertyResult:
    violation = None
    try:
        check(sampler, cases)
    except CaseError as error:
        violation = _violation(error)
    return _result(check, len(cases), violation)


def _violation(error: CaseError) -> Violation:
    cause = error.__cause__
    if isinstance(cause, PropertyViolation):
        return Violation(str(error.case), cause.expected, cause.actual)
    return Violation(str(error.case), "no exception", repr(cause), cause)


def _result(check: Callable[..., Any], num_cases: int, violation: Violation | None) -> PropertyResult:
    # A property's docstring is its text in reports: the statement in the first line, the remedy in the rest.
    statement, _, remedy = (check.__doc__ or "").partition("\n")
    return PropertyResult(check.__name__.replace("_", " "), statement, " ".join(remedy.split()), num_cases, violation)
