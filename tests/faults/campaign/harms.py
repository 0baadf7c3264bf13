"""Harms: what is done to owners of a graph's parts, or to the ways to them, while a process samples from them.

Each returns in a few words what came of it. A new interpreter serves where it is told how soon an owner answers again.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lightning_gnnload import GraphData, partition_graph
from lightning_gnnload.owners.address import Address
from tests.cluster.delay import DelayProxy
from tests.faults.campaign.cases import LIMIT_S, STORAGE, TRAINER, Case, write_secret
from tests.integration.scripts import launch, toy
from tests.unit.owners.serving import OwnerProcess

SAME, LOST = "the same batches", "OwnerLostError"
NUM_KILLS = 10
ANSWERS_S = 10.0 * launch.PATIENCE
"""In which an owner that was killed answers again."""
PASSES_S = 3.0 * launch.PATIENCE
"""In which another owner answers in the place of one that is lost; of that, 1 s is a frozen one's deadline."""


class Harm(NamedTuple):
    """What is done, what must come of it, and how many seconds the client may pause meanwhile."""

    do: Callable[[Case], str]
    wanted: str = SAME
    most_s: float = LIMIT_S
    needs_root: bool = False


def _halves(case: Case, **settings: Any) -> tuple[OwnerProcess, OwnerProcess]:
    first, second = case.own("0", **settings), case.own("1", **settings)
    case.name(first, second)
    return first, second


def killed_and_started_elsewhere(case: Case) -> str:
    first, second = _halves(case)
    case.moment(case.sample())
    second.kill()
    case.name(first, case.own("1", is_anew=True))
    return case.ends()


def killed_and_started_there(case: Case) -> str:
    """At the same address, whose old connections the system has not forgotten."""
    _, second = _halves(case)
    case.moment(case.sample())
    second.kill()
    case.own("1", port=Address.parse(second.address).port)
    return case.ends()


def killed_and_served_from_a_copy(case: Case) -> str:
    """As by another machine, which has the part's folder and the head alone."""
    first, second = _halves(case)
    copy = case.own_parts()
    shutil.rmtree(copy / "part-0000")
    case.moment(case.sample())
    second.kill()
    case.name(first, case.own("1", folder=copy))
    return case.ends()


def killed_with_a_replica(case: Case) -> str:
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first, second, other)
    case.moment(case.sample())
    first.kill()
    second.kill()
    return case.ends()


def killed_again_and_again(case: Case) -> str:
    """One of two owners of all parts; it comes back elsewhere before the next is killed."""
    owners = [case.own("0,1"), case.own("0,1")]
    case.name(*owners)
    client = case.sample(num_steps=200)
    client.reach(1)
    for _ in range(NUM_KILLS):
        time.sleep(case.choose.uniform(0, 0.3))
        lost = case.choose.randrange(2)
        owners[lost].kill()
        owners[lost] = case.own("0,1")
        case.name(*owners)
    return case.ends()


def killed_for_good(case: Case) -> str:
    owners = _halves(case)
    case.moment(case.sample())
    case.choose.choice(owners).kill()
    return case.ends()


def stopped_with_a_replica(case: Case) -> str:
    """It wakes when nobody waits for it any more, and is asked again."""
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first, second, other)
    client = case.sample(num_steps=200)
    case.moment(client)
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(case.choose.uniform(1.0, 3.0))
    second.process.send_signal(signal.SIGCONT)
    other.kill()
    return case.ends()


def stopped_for_a_while(case: Case) -> str:
    _, second = _halves(case)
    case.moment(case.sample())
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(case.choose.uniform(0.1, 5.0))
    second.process.send_signal(signal.SIGCONT)
    return case.ends()


def stopped_for_long(case: Case) -> str:
    _, second = _halves(case)
    case.moment(case.sample())
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(20)
    second.process.send_signal(signal.SIGCONT)
    return case.ends()


def _linked(case: Case, harm: Callable[[DelayProxy], Any], heal: Callable[[DelayProxy], Any], most_s: float) -> str:
    first, second = case.own("0"), case.own("1")
    link = case.link(second)
    case.name(first, link)
    case.moment(case.sample())
    harm(link)
    time.sleep(case.choose.uniform(0, most_s))
    heal(link)
    return case.ends()


def parted(case: Case) -> str:
    return _linked(case, DelayProxy.freeze, DelayProxy.mend, 5.0)


def cut(case: Case) -> str:
    return _linked(case, DelayProxy.cut, DelayProxy.mend, 5.0)


def reset(case: Case) -> str:
    return _linked(case, DelayProxy.reset, DelayProxy.mend, 0.0)


def far(case: Case) -> str:
    """A long way, and a hundredth of what the network had: slower than the deadline of no request."""
    return _linked(case, lambda link: (link.set_delay(20_000), link.set_rate(1_000_000)), DelayProxy.count, 0.0)


def _on_machines(case: Case, harm: Callable[[], object], heal: Callable[[], object], most_s: float = 5.0) -> str:
    _halves(case, at=STORAGE)
    case.moment(case.sample(at=TRAINER))
    harm()
    time.sleep(case.choose.uniform(0.5, most_s))
    heal()
    return case.ends()


def pulled(case: Case) -> str:
    network = case.connect_machines()
    return _on_machines(case, lambda: network.pull(STORAGE), lambda: network.plug(STORAGE))


def half_pulled(case: Case) -> str:
    """One direction is gone: what the client sends arrives, and no answer comes back; or the reverse."""
    network = case.connect_machines()
    silent, deaf = case.choose.sample((TRAINER, STORAGE), 2)
    route = f"blackhole {network[deaf].address}/32"

    def tell(what: str) -> None:
        subprocess.run(network[silent].command(["ip", "route", what, *route.split()]), check=True)

    return _on_machines(case, lambda: tell("add"), lambda: tell("del"))


def narrow(case: Case) -> str:
    """The cable carries 300 kB a second for a while."""
    network = case.connect_machines()
    return _on_machines(case, lambda: network.set_rate(300_000), lambda: network.set_rate(0), 2.0)


def full_folders(case: Case) -> str:
    """The owner's own folders have no room left."""
    full = str(_full(case))
    _halves(case, environment={"TMPDIR": full, "HOME": full, "XDG_CACHE_HOME": full, "XDG_RUNTIME_DIR": full})
    case.sample()
    return case.ends()


def full_log(case: Case) -> str:
    """What it has to tell cannot be written: of strangers, who are turned away all the same."""
    _halves(case, log=_full(case) / "filler")
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
    if owner.process.returncode != 1 or "Error: " not in told or "Traceback" in told:
        return f"ended with {owner.process.returncode}: {told}"
    subprocess.run(["mount", "-o", f"remount,size={4 * size + (1 << 20)}", str(disk)], check=True)
    shutil.copytree(case.parts, disk / "parts", dirs_exist_ok=True)
    case.name(case.own("0"), case.own("1", folder=disk / "parts"))
    case.sample()
    return case.ends()


def two_clients(case: Case) -> str:
    """Of whom one is killed amid a request: the other does not notice."""
    _halves(case)
    left, stays = case.sample(), case.sample()
    case.moment(left)
    left.process.kill()
    case.clients = [stays]
    return case.ends()


def another_graph(case: Case) -> str:
    """Parts of the same shape, of another graph: named, before anything is read of them."""
    _halves(case)
    case.sample(parts=_others(case.folder / "others"))
    return case.ends()


def replaced_beneath(case: Case) -> str:
    """The folder becomes another graph's while owners serve it: they go on with what they have, for who has the same
    head; who has the new one is refused."""
    parts = case.own_parts()
    _halves(case, folder=parts)
    stays = case.sample()
    case.moment(stays)
    case.is_final = True
    came = case.sample(parts=_others(parts)).ends()
    return f"the new head's client: {came}" if came != LOST else stays.ends()


def replaced_and_started_again(case: Case) -> str:
    """An owner that comes back with another graph's folder is as good as none."""
    parts = case.own_parts()
    first, second = _halves(case, folder=parts)
    case.moment(case.sample())
    second.kill()
    case.name(first, case.own("1", folder=_others(parts)))
    return case.ends()


def no_secret(case: Case) -> str:
    _halves(case)
    write_secret(case.folder / "other secret")
    case.sample(secret="other secret")
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


HARMS: dict[str, Harm] = {
    "killed, started elsewhere": Harm(killed_and_started_elsewhere, most_s=ANSWERS_S),
    "killed, started there": Harm(killed_and_started_there, most_s=ANSWERS_S),
    "killed, served from a copy": Harm(killed_and_served_from_a_copy, most_s=ANSWERS_S),
    "killed, a replica left": Harm(killed_with_a_replica, most_s=PASSES_S),
    "killed ten times": Harm(killed_again_and_again, most_s=ANSWERS_S),
    "killed for good": Harm(killed_for_good, LOST),
    "stopped, a replica left": Harm(stopped_with_a_replica, most_s=PASSES_S),
    "stopped for a while": Harm(stopped_for_a_while),
    "stopped for 20 s": Harm(stopped_for_long),
    "parted for a while": Harm(parted),
    "cut for a while": Harm(cut),
    "connections reset": Harm(reset, most_s=PASSES_S),
    "a long way": Harm(far),
    "a cable pulled": Harm(pulled, needs_root=True),
    "half a cable pulled": Harm(half_pulled, needs_root=True),
    "a narrow cable": Harm(narrow, needs_root=True),
    "full folders": Harm(full_folders, needs_root=True),
    "a full log": Harm(full_log, needs_root=True),
    "copied to a full disk": Harm(full_copy, needs_root=True),
    "two clients": Harm(two_clients, most_s=PASSES_S),
    "another graph's parts": Harm(another_graph, LOST),
    "replaced beneath an owner": Harm(replaced_beneath),
    "replaced, started again": Harm(replaced_and_started_again, LOST),
    "without the secret": Harm(no_secret, LOST),
}
