"""Folders are damaged: bits flip, files are cut off, lost, exchanged or replaced, and change while they are used.

Whoever opens or uses such a folder gets an error of this package's, or nothing that tells one batch from another; what
only reading every byte can show, ``gnnload verify`` names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from tests import forkserver
from tests.faults.campaign import damaged
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import LIMIT_S
from tests.integration.scripts import launch

SCRIPT = Path(damaged.__file__)
_VERIFY = "from lightning_gnnload.plugin.commands.cli import main; main()"
_OF_PARTITIONS = ("uniform", "labor", "layerwise")  # which need no more of a part than it holds
_ONLY_TOLD = ("report", "settings", "method")  # what a partition says of how it was made


def flip(folder: Path, choose: Random) -> Path:
    file = _array(folder, choose)
    content = bytearray(file.read_bytes())
    for _ in range(choose.choice((1, 1, 8))):
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    file.write_bytes(content)
    return file


def cut(folder: Path, choose: Random) -> Path:
    file = _array(folder, choose)
    os.truncate(file, choose.randrange(file.stat().st_size))
    return file


def lose(folder: Path, choose: Random) -> Path:
    file = choose.choice([_array(folder, choose), folder / "manifest.json"])
    file.unlink()
    return file


def replace(folder: Path, choose: Random) -> Path:
    """Another program's file of the same name, and maybe size; or something that is no file."""
    file = _array(folder, choose)
    num_bytes = file.stat().st_size
    file.unlink()
    how = choose.randrange(4)
    if how == 0:
        file.mkdir()
    elif how == 1:
        os.mkfifo(file)
    elif how == 2:
        file.symlink_to("/dev/zero")
    else:
        file.write_bytes(choose.randbytes(num_bytes))
    return file


def exchange(folder: Path, choose: Random) -> Path:
    files = [(file, file.read_bytes()) for file in sorted(folder.rglob("*.bin"))]
    pairs = [(a, b) for a, b in combinations(files, 2) if len(a[1]) == len(b[1]) and a[1] != b[1]]
    (first, content), (second, other) = choose.choice(pairs)
    first.write_bytes(other)
    second.write_bytes(content)
    return first


def rewrite_manifest(folder: Path, choose: Random) -> Path:
    """Changes one value of it, or leaves it out."""
    file = choose.choice(sorted(folder.rglob("manifest.json")))
    manifest = json.loads(file.read_text())
    holder, key = choose.choice(list(_leaves(manifest)))
    if choose.random() < 0.25:
        del holder[key]
    elif isinstance(holder[key], bool | None):
        holder[key] = 1
    elif isinstance(holder[key], int):
        holder[key] += choose.choice((-1, 1, 1000))
    else:
        holder[key] = choose.choice((f"{holder[key]}x", "", "int64", "x.bin"))
    file.write_text(json.dumps(manifest))
    return file


AT_REST: dict[str, Callable[[Path, Random], Path]] = {
    "bits flipped": flip,
    "a file cut off": cut,
    "a file lost": lose,
    "a foreign file": replace,
    "arrays exchanged": exchange,
    "manifest changed": rewrite_manifest,
}
IN_USE = {"topology changed in use": "change", "topology cut off in use": "cut"}


class Damage(Attack):
    name = "damage"
    good = frozenset({"an error of ours", "named by gnnload verify", "the same batches", "ended, and named the file"})
    ways = (*AT_REST, *IN_USE)

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        kinds = (
            ["graph"] if way in IN_USE else ["graph", "partition", *(["features"] if way != "arrays exchanged" else [])]
        )
        kind = choose.choice(kinds)
        sampler = choose.choice(list(damaged.SAMPLERS) if kind == "graph" else _OF_PARTITIONS)
        sound, _, output = _use(folder, kind, sampler, "save")
        assert sound.get("digests"), output
        if way in IN_USE:
            told, code, output = _use(folder, kind, sampler, IN_USE[way], choose.random())
            came = judged_in_use(sound, told, code)
            # The kernel has no other way to say that a page is gone; that much is promised, and no more.
            if came == "crashed" and way == "topology cut off in use" and "was truncated while in use" in output:
                came = "ended, and named the file"
            return Verdict(came, f"{kind}, {sampler}: {told}\n{output}")
        place = folder / damaged.FOLDER
        file = AT_REST[way](place, choose)
        told, code, output = _use(folder, kind, sampler)
        verified = verify(folder)
        seen = f"{kind}, {sampler}, {file.relative_to(place)}: {told}\n{output}\nverify: {verified}"
        return Verdict(judged(told, code, verified), seen)


def judged(told: dict[str, Any], code: int, verified: subprocess.CompletedProcess[str] | None) -> str:
    """Judges what came of a folder that was damaged before."""
    if verified is None:
        return "gnnload verify hung"
    if not told:
        return _failed(code)
    if "Traceback" in verified.stderr or verified.returncode < 0:
        return "gnnload verify failed itself"
    if "error" in told:
        return "an error of ours"
    if "there is no command" in verified.stderr:
        return "unnoticed, as there is no gnnload verify"
    return "named by gnnload verify" if verified.returncode else "unnoticed, by gnnload verify too"


def judged_in_use(sound: dict[str, Any], told: dict[str, Any], code: int) -> str:
    """Judges what came of damage in mid-course: no mini-batch may be of it."""
    if not told:
        return _failed(code)
    if told["digests"] != sound["digests"][: len(told["digests"])]:
        return "other batches, without a word"
    return "an error of ours" if "error" in told else "the same batches"


def verify(folder: Path) -> subprocess.CompletedProcess[str] | None:
    """Runs ``gnnload verify``; None where it does not end."""
    command = [sys.executable, "-c", _VERIFY, "verify", str(damaged.FOLDER)]
    with forkserver.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _use(folder: Path, *arguments: object) -> tuple[dict[str, Any], int, str]:
    """Returns what the script told, nothing where it failed; its exit code, 0 where it hung; and its output."""
    with launch.start(SCRIPT, *arguments, folder=folder) as job:
        try:
            job.wait(LIMIT_S)
        except TimeoutError as error:
            return {}, 0, str(error)
    told = json.loads(job.output.splitlines()[-1]) if job.returncode == 0 else {}
    return told, job.returncode, job.output


def _failed(code: int) -> str:
    return "hung" if code == 0 else "crashed" if code < 0 else "an error that is not ours"


def _array(folder: Path, choose: Random) -> Path:
    return choose.choice([file for file in sorted(folder.rglob("*.bin")) if file.stat().st_size])


def _leaves(value: Any) -> Any:
    """Yields (holder, key) of each value that holds no other."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if key in _ONLY_TOLD:
            continue
        if isinstance(value[key], dict | list) and value[key]:
            yield from _leaves(value[key])
        elif not isinstance(value[key], dict | list):
            yield value, key
