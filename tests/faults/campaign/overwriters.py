"""Folders are overwritten while others load them, and where something else lies.

A load is of one version, whichever; and what this package did not write, it does not delete.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import LIMIT_S
from tests.faults.campaign.kills import SCRIPT, run
from tests.faults.campaign.versions import FOLDER
from tests.integration.scripts import launch

SECONDS = 3.0
_LOADED = ("save_graph_data", "graph on disk", "quantize", "save_features", "partition_graph")
_FOREIGN = {
    "photographs": {"2019/sea.jpg": "\xff\xd8", "2019/hills.jpg": "\xff\xd8\xff"},
    "another program's manifest": {"manifest.json": '{"name": "a web page", "version": 1}', "index.html": "<p>"},
    "a repository": {".git/HEAD": "ref: refs/heads/main", "thesis.tex": "\\chapter{}"},
    "a broken manifest": {"manifest.json": "{", "years_of_work.csv": "1,2"},
    "an array alone": {"x.bin": "no manifest beside it"},
}


class Overwriters(Attack):
    name = "overwriters"
    good = frozenset({"one version each", "one version each, or an error of ours", "foreign files stay"})
    ways = (*_LOADED, *(f"over {what}" for what in _FOREIGN))

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        if way in _LOADED:
            return self._loads(way, folder)
        return self._foreign(_FOREIGN[way.removeprefix("over ")], choose, folder)

    def _loads(self, kind: str, folder: Path) -> Verdict:
        run("write", kind, 1, folder=folder)
        with (
            launch.start(SCRIPT, "write_for", kind, SECONDS, folder=folder, log="writes.txt") as writer,
            launch.start(SCRIPT, "load_for", kind, SECONDS, folder=folder, log="loads.txt") as loader,
        ):
            loader.wait(LIMIT_S)
            writer.wait(LIMIT_S)
        if loader.returncode or writer.returncode:
            return Verdict("a process failed", f"{writer.output}\n{loader.output}")
        return judged(json.loads(loader.output.splitlines()[-1]))

    def _foreign(self, files: dict[str, str], choose: Random, folder: Path) -> Verdict:
        for name, text in files.items():
            (folder / FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / FOLDER / name).write_text(text)
        before = _digest(folder / FOLDER)
        kind = choose.choice(("save_graph_data", "save_features", "partition_graph"))
        came = run("write", kind, 1, folder=folder)
        if _digest(folder / FOLDER) != before:
            return Verdict("foreign files were deleted", f"{kind}(overwrite=True) over {list(files)}: {came}")
        return Verdict("foreign files stay" if "refused" in came else "foreign files stay, unsaid", f"{kind}: {came}")


def judged(told: dict[str, Any]) -> Verdict:
    """Judges what a loader counted."""
    counts = told["counts"]
    figures = {name: float(counts.get(name, 0)) for name in ("loads", "refused", "mixtures", "foreign errors")}
    seen = json.dumps(told["examples"], indent=1).replace("\\n", "\n")
    if figures["mixtures"]:
        return Verdict("versions were mixed", seen, figures)
    if figures["foreign errors"]:
        return Verdict("an error that is not ours", seen, figures)
    if not figures["loads"]:
        return Verdict("never loaded", seen, figures)
    return Verdict("one version each, or an error of ours" if figures["refused"] else "one version each", seen, figures)


def _digest(folder: Path) -> str:
    hashed = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        hashed.update(f"{path.relative_to(folder)} ".encode() + (path.read_bytes() if path.is_file() else b""))
    return hashed.hexdigest()
