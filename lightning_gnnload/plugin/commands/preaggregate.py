"""``gnnload preaggregate``: sums features over all in-neighbours of every node, as tables in the graph's folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.data.aggregates import AGGRS
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.inference.preaggregate import preaggregate
from lightning_gnnload.plugin.commands.arguments import (
    Parser,
    at_least,
    output_folder,
    parse_module,
    report_failure,
    sampler_arguments,
    take_data,
)

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_EPILOG = """
DATA: the folder of a graph, to which the tables are added; or Debian, Synthetic, OGB, package.module.Class of your
own, or --config FILE, of which --out FOLDER has a copy with the tables. gcn: as gcn_norm of PyG, with self-loops;
both: as DGL's GraphConv(norm="both"). Tables are read in turn, as many columns at a time as --memory holds. A table of
a graph or of features that have changed since is refused, wherever it is used. To train: SAGE with
--model.first_layer preaggregated and a fanout less; or SIGN, with --data.sampler.fanouts "[]".
"""


def main(arguments: Sequence[str]) -> int:
    """Writes tables of sums over neighbours; returns the exit code."""
    try:
        options, module = _parse(arguments)
        data = preaggregate(
            module if options.out is not None else module.dataset,
            **{name: getattr(options, name) for name in ("aggr", "hops", "table", "name", "self_loops", "weighted")},
            as_of=options.as_of,
            node_type=options.node_type,
            merge_relations=options.merge_relations,
            dtype=None if options.dtype is None else getattr(torch, options.dtype),
            out=options.out,
            overwrite=options.overwrite,
            memory=options.memory,
            progress=sys.stderr.isatty(),
        )
    except (GnnLoadError, KeyboardInterrupt) as error:
        return report_failure("gnnload preaggregate", error)
    for name, aggregate in data.aggregates.items():
        store = data.stores[name]
        dtype, size = str(store.dtype).removeprefix("torch."), in_units(store.shape[0] * store.row_bytes)
        print(f"{name}: {aggregate}; {dtype} {list(store.shape)}, {size}")
    folder = options.out or module.dataset.folder
    print(f"In {folder}. To train: gnnload fit --data.data {folder}, with a model that reads these tables.")
    return 0


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, Any]:
    parser = _parser()
    remaining = list(arguments)
    data = take_data(remaining, parser)
    options, rest = parser.parse_known_args(remaining)
    if strangers := [text for text in rest if text.startswith("-") and not text.startswith("--data.")]:
        parser.error(f"unrecognized arguments: {' '.join(strangers)}")
    names_data = any(text.startswith("--data.data") for text in rest)
    if not data and options.config is None and not names_data:
        parser.error("give DATA first: the folder of a graph, Debian, Synthetic, OGB; or --config FILE")
    module = parse_module(parser, options.config, [*data, *sampler_arguments(rest, options.config), *rest]).data
    if options.out is None and not isinstance(module.dataset, GraphFolder):
        parser.error(f"give --out FOLDER, as the folder of {module.dataset!r} is shared by all who train on it")
    return options, module


def _parser() -> Parser:
    parser = Parser(
        "gnnload preaggregate",
        usage="%(prog)s DATA [--aggr mean|sum|gcn|both] [--hops K] [options]",
        description=__doc__,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--aggr", choices=AGGRS, default="mean", help="of in-neighbours; default mean")
    parser.add_argument("--hops", type=at_least(1), default=1, metavar="K", help="sums of sums; default 1")
    parser.add_argument("--table", default="x", metavar="NAME", help="whose rows are summed; default x, the features")
    parser.add_argument("--name", metavar="NAME", help="of the tables, NAME_1 to NAME_K; default TABLE_AGGR")
    parser.add_argument("--self-loops", action=argparse.BooleanOptionalAction, help="default: for gcn alone")
    parser.add_argument("--weighted", action=argparse.BooleanOptionalAction, help="default: where edges have weights")
    parser.add_argument("--as-of", type=_time, metavar="TIME", help="in a graph with times, later edges do not count")
    parser.add_argument("--node-type", metavar="TYPE", help="in a graph with types, tables of this type's nodes alone")
    parser.add_argument("--merge-relations", action="store_true", help="those between two node types count together")
    parser.add_argument("--dtype", choices=_DTYPES, help="of the tables; default that of the features")
    parser.add_argument("--out", type=output_folder, metavar="FOLDER", help="a new folder for graph and tables")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder --out")
    parser.add_argument("--memory", type=at_least(1), metavar="BYTES", help="to take; default half of what is free")
    parser.add_argument("--config", type=Path, metavar="YAML", help="a configuration of gnnload fit, instead of DATA")
    parser.add_argument("--data.KEY", metavar="VALUE", help="a setting of GraphDataModule; --data.data.KEY of DATA")
    return parser


def _time(text: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
