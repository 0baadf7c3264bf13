"""SamplerPool: a trainer's connections to its samplers: which come, which are lost, what they send."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Container, Sequence

from lightning_gnnload.errors import PeerError, QueueProtocolError, SamplerFailedError
from lightning_gnnload.host import flags, processes
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.queue.failure import Failure, not_started, stalled
from lightning_gnnload.pipeline.queue.remote import NO_REMOTE, RemoteSamplers
from lightning_gnnload.pipeline.queue.sampler_peer import SamplerPeer

_log = logging.getLogger(__name__)
_CONNECT_INTERVAL_S = 0.02  # a listener that is not there yet can only be tried again
_CALL_INTERVAL_S = 0.5  # likewise, on another machine
_GOODBYE_S = 2.0
_POLL_S = 0.2
_LAST_GOODBYE_S = 3.0  # in failure: a batch in the making ends first


class SamplerPool:
    """The samplers of a machine, and those of others, as one trainer is connected to them. Used by one thread.

    Args:
        job: name that the ranks of this job share.
        trainer: local index of this trainer, of ``num_trainers``; ``rank`` is its global rank.
        sampler_ranks: global ranks of the machine's samplers.
        takeover: go on without a sampler that is lost; otherwise its loss is raised.
        stall_timeout_s: for messages about stalled samplers.
        known_gone: ranks of samplers whose loss was reported in an earlier launch.
        device: name of the device with which this trainer reads samplers' device memory, if any.
        remote: samplers of other machines, which follow those of this one in ``peers``.

    Attributes:
        peers: the samplers, by index.
        report: the error that the last failed sampler reported, with its traceback.
        on_message: called with a sampler's message and file descriptors, which it owns if it returns True.
        on_lost: called with a sampler that makes no more mini-batches.
        on_welcome: called with a sampler that is ready to make mini-batches.
    """

    def __init__(
        self,
        job: str,
        *,
        trainer: int,
        num_trainers: int,
        rank: int,
        sampler_ranks: Sequence[int],
        takeover: bool,
        stall_timeout_s: float,
        known_gone: Container[int],
        device: str = "",
        remote: RemoteSamplers = NO_REMOTE,
    ) -> None:
        self.known_gone = known_gone
        self.device = device
        self.job = job
        self.trainer = trainer
        self.num_trainers = num_trainers
        self.rank = rank
        self.takeover = takeover
        self.stall_timeout_s = stall_timeout_s
        self._remote = remote
        self.peers = [
            SamplerPeer(index, rank, is_remote=index >= len(sampler_ranks))
            for index, rank in enumerate([*sampler_ranks, *remote.ranks])
        ]
        self.report: PeerError | None = None
        self.on_message: Callable[[SamplerPeer, wire.Message, list[int]], bool] = lambda *_: False
        self.on_lost: Callable[[SamplerPeer], None] = lambda _: None
        self.on_welcome: Callable[[SamplerPeer], None] = lambda _: None
        self._missed: Failure | None = None
        self._departed: list[SamplerPeer] = []
        # Up before the first hello: a sampler that comes back waits for those whose flags it sees.
        self._alive = Flag(flags.trainer_alive(job, trainer))
        self._stalled: list[Flag] = []

    @property
    def alive(self) -> list[SamplerPeer]:
        """The samplers that make mini-batches."""
        return [peer for peer in self.peers if peer.is_alive]

    @property
    def gone(self) -> list[int]:
        """Ranks of the samplers that have no process any more."""
        return [peer.rank for peer in self.peers if peer.channel is None and peer.end is not None]

    def await_all(
        self,
        patience: Callable[[int], Patience],
        has_ended: Callable[[int], bool],
        on_late: Callable[[int], None] = lambda sampler: None,
    ) -> None:
        """Connects to each sampler; loses those that do not answer within their ``patience``, or whose process has
        ended. ``on_late`` is called with the index of one that is late."""
        patient = {peer: patience(peer.index) for peer in self.peers}
        # Not their successors: who was lost here may still come, but nobody waits for that.
        while awaited := [peer for peer in self.peers if peer.is_awaited and not peer.is_successor]:
            for peer in awaited:
                is_late = patient[peer].is_over()
                # One of another machine that was lost in an earlier launch has left the job, as far as can be seen.
                is_gone = has_ended(peer.index) if not peer.is_remote else peer.rank in self.known_gone
                if is_late or (not self._connect(peer) and is_gone):
                    if is_late and not peer.is_remote:
                        on_late(peer.index)
                    self.lose(peer, not_started(peer.rank, str(patient[peer]) if is_late else None), may_answer=True)
            self.pump(_CONNECT_INTERVAL_S)

    def reconnect(self) -> None:
        """Connects to lost samplers in whose place a process listens: a new one of that rank, or a late one."""
        for peer in self.peers:
            if peer.end is not None and peer.channel is None:
                self._connect_successor(peer)

    def pump(self, timeout_s: float) -> bool:
        """Handles one message of each sampler that sent any, waits for the first up to ``timeout_s``, and returns
        whether there was one.

        Raises PeerError when a trainer has ended (without ``takeover``: or a sampler), QueueProtocolError for a message
        that is none.
        """
        by_channel = {peer.channel: peer for peer in self.peers if peer.channel is not None}
        readable = wire.readable(list(by_channel), timeout_s)
        for channel in readable:
            self._hear(by_channel[channel], channel)
        return bool(readable)

    def free_returned(self) -> None:
        """Gives the slots back whose tensors are gone."""
        for peer in (*self.peers, *self._departed):
            peer.free_returned()
        self._departed = [peer for peer in self._departed if peer.num_slots_used]

    def finish_copies(self) -> None:
        """Waits for the copies from samplers' devices, and gives these slots back."""
        for peer in (*self.peers, *self._departed):
            peer.finish_copies()

    def lose(self, peer: SamplerPeer, reason: PeerError, *, is_gone: bool = True, may_answer: bool = False) -> None:
        """Goes on without a sampler, or raises ``reason`` without takeover. One that raised is not gone: it still
        reports trainers' failures. With ``may_answer``, its connection goes to its successor, since a second hello
        would look like a second trainer."""
        if not self.takeover or (reason.failure is not None and reason.failure.is_final):
            raise reason
        call = None
        if may_answer:
            call, peer.channel = peer.channel, None
        if is_gone:
            peer.disconnect()
        if peer.end is not None:  # it was lost before, and has parted now
            return
        peer.end = reason
        if isinstance(reason, SamplerFailedError):
            self.report = reason
        is_echo = peer.is_successor and not peer.pid
        # Whether one of another machine listens is known only later: it is called once, and then for the next stream.
        if is_gone and not (is_echo and peer.is_remote):
            self._connect_successor(peer, call)
        if is_echo:
            # The call was the dying one's: its listening socket can outlast its connections by an instant.
            return
        # Each trainer loses it in each launch, but it is lost once.
        is_news = self.trainer == 0 and peer.rank not in self.known_gone
        _log.log(logging.WARNING if is_news else logging.DEBUG, "%s\n%s", reason, self._who_takes_over())
        self.on_lost(peer)

    def lose_stalled(self, peer: SamplerPeer, doing: str) -> None:
        """Kills a sampler that is silent with steps due, so that it cannot wake up later and serve trainers that gave
        it up. That of another machine is cut off, and ends by itself when all trainers have done so."""
        reason = stalled(peer.rank, doing, self.stall_timeout_s)
        if self.takeover and not peer.is_remote:
            # Up before it is killed: the other trainers see its connection end, and look for the reason then.
            self._stalled.append(Flag(flags.sampler_stalled(self.job, peer.pid)))
            processes.send_signal(peer.pid, signal.SIGKILL)
        self.lose(peer, reason)

    def failure_behind(self, timeout_s: float) -> PeerError | None:
        """Finds the reason why a collective has failed, if it can be known (another trainer's end, say)."""
        gone = self._trainers_gone()
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline:
                self.pump(0.1)
        except PeerError as error:
            return error
        # No sampler was left to say why. Who is gone first is the cause; its flag may go down after its collectives.
        gone = gone or self._trainers_gone()
        if gone:
            rank = self.rank - self.trainer + gone[0]
            return Failure("trainer", rank, True, "train", "It has left the job.").error()
        return None if self._missed is None else self._missed.error()

    def _trainers_gone(self) -> list[int]:
        peers = [trainer for trainer in range(self.num_trainers) if trainer != self.trainer]
        return [peer for peer in peers if not flags.is_up(flags.trainer_alive(self.job, peer))]

    def goodbye(self, outcome: MemoryFile | None, failure: Failure | None) -> None:
        """Tells all samplers that the job ends, or of a failure, and closes the outcome. The last trainer waits for the
        end of its machine's samplers, up to ``stall_timeout_s``, and kills those that hang."""
        for peer in self.peers:
            if failure is not None:
                peer.send("failed", **failure.to_json())
            elif outcome is not None and (self.rank == 0 or not peer.is_remote):  # others hear of it from many
                peer.send("bye", (outcome.fd,), num_bytes=len(outcome.array))
            else:
                peer.send("bye", num_bytes=0)
            if peer.channel is not None:
                peer.channel.finish()
        if outcome is not None:
            outcome.close()
        # Down before the wait: of several trainers that part at once, each sees that the others have.
        self._alive.lower()
        # All have been told before any is waited for, and end side by side.
        deadline = time.monotonic() + (_GOODBYE_S if failure is None else _LAST_GOODBYE_S)
        connected = [peer for peer in self.peers if peer.channel is not None]
        late = [peer for peer in connected if not peer.ends_by(deadline)]
        if failure is None:
            self._wake(connected)
            self._await_end([peer for peer in late if not peer.is_remote])
        else:
            for peer in (
                peer for peer in late if peer.pids
            ):  # it is stopped, or amid something long, and the job is over
                processes.send_signal(peer.pids[-1], signal.SIGKILL)
        self.close()

    def _await_end(self, late: list[SamplerPeer]) -> None:
        """Waits for samplers that have not ended yet, unless other trainers still need them."""
        deadline = time.monotonic() + self.stall_timeout_s
        while late and len(self._trainers_gone()) == self.num_trainers - 1:
            if time.monotonic() > deadline:
                for peer in late:
                    _log.warning(
                        "Sampler rank %d has not ended within %g s of the end of training, and is killed. No "
                        "mini-batch is missing. Its own output may say what it does.",
                        peer.rank,
                        self.stall_timeout_s,
                    )
                    processes.send_signal(peer.pids[0], signal.SIGKILL)
                return
            self._wake(late)
            late = [peer for peer in late if not peer.ends_by(time.monotonic() + _POLL_S)]

    def _wake(self, peers: list[SamplerPeer]) -> None:
        """Continues samplers that are stopped (SIGSTOP), so that they hear of the end."""
        for peer in peers:
            if any(list(map(processes.wake, peer.pids))):
                _log.warning("Sampler rank %d was stopped when training ended: it is woken up.", peer.rank)

    def close(self) -> None:
        """Closes everything; tensors over slots stay valid."""
        for peer in (*self.peers, *self._departed):
            peer.close()
        for flag in (self._alive, *self._stalled):
            flag.lower()

    def _connect(self, peer: SamplerPeer) -> bool:
        """Connects and says hello, if somebody listens; returns whether it is connected."""
        if peer.channel is None:
            if peer.is_remote:
                # It counts the trainers of all machines, and none can read its device.
                peer.channel, here, device = self._call(peer), self.rank, ""
            else:
                peer.channel, here, device = wire.connect_to_sampler(self.job, peer.index), self.trainer, self.device
            peer.send("hello", version=wire.PROTOCOL_VERSION, trainer=here, rank=self.rank, device=device)
        return peer.channel is not None

    def _call(self, peer: SamplerPeer) -> wire.Channel | None:
        if time.monotonic() < peer.called_at + _CALL_INTERVAL_S:
            return None
        peer.called_at = time.monotonic()
        return self._remote.connect(peer.rank)

    def _connect_successor(self, peer: SamplerPeer, call: wire.Channel | None = None) -> None:
        """Connects to whoever listens in a lost sampler's place, over ``call`` if that is still open: a rank can
        outlive its sampling process, and then serves itself."""
        successor = SamplerPeer(peer.index, peer.rank, is_successor=True, is_remote=peer.is_remote)
        successor.channel = call
        if self._connect(successor):
            self._departed.append(peer)
            self.peers[peer.index] = successor

    def _hear(self, peer: SamplerPeer, channel: wire.Channel) -> None:
        try:
            message, fds = channel.receive()
        except EOFError:
            if peer.is_remote and peer.is_awaited and not peer.is_successor:
                peer.disconnect()  # perhaps it can be reached in a moment: await_all() decides how long to try
            else:
                self.lose(peer, self._reason_of_end(peer))
            return
        peer.heard_at = time.monotonic()
        message_kind = message["kind"]
        # Who has not said welcome may say nothing else, but that the job failed.
        if peer.pid and self.on_message(peer, message, fds):
            return
        for fd in fds:
            os.close(fd)
        if message_kind == "missed":
            self._missed = Failure(
                "trainer", message["rank"], True, "train", "Its connection closed without a goodbye."
            )
        elif message_kind == "failed":
            failure = Failure.from_message(message)
            if (failure.role, failure.rank) != ("sampler", peer.rank):
                raise failure.error()
            self.lose(peer, failure.error(), is_gone=False)
        elif peer.pid:
            raise QueueProtocolError(f"sampler rank {peer.rank} sent {message_kind!r} in mid-stream")
        elif message_kind == "welcome" and message["version"] == wire.PROTOCOL_VERSION:
            peer.rank, peer.pid = message["rank"], message["pid"]
            self.on_welcome(peer)
        else:
            raise QueueProtocolError(
                f"sampler {peer.index} answered {message!r:.200} instead of welcome. Do all ranks run one release?"
            )

    def _reason_of_end(self, peer: SamplerPeer) -> PeerError:
        if peer.pid and not peer.is_remote and flags.is_up(flags.sampler_stalled(self.job, peer.pid)):
            return stalled(peer.rank, "as another trainer saw", self.stall_timeout_s)
        stage = "sample" if peer.pid else "start"
        return Failure("sampler", peer.rank, True, stage, "Its connection closed without a goodbye.").error()

    def _who_takes_over(self) -> str:
        ranks = [str(peer.rank) for peer in self.alive]
        if not ranks:
            return "The trainers sample themselves from here on, the same mini-batches, unless a sampler comes back."
        return f"Sampler rank {' and '.join(ranks)} takes its work over: the same mini-batches."
