"""``gnnload schema``: prints the JSON Schema of graph.yaml or run.yaml, by which editors complete and check keys."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from lightning_gnnload.ingest.schema import graph_schema
from lightning_gnnload.plugin.commands.arguments import Parser

GRAPH_SCHEMA, RUN_SCHEMA = "graph.schema.json", "run.schema.json"
_EPILOG = f"""
  gnnload schema > {GRAPH_SCHEMA}
  gnnload schema --run > {RUN_SCHEMA}

Editors with a YAML language server (VS Code, Neovim, JetBrains, Emacs) read it where the first line says

  # yaml-language-server: $schema={GRAPH_SCHEMA}

as drafts of gnnload init do.
"""


def main(arguments: Sequence[str]) -> int:
    """Prints a JSON Schema; returns the exit code."""
    parser = Parser(
        "gnnload schema", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="of run.yaml, the configuration of gnnload fit")
    options = parser.parse_args(arguments)
    print(run_schema_text() if options.run else graph_schema_text(), end="")
    return 0


def graph_schema_text() -> str:
    """Returns the schema of graph.yaml as a file's text."""
    return json.dumps(graph_schema(), indent=1) + "\n"


def run_schema_text() -> str:
    """Returns the schema of run.yaml as a file's text."""
    # Lightning takes seconds to import, and a graph.yaml has no need of it.
    from lightning_gnnload.plugin.commands.run_schema import run_schema

    return json.dumps(run_schema(), indent=1) + "\n"
