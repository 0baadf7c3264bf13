"""``gnnload partition``: cuts a graph into parts, and says how good they are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from lightning_gnnload import GraphDataModule
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.trace import visit_counts
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.tables import OF_ALL_EDGES
from lightning_gnnload.datasets.folder import subclass_names
from lightning_gnnload.errors import GnnLoadError, PartitionError, PartReachError
from lightning_gnnload.host.machines import ENGINES
from lightning_gnnload.host.progress import shown_display
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.partition.cut import count_sampled_cross_edges
from lightning_gnnload.partition.figure import draw_quality
from lightning_gnnload.partition.partitioner import METHODS, Partitioner, partitioner
from lightning_gnnload.partition.quality import CacheRates, Quality
from lightning_gnnload.partition.report import findings, parts_table, stages_table
from lightning_gnnload.plugin.commands.arguments import (
    FANOUT,
    YOURS,
    Parser,
    fraction,
    parse_module,
    sampler_arguments,
    take_data,
)
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.partitions import load_partition
from lightning_gnnload.storage.targets import FIGURE, REPORT, check_target

MAX_BATCHES = 100
"""Of each part that are sampled to see what is cut: an epoch of most data sets, and enough of any."""
_OUT = Path("runs/partition")
_FURTHER = ("--data.", "--sampler.", "--method.")
_EPILOG = """
DATA: Debian, Synthetic, OGB, or package.module.Class of your own, their settings by --data.data.KEY; or the folder
of a graph. --hops is the sampler's reach where it is left out, so that each part samples its own seeds by
itself; 0 leaves each adjacency list with its owner alone, and ranks sample together. `gnnload partition report FOLDER`
prints the report of an existing partition again. The report is FOLDER/quality.json, its figure FOLDER/quality.png.
"""


def main(arguments: Sequence[str]) -> int:
    """Writes a partition of a graph, or says how good one is; returns the exit code."""
    console = Console()
    try:
        if list(arguments[:1]) == ["report"]:
            return _report_again(arguments[1:], console)
        return _partition(*_parse(arguments), console)
    except GnnLoadError as error:
        _print(console, f"gnnload partition: {type(error).__name__}: {error}")
        return 2
    except KeyboardInterrupt:
        _print(console, "gnnload partition: interrupted; nothing was written.")
        return 130


def _partition(options: argparse.Namespace, module: GraphDataModule, method: Partitioner, console: Console) -> int:
    check_target(options.out, "partition", overwrite=options.overwrite)
    hops = _hops(options, module)
    module.prepare_data()
    module.setup("fit")
    partition = partition_graph(
        module.graph_data,
        options.out,
        options.parts,
        method,
        hops=hops,
        phases=options.phases,
        seed=options.seed,
        features=not options.no_features,
        edge_columns=options.edge_columns,
        overwrite=options.overwrite,
        engine=options.engine,
    )
    quality = Quality.from_json(partition.report)
    try:
        if not options.quick:
            quality = _with_samples(quality, partition, module, options.cache_ratio)
    except KeyboardInterrupt:
        _print(console, f"gnnload partition: interrupted in sampling; the parts in {options.out} are whole.")
        return 130
    about = f"{partition.num_parts} part{'s' * (partition.num_parts > 1)} by {partition.method}, {_depth(partition)}"
    title = f"{about}, of {module.graph_data.graph!r}"
    report = {"title": title, "sampler": None if options.quick else repr(module.sampler), "quality": quality.to_json()}
    (options.out / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    draw_quality(quality, f"{about}\n{module.graph_data.graph!r}", options.out / FIGURE)
    _say(console, quality, partition, title)
    _print(console, f"Written: {options.out}, with {REPORT} and {FIGURE}. To train on it:")
    who = "trainer" if partition.is_self_reliant else "sampling rank"
    ranks = f"{partition.num_parts} {who}{'s' * (partition.num_parts > 1)}"
    _print(console, f'GraphDataModule(..., partition="{options.out}"), with {ranks}')
    if not partition.is_self_reliant:
        _print(
            console,
            f"or, on machines without the graph, GraphDataModule(\"{options.out}\", ..., graph='remote', "
            f"features='remote'), with owners: gnnload own {options.out}",
        )
    return 0


def _with_samples(quality: Quality, partition: Partition, module: GraphDataModule, ratio: float) -> Quality:
    """Adds what training's mini-batches cut, and what caches hit."""
    workload = module.workload("train")
    with _bar("Sampling across parts") as advance:
        sampled = count_sampled_cross_edges(
            workload.graph,
            partition.part_of(np.arange(partition.num_nodes)),
            workload.seeds,
            workload.sampler,
            batch_size=workload.batch_size,
            seed=workload.seed,
            max_batches=MAX_BATCHES,
            advance=advance,
        )
    if min(quality.seeds["train"]) == 0:  # disjoint parts: what one trainer visits is then not defined by its part
        return quality.with_samples(sampled, None)
    with _bar("Caching in parts") as advance:
        return quality.with_samples(sampled, cache_rates(workload, partition, ratio, advance=advance))


def _report_again(arguments: Sequence[str], console: Console) -> int:
    parser = Parser("gnnload partition report", description="Prints the report of a partition again.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a partition")
    parser.add_argument("--verify", action="store_true", help="read all of it, and compare checksums")
    options = parser.parse_args(arguments)
    partition = load_partition(options.folder, verify=options.verify)
    file = options.folder / REPORT
    try:
        written: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"quality": partition.report}
        quality = Quality.from_json(written["quality"])
    except (ValueError, KeyError, TypeError) as error:
        raise PartitionError(
            f"{file} is no report ({error}). Remove it; the parts' manifest has one as well."
        ) from None
    _say(console, quality, partition, written.get("title", repr(partition)))
    return 0


def _say(console: Console, quality: Quality, partition: Partition, title: str) -> None:
    console.print(parts_table(quality, title))
    for line in findings(quality, self_reliant=partition.is_self_reliant):
        console.print(line, markup=False, highlight=False)
    console.print(stages_table(quality))


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _depth(partition: Partition) -> str:
    return f"hops={partition.hops}" if partition.is_self_reliant else "each list with its owner"


def _hops(options: argparse.Namespace, module: GraphDataModule) -> int:
    """The hops that parts have around their seeds: the option's, if samplers find there what they read."""
    samplers = [module.sampler, *([module.eval_sampler] if set(options.phases) - {"train"} else [])]
    # Parts of 0 hops contain no neighbourhood that could be too small for a sampler.
    if options.hops is not None and options.hops <= 0:
        return int(options.hops)
    for sampler in samplers:
        if sampler.reach is None:
            raise PartReachError(
                f"{sampler!r} reads the whole graph, or does not say how many hops (Sampler.reach). Give another "
                f"--sampler, or --hops 0 for parts that are sampled together."
            )
        if options.hops is not None and options.hops < sampler.reach:
            raise PartReachError(
                f"{sampler!r} reads {sampler.reach} hops, but --hops {options.hops} asks for fewer. Give --hops "
                f"{sampler.reach}, or leave it out."
            )
    return max(sampler.reach or 0 for sampler in samplers) if options.hops is None else int(options.hops)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float], object]]:
    console = Console(stderr=True)
    with shown_display(Progress(console=console, transient=True, disable=not console.is_terminal)) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda share_done: bars.update(task, completed=share_done)


# Arguments.


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, GraphDataModule, Partitioner]:
    parser = _parser()
    remaining = list(arguments)
    data = take_data(remaining, parser)
    options, rest = parser.parse_known_args(remaining)
    _check_further(rest, parser)
    if options.parts is None:  # after what is unknown, for that may be what it was meant to be
        parser.error("give --parts K: one part a trainer, or one a sampler rank")
    settings = [f"--data.{text[2:]}" if text.startswith("--sampler.") else text for text in rest]
    names_data = any(text.startswith("--data.data") for text in settings)
    if not data and options.config is None and not names_data:
        parser.error("give DATA first: Debian, Synthetic, OGB, the folder of a graph; or --config FILE")
    chosen = [*data, *_method_arguments(options, parser)]
    chosen += _sampler_arguments(options, settings, parser)
    # A configuration may name the partition that is to be made here.
    objects = parse_module(parser, options.config, [*chosen, *settings, "--data.partition", "null"], method=Partitioner)
    return options, objects.data, objects.method


def _check_further(rest: Sequence[str], parser: argparse.ArgumentParser) -> None:
    if rest and not rest[0].startswith(_FURTHER):
        parser.error(f"unknown: {rest[0]}")
    strangers = [text for text in rest if text.startswith("--") and not text.startswith(_FURTHER)]
    if strangers:
        parser.error(f"unknown: {' '.join(strangers)}")


def _sampler_arguments(
    options: argparse.Namespace, settings: Sequence[str], parser: argparse.ArgumentParser
) -> list[str]:
    if options.sampler is not None:
        if "." not in options.sampler and options.sampler not in subclass_names(Sampler):
            parser.error(
                f"--sampler {options.sampler}: there is no such sampler. Give NeighborSampler, say, or {YOURS}"
            )
        return ["--data.sampler", options.sampler]
    return sampler_arguments(settings, options.config, max(options.hops or 2, 1))


def _method_arguments(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Adds the method by its class, so that its settings may follow: ``--method.tolerance 0.1``."""
    if options.method in METHODS:
        method_class = type(partitioner(options.method))
        return ["--method", f"{method_class.__module__}.{method_class.__qualname__}"]
    if "." not in options.method:
        parser.error(f"--method {options.method}: give one of {', '.join(METHODS)}, or {YOURS}")
    return ["--method", options.method]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "gnnload partition",
        usage="%(prog)s DATA --parts K [--method NAME] [--hops L] [options]\n       %(prog)s report FOLDER",
        description=__doc__,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--parts", type=int, metavar="K", help="one a trainer, or one a sampler rank")
    parser.add_argument(
        "--method", default="self-reliant", metavar="NAME", help=f"{', '.join(METHODS)}; first is default"
    )
    parser.add_argument("--method.KEY", metavar="VALUE", help="a setting of the method")
    parser.add_argument("--hops", type=int, metavar="L", help="that each part holds of its seeds")
    parser.add_argument("--phases", nargs="+", choices=SPLITS, default=["train"], help="whose seeds parts hold")
    parser.add_argument("--sampler", metavar="CLASS", help=f"default NeighborSampler of fanouts {FANOUT}, {FANOUT}")
    parser.add_argument(
        "--sampler.KEY", metavar="VALUE", help="a setting of the sampler, --sampler.fanouts [15,10] say"
    )
    parser.add_argument("--config", type=Path, metavar="YAML", help="a configuration of gnnload fit, instead of DATA")
    parser.add_argument("--data.KEY", metavar="VALUE", help="a setting of GraphDataModule; --data.data.KEY of DATA")
    parser.add_argument("--seed", type=int, default=0, help="of what the method draws")
    parser.add_argument("--no-features", action="store_true", help="write topology alone")
    parser.add_argument(
        "--edge-columns",
        nargs="+",
        default=(),
        choices=OF_ALL_EDGES,
        help="columns of the graph that mini-batches are to carry where no graph is",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/partition"), metavar="FOLDER", help="default runs/partition"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a partition that is there")
    parser.add_argument(
        "--cache-ratio", type=fraction, default=0.1, metavar="SHARE", help="of rows to cache; default 0.1"
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="local", help="ray: parts are written by the machines of a Ray cluster"
    )
    parser.add_argument("--quick", action="store_true", help="sample nothing: no cut of mini-batches, no hit rates")
    return parser


POLICY = "presample"


def cache_rates(
    workload: Workload, partition: Partition, ratio: float, *, advance: Callable[[float], object] = lambda share: None
) -> CacheRates:
    """Measures hit rates over one epoch of the parts' own caches, and of one cache for the trainers of all parts
    together, each of ``ratio`` of all rows. Four epochs are sampled: for each of the two, one to rank rows by, and the
    measured one.

    Source: PaGraph (TPDS'21), section 5.5, figure 17a: "PaGraph" and "DGL+Cache".
    """
    # 0.29 of 100 is 28.999... in floats.
    num_places = int(ratio * partition.num_nodes + 1e-9)
    by_part = []
    for part in partition.parts:
        by_part.append(_hit_rate(_of(workload, part.seeds["train"], num_ranks=1), num_places))
        advance(len(by_part) / (2 * partition.num_parts))
    shared = _hit_rate(_of(workload, workload.seeds, num_ranks=partition.num_parts), num_places)
    advance(1.0)
    return CacheRates(ratio, POLICY, by_part, shared)


def _of(workload: Workload, seeds: Sequence[int] | np.ndarray, num_ranks: int) -> Workload:
    changed = {"seeds": np.asarray(seeds), "num_ranks": num_ranks, "order": Shuffled(), "drop_last": False}
    return Workload(**{**workload.settings(), **changed})


def _hit_rate(workload: Workload, num_places: int) -> float:
    hotness = policy_named(POLICY, progress=False).hotness(workload, 0)
    visits = visit_counts(workload, [0], progress=False)
    cached = hottest(hotness, workload.graph.num_nodes, num_places)
    return float(visits[cached].sum() / max(visits.sum(), 1))
