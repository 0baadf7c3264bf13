"""Machines: a process on each machine of a Ray cluster, and calls that are dealt out to them."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import lightning_gnnload
from lightning_gnnload.errors import GnnLoadError, LaunchError, MissingExtraError, warn

ENGINES = ("local", "ray")
"""Who does the work: the process that is asked to, or the machines of a Ray cluster."""
STORAGE = "storage"
"""The custom resource of the machines that reach a cluster's folders. Where none has it, all are taken."""
_START_S = 120.0  # a process imports torch first
_JOIN_S = 10.0
_END_S = 10.0
_RESTARTS = 3  # of a process, before its machine counts as lost


class Machines:
    """Calls methods of an object that each machine of a Ray cluster makes, on as many threads as it has processors.

    The cluster is the one that this process has joined, or else that of ``RAY_ADDRESS``, or of this machine; none is
    started here. Only machines with Ray's resource ``storage`` are taken, where there are such. A process that ends is
    started again, and a machine that is lost is done without: what it was asked is asked anew, so that calls must come
    to the same if they are made twice.

    Args:
        purpose: what the machines do, for errors: ``"gnnload build --engine ray"``.
        folders: that each machine must reach under the same paths.
        num_threads: of each machine, at most; None: its processors.

    Raises:
        MissingExtraError: there is no Ray.
        LaunchError: there is no cluster, or not where ``RAY_ADDRESS`` says; it does not start the processes; or a
            machine has another version of this package, or does not reach the folder.
    """

    def __init__(self, purpose: str, folders: Sequence[Path], *, num_threads: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray", purpose, error) from error
        self._purpose, self._ray, self._has_joined = purpose, ray, False
        self._machines: list[_Machine] = []
        self._recipe: Any = None
        try:
            self._join()
            self._machines = [self._start(node, num_threads) for node in self._nodes()]
            self._check([folder.absolute() for folder in folders])
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._machines)

    @property
    def num_threads(self) -> int:
        """Of all machines."""
        return sum(machine.num_threads for machine in self._machines)

    @property
    def most_threads(self) -> int:
        """Of one machine."""
        return max(machine.num_threads for machine in self._machines)

    def make(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Says how each machine makes the object whose methods are called from now on."""
        self._recipe = self.share((make, arguments))

    def share(self, value: Any) -> Any:
        """Returns what stands for a value among the arguments of calls: machines get the value, but not anew for each
        call."""
        return self._ray.put(value)

    @contextmanager
    def in_order(
        self, method: str, items: Iterable[tuple[Any, ...]], *, at_once: int | None = None
    ) -> Iterator[Iterator[Any]]:
        """Yields an iterator of what a method returns of the arguments in each of ``items``, in their order.

        A machine makes ``at_once`` calls together; None: one on each thread. Items are taken as machines have room for
        them, and twice as many as that before their results are. Errors are raised as they are; LaunchError where no
        machine is left.
        """
        calls: deque[_MachineCall] = deque()

        def results() -> Iterator[Any]:
            for item in items:
                calls.append(self._call(method, item, calls, at_once))
                if len(calls) > 2 * sum(machine.room(at_once) for machine in self._machines):
                    yield self._result(calls.popleft(), calls, at_once)
            while calls:
                yield self._result(calls.popleft(), calls, at_once)

        yield results()

    def close(self) -> None:
        """Ends the processes, and leaves the cluster if it was joined here."""
        for machine in self._machines:
            self._ray.kill(machine.actor)
        for machine in self._machines:  # which may write until then
            with suppress(self._ray.exceptions.RayError):
                # Asked once: Ray tells on the terminal what it asks again.
                self._ray.get(machine.actor.looked_up.options(max_task_retries=0).remote(), timeout=_END_S)
        self._machines = []
        if self._has_joined:
            self._ray.shutdown()

    def __enter__(self) -> Machines:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # How they start.

    def _join(self) -> None:
        if self._ray.is_initialized():
            return
        address = os.environ.get("RAY_ADDRESS") or "auto"
        try:
            _check_address(address)
            # Never a cluster of its own: its ports would be open to all networks of this machine.
            self._ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        except (OSError, RuntimeError, ValueError) as error:
            if address == "auto" and isinstance(error, ConnectionError):
                raise LaunchError(
                    f"{self._purpose}: there is no Ray cluster to join. Start one, ray start --head on this machine "
                    "and ray start --address=FIRST:6379 on the others; or say where it is by RAY_ADDRESS."
                ) from error
            raise LaunchError(
                f"{self._purpose}: the Ray cluster of RAY_ADDRESS={address} cannot be joined: {error}. Give HOST:PORT, "
                "as ray start --head tells it, on a machine that is one of the cluster."
            ) from error
        self._has_joined = True

    def _nodes(self) -> list[dict[str, Any]]:
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        storing = [node for node in nodes if node["Resources"].get(STORAGE, 0) > 0]
        if not nodes:
            raise LaunchError(f"{self._purpose}: no machine of the Ray cluster has a CPU. Start Ray with --num-cpus.")
        return sorted(storing or nodes, key=lambda node: str(node["NodeID"]))

    def _start(self, node: dict[str, Any], num_threads: int | None) -> _Machine:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        threads = max(min(num_threads or 1 << 16, int(node["Resources"]["CPU"])), 1)
        actor = self._ray.remote(MachineProcess).options(
            num_cpus=threads,
            max_concurrency=threads + 1,
            max_restarts=_RESTARTS,
            max_task_retries=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        return _Machine(str(node["NodeManagerAddress"]), actor.remote(), threads)

    def _check(self, folders: Sequence[Path]) -> None:
        """Raises LaunchError: a machine's process does not start in time, or does not find a folder."""
        from ray.exceptions import GetTimeoutError, RayActorError

        try:
            answers = self._ray.get(
                [machine.actor.looked_up.remote(folders) for machine in self._machines], timeout=_START_S
            )
        except (GetTimeoutError, RayActorError) as error:
            raise LaunchError(
                f"{self._purpose}: machines {', '.join(machine.address for machine in self._machines)} did not all "
                f"start within {_START_S:.0f} s. Is the package installed on each, and are its CPUs free (ray status)? "
                f"({error})"
            ) from error
        by_address = {machine.address: answer for machine, answer in zip(self._machines, answers, strict=True)}
        version = lightning_gnnload.__version__
        if strangers := [f"{address} has {theirs}" for address, (_, theirs) in by_address.items() if theirs != version]:
            raise LaunchError(
                f"{self._purpose}: this machine has lightning_gnnload {version}, but {', '.join(strangers)}. "
                f"Install the same on all."
            )
        if lacking := [(missing[0], address) for address, (missing, _) in by_address.items() if missing]:
            raise LaunchError(
                f"{self._purpose}: {' is not on '.join(map(str, lacking[0]))}. All machines need the folder under the "
                f"same path, as of a shared disk. Give those that reach it Ray's resource {STORAGE!r}, and only they "
                f"are taken: ray start --resources='{{\"{STORAGE}\": 1}}'."
            )

    # Calls.

    def _call(
        self, method: str, item: tuple[Any, ...], calls: Iterable[_MachineCall], at_once: int | None
    ) -> _MachineCall:
        """Calls a method of the machine with most room, as soon as one has any."""
        waiting = [call for call in calls if not call.is_done]
        while True:
            if waiting:
                finished, _ = self._ray.wait([call.result for call in waiting], num_returns=len(waiting), timeout=0)
                for call in waiting:
                    call.is_done = call.result in finished
                waiting = [call for call in waiting if not call.is_done]
            load = Counter(call.machine for call in waiting)
            machine = min(self._machines, key=lambda machine: load[machine] / machine.room(at_once))
            if load[machine] < machine.room(at_once):
                return _MachineCall(
                    machine, method, item, machine.actor.call.remote(self._recipe.hex(), self._recipe, method, *item)
                )
            self._ray.wait([call.result for call in waiting], num_returns=1)

    def _result(self, call: _MachineCall, calls: Iterable[_MachineCall], at_once: int | None) -> Any:
        from ray.exceptions import ActorUnschedulableError, RayActorError

        while True:
            try:
                result = self._ray.get(call.result)
            except (RayActorError, ActorUnschedulableError) as error:
                self._lose(call.machine, error)
                call = self._call(call.method, call.item, calls, at_once)
                continue
            if isinstance(result, FailedCall):
                raise result.error
            return result

    def _lose(self, machine: _Machine, error: Exception) -> None:
        """Does without a machine from now on; raises LaunchError where it was the last."""
        if machine in self._machines:
            self._machines.remove(machine)
            warn(f"{self._purpose}: the machine {machine.address} is lost; others do its work.")
        if not self._machines:
            raise LaunchError(
                f"{self._purpose}: no machine is left. The last one, {machine.address}, was lost: {error}. Where "
                "processes are killed for memory, say less of it, or fewer threads."
            ) from error


def _check_address(address: str) -> None:
    """Raises ValueError: it is not that of a cluster; OSError: nobody listens there, and Ray would wait minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError("it is no HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), _JOIN_S).close()


@dataclass(frozen=True, eq=False)
class _Machine:
    address: str
    actor: Any  # Ray's handle of its process
    num_threads: int

    def room(self, at_once: int | None) -> int:
        """How many calls it makes at once."""
        return at_once or self.num_threads


@dataclass
class _MachineCall:
    machine: _Machine
    method: str
    item: tuple[Any, ...]
    result: Any = field(repr=False)  # Ray's reference
    is_done: bool = False


@dataclass(frozen=True)
class FailedCall:
    """The error that a call has ended with."""

    error: Exception


class MachineProcess:
    """What runs on a machine, and makes the object when it is first called: what that raises is then known by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name, self._object = "", None

    def looked_up(self, folders: Sequence[Path] = ()) -> tuple[list[Path], str]:
        """Returns which folders are not there, and the version of this package."""
        return [folder for folder in folders if not folder.is_dir()], lightning_gnnload.__version__

    def call(self, name: str, recipe: tuple[Callable[..., Any], tuple[Any, ...]], method: str, *arguments: Any) -> Any:
        """Calls a method of the object of this ``name``; ``recipe`` is how to make it.

        What a user can meet is returned as a :class:`FailedCall`: of errors that nobody asks for, as of the calls
        behind the one that ends a build, Ray prints where they were raised. Other errors are faults of ours.
        """
        try:
            with self._lock:
                if self._name != name:
                    make, settings = recipe
                    self._name, self._object = name, make(*settings)
                target = self._object
            return getattr(target, method)(*arguments)
        except (GnnLoadError, OSError) as error:
            return FailedCall(error)
