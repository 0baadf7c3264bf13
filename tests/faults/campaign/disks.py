"""Harms to the folders and disks of owners, while a process samples from them; as :mod:`.harms`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lightning_gnnload import GraphData, partition_graph
from tests.faults.campaign.cases import Case, write_secret
from tests.faults.campaign.harms import LOST, halves
from tests.integration.scripts import toy


def full_folders(case: Case) -> str:
    """The owner's own folders have no room left."""
    full = str(_full(case))
    halves(case, environment={"TMPDIR": full, "HOME": full, "XDG_CACHE_HOME": full, "XDG_RUNTIME_DIR": full})
    case.sample()
    return case.ends()


def full_log(case: Case) -> str:
    """What it has to tell cannot be written: of strangers, who are turned away all the same."""
    halves(case, log=_full(case) / "filler")
    write_secret(case.folder / "other secret")
    case.sample()
    is_final, case.is_final = case.is_final, True
    stranger = case.sample(secret="other secret")
    case.is_final = is_final
    if (came := stranger.ends()) != LOST:
        return f"a stranger: {came}"
    case.clients.reverse()
    return case.ends()


def full_copy(case: Case) -> str:
    """The disk was full when the part's folder was copied: refused by name, until the copy is whole."""
    size = sum(file.stat().st_size for file in case.parts.rglob("*"))
    disk = case.full(size // 2)
    copied = subprocess.run(["cp", "-r", str(case.parts), str(disk / "parts")], capture_output=True, text=True)
    assert copied.returncode, "the disk is too large"
    owner = case.start_owner("1", folder=disk / "parts")
    told = owner.told()
    if owner.process.returncode != 2 or "Error: " not in told or "Traceback" in told:
        return f"ended with {owner.process.returncode}: {told}"
    subprocess.run(["mount", "-o", f"remount,size={4 * size + (1 << 20)}", str(disk)], check=True)
    shutil.copytree(case.parts, disk / "parts", dirs_exist_ok=True)
    case.name(case.own("0"), case.own("1", folder=disk / "parts"))
    case.sample()
    return case.ends()


def another_graph(case: Case) -> str:
    """Parts of the same shape, of another graph: named, before anything is read of them."""
    halves(case)
    case.sample(parts=_others(case.folder / "others"))
    return case.ends()


def replaced_beneath(case: Case) -> str:
    """The folder becomes another graph's while owners serve it: they go on with what they have, for who has the same
    head; who has the new one is refused."""
    parts = case.own_parts()
    halves(case, folder=parts)
    stays = case.sample()
    case.moment(stays)
    case.is_final = True
    came = case.sample(parts=_others(parts)).ends()
    return f"the new head's client: {came}" if came != LOST else stays.ends()


def replaced_and_started_again(case: Case) -> str:
    """An owner that comes back with another graph's folder is as good as none."""
    parts = case.own_parts()
    first, second = halves(case, folder=parts)
    case.moment(case.sample())
    second.kill()
    case.name(first, case.own("1", folder=_others(parts)))
    return case.ends()


def _full(case: Case) -> Path:
    disk = case.full(64 << 10)
    (disk / "filler").write_bytes(bytes(64 << 10))
    return disk


def _others(folder: Path) -> Path:
    data = toy.toy_data()
    indices = data.graph.indices.copy()
    indices[0] = (indices[0] + 1) % data.graph.num_nodes
    other = GraphData(type(data.graph)(data.graph.indptr, indices), x=data.x, y=data.y, train=data.train)
    partition_graph(other, folder, 2, "random", hops=0, overwrite=True, progress=False)
    return folder
