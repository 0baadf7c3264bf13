"""``gnnload cache``: how each policy would do on the user's graph and sampler, before any training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain

import numpy as np
from rich.console import Console
from rich.table import Table

from lightning_gnnload import GraphDataModule
from lightning_gnnload.cache.advice import Advice, Speed, measure_speed, recommend
from lightning_gnnload.cache.budget import AUTO_SHARE, free_bytes
from lightning_gnnload.cache.figure import draw_curves
from lightning_gnnload.cache.reuse import LAST, Reuse, reuse
from lightning_gnnload.cache.simulate import AccessTrace, HitRateCurve, evicting_curves, static_curves
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.shuffling import count
from lightning_gnnload.errors import CacheConfigError, GnnLoadError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.plugin.commands.arguments import (
    FANOUT,
    at_least,
    data_parser,
    fraction,
    output_folder,
    parse_data,
)
from lightning_gnnload.plugin.commands.order import NO_CLASSES, choice_of
from lightning_gnnload.sample.workload import Workload

RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_BEHIND = 0.1  # of the rows, in the cache before what a mini-batch shares with the last one
_EPILOG = f"""
DATA: Debian, Synthetic, OGB, package.module.Class of your own, or the folder of a graph. Where no sampler is given, it
is a NeighborSampler of fanouts {FANOUT}, {FANOUT}.
The first recorded epoch warms up caches that admit and evict; all are measured on the others. optimum: the rows that
these visit most, which no cache that is filled once can beat. belady: the optimum of caches that evict.
Results go to FOLDER/cache.json and FOLDER/cache.png.
"""


def main(arguments: Sequence[str]) -> int:
    """Compares policies on a graph; returns the exit code."""
    console = Console()
    try:
        options, module = _parse(arguments)
        module.prepare_data()
        module.setup("fit")
        return _examine(options, module, console)
    except GnnLoadError as error:
        console.print(f"gnnload cache: {type(error).__name__}: {error}", markup=False, soft_wrap=True)
        return 2


def _examine(options: argparse.Namespace, module: GraphDataModule, console: Console) -> int:
    stores = module.graph_data.stores
    store = stores.get(options.table)
    if store is None:
        raise CacheConfigError(
            f"there are no features {options.table!r} to be cached; --table names one of {sorted(stores)}."
        )
    workload = module.workload("train")
    if store.shape[0] != workload.graph.num_nodes:
        raise CacheConfigError(f"table {options.table!r} has rows for some nodes only; give --table x, or one for all.")
    workload = Workload(**{**workload.settings(), "num_ranks": options.trainers})
    usual = _title(workload)
    orders = {usual: workload}
    if not options.one_order and usual != "proximity":
        orders |= _by_proximity(workload, console)
    curves: list[HitRateCurve] = []
    left_out: list[str] = []
    reused: dict[str, Reuse] = {}
    speed: Speed | None = None
    for order, ordered in orders.items():
        trace = _record(ordered, options.epochs, f"Sampling, {order}", console)
        # Once: the order changes which rows are read, not how fast.
        speed = speed or measure_speed(store, trace)
        rules = evicting_curves(trace, options.ratios, order)
        static = static_curves(trace, options.ratios, order, left_out.append)
        with progress(f"Caching, {order}", None) as advance:
            for curve in chain(static, rules) if order == usual else rules:
                curves.append(curve)
                advance(1)
            visits = np.bincount(np.concatenate(trace.epochs[0]), minlength=trace.num_nodes)
            reused[order] = reuse(trace, visits, _BEHIND)
        # A trace may take gigabytes: it is to be gone before the next one is recorded.
        del trace, static, rules
    assert speed is not None
    most = AUTO_SHARE * free_bytes() / max(store.shape[0] * store.row_bytes, 1)
    advice = recommend(curves, options.ratios, most, speed, usual)
    for text in left_out:
        console.print(f"left out: {text}", markup=False, soft_wrap=True)
    _say(console, curves, options.ratios, store, list(orders))
    _say_reused(console, reused)
    settings = (
        "no cache" if advice.policy is None else f'FeatureCache(policy="{advice.policy}", ratio={advice.ratio:.3g})'
    )
    console.print(f"Recommended: {settings}: {advice.reason}", markup=False)
    _write(options, curves, reused, store, speed, advice, f"{module.graph_data.graph!r}, {workload.sampler!r}")
    console.print(f"Written: {options.out / 'cache.json'}, {options.out / 'cache.png'}", markup=False)
    return 0


def _by_proximity(workload: Workload, console: Console) -> dict[str, Workload]:
    """The workload in an order by proximity, by its name. Where ``order="proximity"`` would shuffle, the name says so,
    and the number of sequences is the one that was not worth it."""
    choice = choice_of(workload)
    console.print(f"order='proximity': {choice or NO_CLASSES}", markup=False, highlight=False)
    if choice is None or choice.sequences is None:
        return {}
    name = "proximity" if choice.worth is not None else f"{count(choice.sequences)}, where 'proximity' shuffles"
    return {name: Workload(**{**workload.settings(), "order": ProximityOrder(choice.sequences)})}


def _record(workload: Workload, num_epochs: int, title: str, console: Console) -> AccessTrace:
    total = num_epochs * workload.num_ranks * workload.plan(workload.num_ranks).num_steps
    with progress(title, total) as advance:
        trace = AccessTrace(workload, num_epochs, advance=advance)
    if trace.is_cut:
        console.print(f"The first {trace.num_steps} steps of each epoch are recorded; memory has no room for more.")
    return trace


def _say(
    console: Console,
    curves: Sequence[HitRateCurve],
    ratios: Sequence[float],
    store: FeatureStore,
    orders: Sequence[str],
) -> None:
    title = f"Hit rate, %, of a cache that holds a share of {store.shape[0]:,} rows of {store.row_bytes} bytes"
    for order in orders:
        table = Table(title=f"{title}; order of seeds: {order}")
        for column in ("policy", *(f"{ratio:.3g}" for ratio in ratios), "ranking, s"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for curve in sorted((c for c in curves if c.order == order), key=lambda curve: -sum(curve.hit_rates)):
            cells = [f"{100 * rate:.1f}" for rate in curve.hit_rates]
            table.add_row(curve.name, *cells, f"{curve.prepare_s:.2f}" if curve.prepare_s else "")
        console.print(table)


def _say_reused(console: Console, reused: Mapping[str, Reuse]) -> None:
    table = Table(
        title=f"Memory for a mini-batch's rows more, behind a cache of {_BEHIND:.0%}: misses that it saves, %"
    )
    for column in ("use of the memory", *reused):
        table.add_column(column, justify="right" if column in reused else "left")
    by_order = list(reused.values())
    for use in by_order[0].saved:
        table.add_row(use, *(f"{100 * uses.saved[use]:.1f}" for uses in by_order))
    table.add_section()
    table.add_row("the memory, % of the rows", *(f"{100 * uses.more:.1f}" for uses in by_order))
    console.print(table)
    for order, uses in reused.items():
        saved = f"the last mini-batch had {uses.saved[LAST]:.0%} of the missed rows"
        best = f"as much memory saves most as {uses.best}, {uses.saved[uses.best]:.0%}"
        console.print(f"{order}: {saved}; {best}.", markup=False, highlight=False)


def _write(
    options: argparse.Namespace,
    curves: Sequence[HitRateCurve],
    reused: Mapping[str, Reuse],
    store: FeatureStore,
    speed: Speed,
    advice: Advice,
    title: str,
) -> None:
    written = {
        "table": {"name": options.table, "rows": store.shape[0], "row_bytes": store.row_bytes},
        "what": title,
        "epochs_measured": options.epochs - 1,
        "ratios": list(options.ratios),
        "curves": [asdict(curve) for curve in curves],
        "reused": {order: asdict(uses) for order, uses in reused.items()},
        "speed": asdict(speed),
        "advice": asdict(advice),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cache.json").write_text(json.dumps(written, indent=1) + "\n")
    draw_curves(curves, options.ratios, store.row_bytes, title, options.out / "cache.png")


# Arguments.


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, GraphDataModule]:
    parser = data_parser("gnnload cache", __doc__, _EPILOG)
    parser.add_argument("--ratios", type=fraction, nargs="+", default=RATIOS, help="sizes, as shares of all rows")
    parser.add_argument(
        "--epochs", type=at_least(2), default=3, help="to record, the first of them to warm up; default 3"
    )
    parser.add_argument("--table", default="x", metavar="NAME", help="whose rows are cached; default x")
    parser.add_argument("--one-order", action="store_true", help="leave out the proximity-aware order of seeds")
    parser.add_argument("--out", type=output_folder, default="runs/cache", metavar="FOLDER", help="default runs/cache")
    options, module = parse_data(parser, arguments)
    options.ratios = sorted(set(options.ratios))
    return options, module


def _title(workload: Workload) -> str:
    return {"Shuffled": "shuffle", "Sequential": "sequential", "ProximityOrder": "proximity"}.get(
        type(workload.order).__name__, "your order"
    )
