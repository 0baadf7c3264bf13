"""Trainers and Makers: the processes of a run's ranks, which train, and which make mini-batches for those who do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lightning_gnnload.pipeline.forecast.cluster import RemoteTask
from lightning_gnnload.pipeline.forecast.fluid import Command, Compute, Give, Off, Send, Store, Take, Together
from lightning_gnnload.pipeline.forecast.sites import Site, pass_bytes
from lightning_gnnload.pipeline.forecast.state import RunState, in_turn

_STREAM_BYTES = 8 << 20  # of an answer that is worth a further stream (owners/client.py)


class Trainer:
    """A rank that trains: ``number`` of all, on a machine; ``room`` mini-batches may be under way to it."""

    def __init__(self, run: RunState, number: int, site: Site, device: Store, room: int) -> None:
        self.run, self.number, self.site, self.device = run, number, site, device
        self.free, self.made = Store("slots", room), Store("mini-batches")
        self.fetched = Store("mini-batches") if run.work.gather_link_ms else self.made
        self.python = Store("python", 1)
        self._room = Store("room", 1)

    def processes(self) -> dict[str, Iterator[Command]]:
        processes = {f"trainer {self.number}": self._train()}
        if self.run.work.gather_link_ms:
            processes[f"fetcher {self.number}"] = self._fetch()
        return processes

    def _fetch(self) -> Iterator[Command]:
        """Brings missed rows to the trainer's device, one mini-batch ahead of it."""
        batch = 0
        while True:
            yield Take(self._room)
            yield Take(self.made)
            yield Off(self.run.shares_of(self.number, batch).size * self.run.work.gather_link_ms)
            yield Give(self.fetched)
            batch += 1

    def _train(self) -> Iterator[Command]:
        run, number = self.run, self.number
        work, layout, cores = run.work, run.layout, self.site.cores
        for step in range(run.warm_up + run.steps):
            share = run.shares_of(number, step).training
            if step and not run.is_apart:
                yield Give(self.free)  # only now is another one begun
            yield Take(self.fetched)
            if work.gather_link_ms:
                yield Give(self._room)
            if run.is_apart:
                yield from in_turn(self.python, Compute(share * work.convert_ms, 1, cores))
            yield from in_turn(self.python, Compute(work.train_python_ms, 1, cores))
            # Torch's other threads keep their cores while one computes alone: they wait by looking again and again.
            on_cores_ms = work.train_on_cores_ms(layout.torch_threads) - work.train_python_ms
            yield Compute(share * on_cores_ms, layout.torch_threads, cores)
            yield from run.on_device(self.device, share * work.gather_device_ms, share * work.train_device_ms)
            if len(run.arrived) > 1:
                yield Give(run.arrived[number])
                yield Take(run.go[number])
            if run.is_apart:
                yield Give(self.free)
            if number == 0:
                run.step_ends.append(run.clockwork.now_ms)


class Makers:
    """Ranks that make mini-batches for ``trainers``, in turn, each with the layout's threads.

    ``sites`` has the machine of each rank, ``devices`` the device that it draws on, and ``machine`` the number of that
    which trains beside them; -1: they stand on machines of their own, so that mini-batches cross the network.
    """

    def __init__(
        self,
        run: RunState,
        machine: int,
        sites: Sequence[Site],
        trainers: Sequence[Trainer],
        devices: Sequence[Store],
        makers_each: int,
    ) -> None:
        self.run, self.machine, self.sites, self.trainers, self.devices = run, machine, sites, trainers, devices
        self.makers_each = makers_each
        self.threads = [Store("threads", run.layout.threads) for _ in sites]
        # A loader in process shares its interpreter with the training loop.
        self.python = [Store("python", 1) for _ in sites] if run.is_apart else [trainers[0].python]

    def processes(self) -> Iterator[Iterator[Command]]:
        return (self._make(number) for number in range(len(self.sites) * self.makers_each))

    def _make(self, number: int) -> Iterator[Command]:
        run, work, rank = self.run, self.run.work, number % len(self.sites)
        site, python = self.sites[rank], self.python[rank]
        yield Off(run.late_ms(self.trainers[0].number))
        for batch in range(number, 1 << 60, len(self.sites) * self.makers_each):
            trainer, index = self.trainers[batch % len(self.trainers)], batch // len(self.trainers)
            shares = run.shares_of(trainer.number, index)
            yield Take(trainer.free)
            if self.machine < 0:
                yield Off(run.cluster.latency_ms)  # who samples elsewhere hears of it later
            yield Take(self.threads[rank])
            began_ms = run.clockwork.now_ms
            yield from in_turn(python, Compute(work.making_python_ms, 1, site.cores))
            yield from run.on_device(self.devices[rank], shares.making * work.draw_device_ms)
            for task in run.tasks:
                yield from self._ask(task, shares.size, rank)
            core_ms = max(work.making_core_ms - work.making_python_ms, 0.0)
            yield Compute(shares.making * core_ms, 1, site.cores)
            yield Off(shares.making * work.wait_ms)
            if not run.is_apart:
                yield from in_turn(python, Compute(shares.making * work.convert_ms, 1, site.cores))
            run.made_ms += run.clockwork.now_ms - began_ms
            yield Give(self.threads[rank])
            if self.machine < 0:
                yield from self._deliver(shares.size * run.batch_bytes, site, trainer.site)
            yield Give(trainer.made)

    def _deliver(self, num_bytes: float, site: Site, to: Site) -> Iterator[Command]:
        """Sends a mini-batch, which a thread of its own does at either end."""
        costs = self.run.cluster.costs
        yield Compute(costs.answer_ms, 1, site.cores)
        yield from pass_bytes(num_bytes, site, to, costs.answered_ms(num_bytes), costs.asked_ms(num_bytes))
        yield Off(self.run.cluster.latency_ms)
        yield Compute(costs.ask_ms, 1, to.cores)

    def _ask(self, task: RemoteTask, size: float, rank: int) -> Iterator[Command]:
        """Asks all that have a part at once, and waits for the last of them."""
        run, cluster, site = self.run, self.run.cluster, self.sites[rank]
        costs, owners = cluster.costs, run.owners_of(self.trainers[0].number + rank)
        num_asked = len(owners) if run.rounds is None else cluster.machines - 1
        yield Compute(num_asked * costs.ask_ms / 2 + costs.asked_ms(size * task.request_bytes), 1, site.cores)
        if cluster.ahead:
            yield Give(self.threads[rank])
        began_ms = run.clockwork.now_ms
        if run.rounds is not None:
            yield from run.rounds.ask(self.machine, task, size)
        else:
            yield Together(tuple(self._answer(task, size / len(owners), owner, site) for owner in owners))
        run.asked_ms += run.clockwork.now_ms - began_ms
        if cluster.ahead:
            yield Take(self.threads[rank])
        yield Compute(num_asked * costs.ask_ms / 2, 1, site.cores)

    def _answer(self, task: RemoteTask, share: float, owner: Site, site: Site) -> Iterator[Command]:
        """One owner's part of an answer; a large one comes by several streams, each of which has its own messages."""
        cluster, num_bytes = self.run.cluster, share * task.answer_bytes
        streams = int(max(min(cluster.streams, num_bytes * self.run.cluster.parts // _STREAM_BYTES), 1))
        yield Send(share * task.request_bytes, (site.sends, owner.receives))
        yield Off(cluster.latency_ms)
        yield Together(tuple(self._stream(share / streams, task, owner, site) for _ in range(streams)))
        yield Off(cluster.latency_ms)

    def _stream(self, share: float, task: RemoteTask, owner: Site, site: Site) -> Iterator[Command]:
        costs, num_bytes = self.run.cluster.costs, share * task.answer_bytes
        told_ms = costs.answered_ms(share * task.request_bytes)
        yield Compute(share * task.core_ms + costs.answer_ms + told_ms, 1, owner.cores)
        yield from pass_bytes(num_bytes, owner, site, costs.answered_ms(num_bytes), costs.asked_ms(num_bytes))
