"""``gnnload conform``: a sampler of your own, checked against the contract and the law by which it should draw."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from lightning_gnnload.conform.case import Promise
from lightning_gnnload.conform.contract import contract_report, violation_text
from lightning_gnnload.conform.draw import sampler_draw
from lightning_gnnload.conform.graphs import example_graphs, timed_graphs, typed_graphs
from lightning_gnnload.conform.suites import FAMILY_ERROR, LAWS, CheckResult, run, suite
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import GnnLoadError, SamplerConfigError
from lightning_gnnload.plugin.commands.arguments import Parser
from lightning_gnnload.sample.base import Sampler

_EPILOG = f"""
p is the probability of so large a deviation, approximately, times the settings of the check: for reading. bound is
proven to be no less, for any number of trials, and decides: a correct sampler fails with a probability of at most
{FAMILY_ERROR:g}. The exit status is 1 if a check fails. Seeds are fixed. This package's samplers, and those of DGL and
PyG, are examined from a checkout of its repository: python -m tests.laws --peers
"""


def main(arguments: Sequence[str]) -> int:
    """Checks a sampler, and says where it deviates; returns the exit code."""
    parser = Parser("gnnload conform", description=__doc__, epilog=_EPILOG)
    add_sampler_options(parser, is_required=True)
    options, console = parser.parse_args(arguments), Console()
    try:
        sampler_class, sampler, promise = sampler_of(options)
        kinds = graphs_for(sampler)
        if options.law and "" not in kinds:
            raise SamplerConfigError(
                f"--law: draws are counted in graphs without types and times, which {sampler!r} "
                f"refuses. Give settings that take them, or leave --law out."
            )
        passed = []
        for suffix, graphs in kinds.items():
            console.print(f"{sampler_class.__name__}{suffix}", style="bold", markup=False)
            passed.append(_keeps_contract(sampler, graphs, promise, console))
        if options.law:
            draw = sampler_draw(partial(sampler_class, **options.args))
            console.print(f"{sampler_class.__name__}: {options.law}", style="bold", markup=False)
            passed += [_passes(result, console) for result in run(draw, suite(options.law, quick=options.quick))]
    except GnnLoadError as error:
        console.print(f"gnnload conform: {type(error).__name__}: {error}", markup=False)
        return 2
    console.print(f"{sum(passed)} of {len(passed)} checks pass.")
    return 0 if all(passed) else 1


def add_sampler_options(parser: Any, *, is_required: bool = False) -> None:
    """Adds the options that describe a user's sampler, and how thoroughly it is examined."""
    parser.add_argument(
        "--sampler",
        metavar="CLASS",
        required=is_required,
        help="package.module.Class of your own; looked for in the current folder, too",
    )
    parser.add_argument("--fanouts", type=int, nargs="+", default=[], help="its first argument, if it takes any")
    parser.add_argument("--args", type=_json_object, default={}, metavar="JSON", help="its other arguments, an object")
    parser.add_argument(
        "--promise", type=_json_object, default={}, metavar="JSON", help="fields of lightning_gnnload.conform.Promise"
    )
    laws = ", ".join(f'"{law}"' for law in LAWS)
    parser.add_argument(
        "--law", choices=LAWS, metavar="LAW", help=f"how it draws, for any fanouts: {laws}; without it, no statistics"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")


def sampler_of(options: argparse.Namespace) -> tuple[type[Sampler], Sampler, Promise]:
    """Makes the sampler that the options describe. Raises SamplerConfigError: no such class, or arguments that do not
    fit."""
    path: str = options.sampler
    module, _, name = path.rpartition(".")
    try:
        sampler_class = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SamplerConfigError(
            f"--sampler {path}: no such class ({error}). Give package.module.Class, importable from this folder."
        ) from error
    try:
        sampler = sampler_class(*([options.fanouts] if options.fanouts else []), **options.args)
        promise = Promise(**options.promise)
    except TypeError as error:
        raise SamplerConfigError(f"--args or --promise do not fit: {error}.") from error
    if not isinstance(sampler, Sampler):
        raise SamplerConfigError(f"--sampler {path}: {name} is no subclass of lightning_gnnload.Sampler.")
    return sampler_class, sampler, promise


def graphs_for(sampler: Sampler) -> dict[str, Mapping[str, Graph]]:
    """The example graphs that a sampler is examined on, by what follows its name: "", ", by type", ", by time". With
    types if it has ``sharing``, with times if it has ``before``, unless it refuses them."""
    typed = hasattr(sampler, "sharing") and _takes(sampler, typed_graphs())
    timed = getattr(sampler, "before", None) is not None and _takes(sampler, timed_graphs())
    plain = not (typed or timed) or _takes(sampler, example_graphs())
    every = {"": (plain, example_graphs), ", by type": (typed, typed_graphs), ", by time": (timed, timed_graphs)}
    return {suffix: graphs() for suffix, (is_one, graphs) in every.items() if is_one}


def _takes(sampler: Sampler, graphs: Mapping[str, Graph]) -> bool:
    """Whether the sampler takes such graphs; a subclass may refuse those of its base class."""
    graph = list(graphs.values())[-1]
    try:
        sampler.sample(graph, [0], times=None if graph.clock is None else np.array([10**6]))
    except SamplerConfigError:
        return False
    except Exception:  # which the contract's check reports
        return True
    return True


def _keeps_contract(sampler: Sampler, graphs: Mapping[str, Graph], promise: Promise, console: Console) -> bool:
    report = contract_report(sampler, graphs, promise=promise)
    console.print(str(report), markup=False, highlight=False)
    if report.broken is not None:
        console.print(f"FAILS: {violation_text(report.broken)}", style="red", markup=False)
    return report.passed


def _passes(result: CheckResult, console: Console) -> bool:
    chance = "" if result.exact else f", p {result.chance.p:.2g}, bound {result.chance.bound:.2g}"
    line = f"{result.name}: {'passes' if result.passed else 'FAILS'} ({result.num_trials:,} choices{chance})"
    console.print(line, style="" if result.passed else "red", markup=False, highlight=False)
    if not result.passed:
        console.print(f"  {result.hypothesis} But {result.worst.setting}: {result.worst.worst}", markup=False)
    return result.passed


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, such as '{{\"k\": 2}}'")
    return value
