"""Site: a machine as the simulation has it, and how bytes pass from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lightning_gnnload.pipeline.forecast.fluid import Command, Compute, Cores, Link, Send, Together


@dataclass(eq=False)
class Site:
    """A machine: its cores, and its link each way."""

    cores: Cores
    sends: Link
    receives: Link

    @classmethod
    def of(cls, cores: Cores, link_gb_s: float) -> Site:
        return cls(cores, Link(link_gb_s * 1e6), Link(link_gb_s * 1e6))


def pass_bytes(num_bytes: float, sender: Site, receiver: Site, sent_ms: float, received_ms: float) -> Iterator[Command]:
    """Passes bytes, which the sender writes and the receiver reads while they are on their way: so the slowest of the
    three decides. Both times are of one core."""
    commands: list[Command] = [Compute(sent_ms, 1, sender.cores), Compute(received_ms, 1, receiver.cores)]
    if sender is not receiver:
        commands.append(Send(num_bytes, (sender.sends, receiver.receives)))
    yield Together(tuple(iter([command]) for command in commands))
