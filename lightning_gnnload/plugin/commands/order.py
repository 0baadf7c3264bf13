"""``gnnload order``: what orders of seeds by proximity would save and cost on the user's graph, before any training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from operator import attrgetter

import torch
from rich.console import Console
from rich.table import Table

from lightning_gnnload import GraphDataModule, ops
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.data.orders.figure import OrderTrial, draw_orders
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.reads import CACHE_RATIO, EVICTION, cache_reads, enough_batches
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.orders.sequences import breadth_first_ring
from lightning_gnnload.data.orders.shuffling import (
    CHOICE_SEED,
    LEAST_SAVED,
    MOST_EXCESS,
    Choice,
    are_classes,
    choose_sequences,
    mean_distance,
)
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.plugin.commands.arguments import (
    FANOUT,
    at_least,
    data_parser,
    fraction,
    output_folder,
    parse_data,
)
from lightning_gnnload.sample.workload import Workload

NO_CLASSES = "it chooses by integer labels [N] of nodes, which are not there; give a number."
NUMBERS = tuple(2**power for power in range(10))
_EPILOG = f"""
DATA: Debian, Synthetic, OGB, package.module.Class of your own, or the folder of a graph. Where no sampler is given, it
is a NeighborSampler of fanouts {FANOUT}, {FANOUT}.
Mini-batches of each order are sampled: half of them fill the cache, the others are counted. missed: rows that the cache
does not have, of a shuffle's. labels: how far those of a mini-batch are from those of all seeds. The row marked default
is what order='proximity' takes. Results go to FOLDER/order.json and FOLDER/order.png.
"""


def main(arguments: Sequence[str]) -> int:
    """Compares orders of seeds on a graph; returns the exit code."""
    console = Console()
    try:
        options, module = _parse(arguments)
        module.prepare_data()
        module.setup("fit")
        return _examine(options, module.workload("train"), console)
    except GnnLoadError as error:
        console.print(f"gnnload order: {type(error).__name__}: {error}", markup=False, soft_wrap=True)
        return 2


def _examine(options: argparse.Namespace, workload: Workload, console: Console) -> int:
    workload = Workload(**{**workload.settings(), "num_ranks": options.trainers, "order": Shuffled()})
    choice = choice_of(workload)
    chosen = None if choice is None else choice.worth
    numbers = sorted({*options.sequences, *([] if chosen is None else [chosen])})
    first = workload.nodes_of(next(workload.requests(0)))
    most = -(-enough_batches(len(first), workload.graph.num_nodes, options.ratio) // options.trainers)
    steps = min(most, workload.plan(options.trainers).num_steps)
    tried = []
    with progress("Sampling", len(numbers) + 1) as advance:
        for number in (None, *numbers):
            tried.append(_try_order(workload, number, steps, options))
            advance(1)
    shuffled, *near = tried
    title = f"{workload.graph!r}, {workload.sampler!r}, steps of {workload.batch_size * options.trainers} seeds"
    cache = f"{options.policy} cache of {100 * options.ratio:.3g} % of the rows"
    _say(console, shuffled, near, tried[1 + numbers.index(chosen)] if chosen else shuffled if choice else None, cache)
    reason = choice or NO_CLASSES
    console.print(f"order='proximity': {reason}", markup=False, highlight=False, soft_wrap=True)
    written = {"what": title, "ratio": options.ratio, "policy": options.policy, "steps": steps, "chosen": chosen}
    written |= {"orders": [asdict(order) for order in tried], "choice": None if choice is None else asdict(choice)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "order.json").write_text(json.dumps(written, indent=1) + "\n")
    draw_orders(shuffled, near, chosen, f"{title}; a {cache}.", options.out / "order.png")
    console.print(f"Written: {options.out / 'order.json'}, {options.out / 'order.png'}", markup=False, soft_wrap=True)
    return 0


def choice_of(workload: Workload) -> Choice | None:
    """Chooses as ``order="proximity"`` does; None where it cannot."""
    if (labels := _classes(workload)) is None:
        return None
    with progress("Choosing", None):
        return choose_sequences(
            workload.graph,
            breadth_first_ring(workload.graph, workload.seeds, CHOICE_SEED),
            workload.seeds,
            labels,
            global_batch_size=workload.batch_size * workload.num_ranks,
        )


def _classes(workload: Workload) -> torch.Tensor | None:
    """The labels of nodes, if seeds are nodes, and the labels integers ``[N]``."""
    return workload.labels if workload.kind.table is None and are_classes(workload.labels) else None


def _try_order(workload: Workload, sequences: int | None, steps: int, options: argparse.Namespace) -> OrderTrial:
    order: SeedOrder = Shuffled() if sequences is None else ProximityOrder(sequences)
    workload = Workload(**{**workload.settings(), "order": order})
    num_batches = steps * workload.num_ranks
    counted = cache_reads(
        (nodes for _, nodes in node_lists(workload, islice(workload.requests(0), num_batches))),
        num_batches // 2,
        workload.graph.num_nodes,
        options.ratio,
        options.policy,
    )
    if (labels := _classes(workload)) is None:
        return OrderTrial(sequences, counted, None)
    size = workload.batch_size * workload.num_ranks
    order = order.bind(workload.graph, labels, size)
    distance = mean_distance(order, workload.seeds, labels, seed=workload.seed, global_batch_size=size)
    return OrderTrial(sequences, counted, distance)


def _say(
    console: Console, shuffled: OrderTrial, near: Sequence[OrderTrial], default: OrderTrial | None, cache: str
) -> None:
    table = Table(title=f"Orders of seeds, and a {cache}")
    for column in ("sequences", "rows, %", "missed, %", "hits, %", "labels", ""):
        table.add_column(column, justify="right" if column else "left")
    for order in (shuffled, *near):
        rows, missed = (
            f"{100 * count(order.reads) / max(count(shuffled.reads), 1):.0f}"
            for count in (attrgetter("rows"), attrgetter("missed"))
        )
        table.add_row(
            "shuffle" if order.sequences is None else str(order.sequences),
            rows,
            missed,
            f"{100 * order.reads.hit_rate:.1f}",
            "" if order.distance is None else f"{order.distance:.3f}",
            "the default" if order is default else _verdict(order, shuffled),
        )
    console.print(table)


def _verdict(order: OrderTrial, shuffled: OrderTrial) -> str:
    if order is shuffled:
        return ""
    if (
        order.distance is not None
        and shuffled.distance is not None
        and order.distance > shuffled.distance + MOST_EXCESS
    ):
        return "labels too alike"
    return "saves little" if order.reads.missed > (1 - LEAST_SAVED) * shuffled.reads.missed else ""


# Arguments.


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, GraphDataModule]:
    parser = data_parser("gnnload order", __doc__, _EPILOG)
    parser.add_argument(
        "--sequences", type=at_least(1), nargs="+", default=NUMBERS, metavar="K", help="default 1, 2, ... 512"
    )
    parser.add_argument(
        "--ratio", type=fraction, default=CACHE_RATIO, help=f"of all rows to cache; default {CACHE_RATIO}"
    )
    parser.add_argument("--policy", choices=ops.EVICTIONS, default=EVICTION, help=f"of the cache; default {EVICTION}")
    parser.add_argument("--out", type=output_folder, default="runs/order", metavar="FOLDER", help="default runs/order")
    return parse_data(parser, arguments)
