"""Folders are overwritten while others load them, and where something else lies.

A load is of one version, whichever; and what this package did not write, it does not delete.
"""

from __future__ import annotations

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
    "photographs": {"folder/2019/sea.jpg": "a shell", "folder/2019/hills.jpg": "a sheep"},
    "another program's manifest": {"folder/manifest.json": '{"name": "a page", "version": 1}', "folder/index.html": ""},
    "a repository": {"folder/.git/HEAD": "ref: refs/heads/main", "folder/thesis.tex": "\\chapter{}"},
    "a broken manifest": {"folder/manifest.json": "{", "folder/years_of_work.csv": "1,2"},
    "an array alone": {"folder/x.bin": "no manifest beside it"},
    "a file": {"folder": "the only copy"},
    "a link": {"elsewhere/notes.txt": "a link leads here"},
    "a version with notes": {"folder/notes.txt": "what was found out about this graph"},
}
"""What a user has where a folder is to be written: files, and what is in them."""


class Overwriters(Attack):
    name = "overwriters"
    good = frozenset({"one version each", "one version each, or an error of ours", "foreign files stay"})
    ways = (*_LOADED, *(f"over {what}" for what in _FOREIGN))

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        if way in _LOADED:
            return self._loads(way, folder)
        return self._foreign(way.removeprefix("over "), choose, folder)

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

    def _foreign(self, what: str, choose: Random, folder: Path) -> Verdict:
        kind = choose.choice(("save_graph_data", "save_features", "partition_graph"))
        if what == "a version with notes":
            run("write", kind, 1, folder=folder)
        files = {folder / name: text for name, text in _FOREIGN[what].items()}
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if what == "a link":
            (folder / FOLDER).symlink_to("elsewhere")
        came = run("write", kind, 2, folder=folder)
        lost = [name for name, text in files.items() if not name.is_file() or name.read_text() != text]
        return Verdict("foreign files were deleted" if lost else "foreign files stay", f"{kind}: {came}, lost: {lost}")


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
