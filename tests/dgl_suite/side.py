"""One example by one side's loaders, for several seeds: a line of JSON for each.

    python -m tests.dgl_suite.side FOLDER NAME SIDE SEED...

``FOLDER`` is DGL's ``examples``; ``SIDE`` is ``dgl``, ``ours``, or ``misled``: ours by another graph, whose edges come
from nodes at random, which the comparison has to find.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.dgl_suite import stand_in
from tests.dgl_suite.examples import EXAMPLES, changed, with_our_imports


def main(arguments: list[str]) -> None:
    """Runs an example."""
    folder, name, side, *seeds = arguments
    [example] = [each for each in EXAMPLES if each.name == name]
    stand_in.put_in_place()
    if side == "misled":
        _mislead()
    path = Path(folder) / example.path
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="gnnload-dgl-") as work:
        num_lines = 0
        for file in path.parent.glob("*.py"):
            source = file.read_text(encoding="utf-8")
            if file == path:
                source = changed(source, example.edits)
            if side != "dgl":
                source, count = with_our_imports(source)
                num_lines += count if file == path else 0
            (Path(work) / file.name).write_text(source, encoding="utf-8")
        os.chdir(work)
        sys.path.insert(0, work)
        for seed in map(int, seeds):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            _import_dgl().seed(seed)
            output = _run(Path(work) / path.name, example.options)
            found = re.findall(example.result, output)
            if len(found) != 1:
                raise RuntimeError(f"{name} printed no result:\n{output[-3000:]}")
            print(json.dumps({"seed": seed, "metric": float(found[0]), "lines": num_lines}), flush=True)
            for leftover in ("lightning_logs", "tb_logs", "rendezvous"):
                with contextlib.suppress(OSError):
                    (shutil.rmtree if Path(leftover).is_dir() else os.remove)(leftover)


def _import_dgl() -> Any:
    import dgl

    return dgl


def _run(path: Path, options: tuple[str, ...]) -> str:
    """Returns what the program prints with these options. Its processes print to the same file."""
    before, out = sys.argv, os.dup(1)
    with tempfile.TemporaryFile() as printed:
        sys.argv = [str(path), *options]
        sys.stdout.flush()
        os.dup2(printed.fileno(), 1)
        try:
            source = compile(path.read_text(encoding="utf-8"), str(path), "exec")
            main_module = sys.modules["__main__"]
            names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
            exec(source, names)
            assert sys.modules["__main__"] is main_module
        finally:
            sys.stdout.flush()
            os.dup2(out, 1)
            os.close(out)
            sys.argv = before
        printed.seek(0)
        return printed.read().decode()


def _mislead() -> None:
    """Has our loader draw from a graph whose sources are shuffled."""
    import dgl

    from lightning_gnnload.dgl.dataloader import DataLoader

    make = DataLoader.__init__

    def make_of_another(self: Any, graph: Any, *args: Any, **kwargs: Any) -> None:
        draw = torch.Generator().manual_seed(0)
        ends = {name: graph.edges(etype=name, order="eid") for name in graph.canonical_etypes}
        ends = {name: (src[torch.randperm(len(src), generator=draw)], dst) for name, (src, dst) in ends.items()}
        other = dgl.heterograph(ends, {name: graph.num_nodes(name) for name in graph.ntypes}, idtype=graph.idtype)
        for name in graph.ntypes:
            other.nodes[name].data.update(graph.nodes[name].data)
        make(self, other, *args, **kwargs)

    DataLoader.__init__ = make_of_another  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv[1:])
