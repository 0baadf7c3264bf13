"""Harms: what is done to owners of a graph's parts, or to the ways to them, while a process samples from them.

Each returns in a few words what came of it. A new interpreter serves where it is told how soon an owner answers again.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from lightning_gnnload.owners.address import Address
from tests.cluster.delay import DelayProxy
from tests.faults.campaign.cases import STORAGE, TRAINER, Case, write_secret
from tests.integration.scripts import launch
from tests.unit.owners.serving import OwnerProcess

SAME, LOST = "the same batches", "OwnerLostError"
NUM_KILLS = 10
ANSWERS_S = 10.0 * launch.PATIENCE
"""In which an owner that was killed answers again."""
PASSES_S = 3.0 * launch.PATIENCE
"""In which another owner answers in the place of one that is lost; of that, 1 s is a frozen one's deadline."""


def halves(case: Case, **settings: Any) -> tuple[OwnerProcess, OwnerProcess]:
    """Starts an owner of each part."""
    first, second = case.own("0", **settings), case.own("1", **settings)
    case.name(first, second)
    return first, second


def killed_and_started_elsewhere(case: Case) -> str:
    first, second = halves(case)
    case.moment(case.sample())
    second.kill()
    case.name(first, case.own("1", is_anew=True))
    return case.ends()


def killed_and_started_there(case: Case) -> str:
    """At the same address, whose old connections the system has not forgotten."""
    _, second = halves(case)
    case.moment(case.sample())
    second.kill()
    case.own("1", port=Address.parse(second.address).port)
    return case.ends()


def killed_and_served_from_a_copy(case: Case) -> str:
    """As by another machine, which has the part's folder and the head alone."""
    first, second = halves(case)
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
    owners = halves(case)
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
    _, second = halves(case)
    case.moment(case.sample())
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(case.choose.uniform(0.1, 5.0))
    second.process.send_signal(signal.SIGCONT)
    return case.ends()


def stopped_for_long(case: Case) -> str:
    _, second = halves(case)
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
    halves(case, at=STORAGE)
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


def two_clients(case: Case) -> str:
    """Of whom one is killed amid a request: the other does not notice."""
    halves(case)
    left, stays = case.sample(), case.sample()
    case.moment(left)
    left.process.kill()
    case.clients = [stays]
    return case.ends()


def no_secret(case: Case) -> str:
    halves(case)
    write_secret(case.folder / "other secret")
    case.sample(secret="other secret")
    return case.ends()
