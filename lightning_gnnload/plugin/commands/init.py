"""``gnnload init``: writes a first graph.yaml of tables: which hold nodes and which edges, their ids, keys, times and
columns, and what may be predicted, with counts as comments. It can be built as it is, and is yours to correct."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ingest.draft.tables import draft_of
from lightning_gnnload.plugin.commands.arguments import Parser, at_least, report_failure
from lightning_gnnload.plugin.commands.schema import GRAPH_SCHEMA, RUN_SCHEMA, graph_schema_text, run_schema_text
from lightning_gnnload.storage.output import explain_write_errors

_EPILOG = """
Keys are found by values: the share that is an id of another table stands beside each. Tables are looked at by their
first rows, ids and keys by all. Beside the draft comes its schema, by which editors complete keys. Next:

  gnnload build graph.yaml graph --check
"""
_RUN = """\
# yaml-language-server: $schema={schema}
# gnnload fit --config {name}
trainer:
  max_epochs: 10
  accelerator: auto
  callbacks: [{{class_path: ModelCheckpoint, init_args: {{dirpath: ., filename: model}}}}]
model: {{class_path: SAGE}}
data:
  data:
    class_path: Tables
    init_args: {{graph: {graph}, folder: graph}}
  sampler: {{class_path: NeighborSampler, init_args: {{fanouts: [10, 10]}}}}
  batch_size: 512
"""


def main(arguments: Sequence[str]) -> int:
    """Writes a first description of tables; returns the exit code."""
    parser = Parser(
        "gnnload init", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="files of Parquet, CSV or Arrow, folders, globs")
    parser.add_argument("--out", default="graph.yaml", metavar="FILE", help="default graph.yaml; -: print it")
    parser.add_argument("--run", metavar="FILE", nargs="?", const="run.yaml", help="write a run, too; default run.yaml")
    parser.add_argument("--rows", type=at_least(1), default=500_000, help="of a table to look at; default 500000")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    options = parser.parse_args(arguments)
    if options.run is not None and options.out == "-":
        parser.error("--run: it names the file of the draft, which --out - only prints. Leave one of the two out")
    out = Path("graph.yaml" if options.out == "-" else options.out)
    files = [out, out.with_name(GRAPH_SCHEMA)] if options.out != "-" else []
    run = None if options.run is None else Path(options.run)
    if run is not None and run.absolute().parent != out.absolute().parent:
        parser.error(f"--run {run}: put it beside {out}, whose tables it names")
    files += [] if run is None else [run, run.with_name(RUN_SCHEMA)]
    # Schemas are made of the code alone, so that nothing of yours is lost with them.
    if not options.overwrite and (there := [file for file in files[::2] if file.exists()]):
        parser.error(f"{there[0]} is there already. Give --overwrite, another --out FILE, or --out - to print")
    try:
        draft = draft_of(options.tables, out.absolute().parent, rows=options.rows)
        head = [] if options.out == "-" else [f"yaml-language-server: $schema={GRAPH_SCHEMA}"]
        text = draft.text([*head, f"A draft by gnnload init. Next: gnnload build {out.name} graph --check"])
        if options.out == "-":
            print(text, end="")
        else:
            _write(out, text)
            _write(files[1], graph_schema_text())
        if run is not None:
            _write(run, _RUN.format(schema=RUN_SCHEMA, name=run.name, graph=out.name))
            _write(files[3], run_schema_text())
    except (GnnLoadError, KeyboardInterrupt) as error:
        return report_failure("gnnload init", error)
    written = "" if options.out == "-" else f"Written: {', '.join(map(str, files))}. "
    warning = "" if draft.has_edges else "No table has ids of another: add edges before you build. "
    fit = "" if run is None else f", then gnnload fit --config {run}"
    print(f"{written}{warning}Next: gnnload build {out} graph --check{fit}", file=sys.stderr)
    return 0


def _write(file: Path, text: str) -> None:
    with explain_write_errors(file):
        file.write_text(text, encoding="utf-8")
