"""``gnnload build``: tables with ids of any kind become a graph folder, which models train on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.machines import ENGINES
from lightning_gnnload.ingest.build import build_graph_folder, peek_tables
from lightning_gnnload.ingest.report import as_text, preview_text
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.plugin.commands.arguments import Parser, report_failure
from lightning_gnnload.storage.targets import check_target

_EPILOG = """
graph.yaml says which tables hold nodes, edges and labels, in Parquet, CSV, Arrow or what SQL gives of them; its paths
count from its own folder. The report is OUT/report.json, what was fitted for features OUT/transforms.json. To train:
gnnload fit with data: {class_path: GraphFolder, init_args: {folder: OUT}}. The exit status is 0 if the folder was
written, or could be (--check), and 2 if a table or graph.yaml is at fault.
"""


def main(arguments: Sequence[str]) -> int:
    """Writes the graph folder that a description of tables stands for; returns the exit code."""
    parser = Parser("gnnload build", description=__doc__, epilog=_EPILOG)
    parser.add_argument("spec", type=Path, metavar="graph.yaml", help="which tables hold what")
    parser.add_argument("folder", type=Path, metavar="OUT", help="the graph folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph folder that is there")
    parser.add_argument("--check", action="store_true", help="build and report, but keep nothing")
    parser.add_argument(
        "--transforms", type=Path, metavar="OLD", help="a folder built before, whose features and classes are applied"
    )
    parser.add_argument(
        "--read",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="where SQL may read files, beside the folder of graph.yaml; may be repeated",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="local", help="ray: the machines of a Ray cluster, which all reach OUT"
    )
    options = parser.parse_args(arguments)
    try:
        check_target(options.folder, "graph", overwrite=options.overwrite)
        spec, home = GraphSpec.read(options.spec), options.spec.absolute().parent
        if options.check:
            print(preview_text(peek_tables(spec, home=home, reads=options.read, transforms=options.transforms)))
        report = build_graph_folder(
            spec,
            options.folder,
            home=home,
            reads=options.read,
            overwrite=options.overwrite,
            transforms=options.transforms,
            keep=not options.check,
            engine=options.engine,
        )
    except (GnnLoadError, KeyboardInterrupt) as error:
        return report_failure("gnnload build", error)
    print(as_text(report))
    if options.check:
        print(f"All tables were read, and nothing was kept. {options.folder} can be written.")
        return 0
    print(f"Written: {options.folder}, with report.json and transforms.json.")
    return 0
