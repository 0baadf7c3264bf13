"""Failure: a record of how one rank ended, as the others are told of it."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any

from lightning_gnnload.errors import (
    CacheConfigError,
    CacheDisagreementError,
    CacheTooSmallError,
    CudaUnavailableError,
    DataDisagreementError,
    ExchangeError,
    KernelCompileError,
    PartitionError,
    PeerError,
    QueueStalledError,
    SamplerDiedError,
    SamplerFailedError,
    TrainerDiedError,
    TrainerFailedError,
)

_MAX_TEXT = 10_000  # characters; escaped, of 12 bytes each at most, they stay within a message
_ERRORS: dict[tuple[str, bool], type[PeerError]] = {
    ("sampler", True): SamplerDiedError,
    ("sampler", False): SamplerFailedError,
    ("trainer", True): TrainerDiedError,
    ("trainer", False): TrainerFailedError,
}


FINAL = (
    CacheConfigError,
    CacheTooSmallError,
    CacheDisagreementError,
    CudaUnavailableError,
    DataDisagreementError,
    ExchangeError,
    KernelCompileError,
    PartitionError,
)
"""A sampler's errors after which no other rank takes its work over. One that did would work without a cache or a
device, which would hide that there is none, would miss the part of the graph that the sampler holds, or would hide that
other data are read.
"""


@dataclass(frozen=True)
class Failure:
    """Which rank ended, in which stage, and why: what the other ranks hear of it.

    ``died``: it vanished without a message. ``text`` is its traceback, or what was seen of its death; empty after an
    interrupt. ``is_final``: no other rank takes over its work.
    """

    role: str
    rank: int
    died: bool
    stage: str
    text: str
    is_final: bool = False

    @classmethod
    def of(cls, error: BaseException, *, role: str, rank: int, stage: str) -> Failure:
        """Returns the failure behind ``error``: a peer's, if the error came from one, else this rank's own."""
        # Who passes a failure on is not its cause: all ranks name the first one.
        if isinstance(error, PeerError) and isinstance(error.failure, Failure):
            return error.failure
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)  # Lightning's SIGTERM is a SystemExit
        text = "" if interrupted else "".join(traceback.format_exception(error))[-_MAX_TEXT:]
        return cls(role, rank, False, stage, text, isinstance(error, FINAL))

    @property
    def interrupted(self) -> bool:
        """Whether the rank was ended by Ctrl-C or SIGTERM, which needs no explanation."""
        return not self.died and not self.text

    def error(self) -> PeerError:
        """Returns the exception to raise in another rank."""
        error_class = _ERRORS.get((self.role, self.died), PeerError)
        how = "was interrupted" if self.interrupted else "failed"
        if self.died and self.stage == "start":
            how = "did not start"
        elif self.died:
            how = "is gone without a word (killed, out of memory, or crashed)"
        error = error_class(f"{self.role} rank {self.rank} {how} in stage {self.stage!r}.\n{self.text}".rstrip())
        error.failure = self
        return error

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Failure:
        return cls(**{name: message[name] for name in cls.__dataclass_fields__})


def not_started(rank: int, why: str | None) -> PeerError:
    """Returns the error for a sampler that never connected, with why it is waited for no longer; None where its process
    was seen to end."""
    text = "Its process has ended; see its own output above."
    if why is not None:
        text = (
            f"It is not waited for any longer: {why}. See its own output above; "
            f"if it is only slow to start, raise FactoredStrategy(connect_timeout_s=...)."
        )
    return Failure("sampler", rank, True, "start", text).error()


def stalled(rank: int, doing: str, timeout_s: float) -> PeerError:
    """Returns the error for a sampler that was asked for something and stayed silent for too long."""
    text = (
        f"nothing came from sampler rank {rank} for {timeout_s:.0f} s ({doing}), although it is connected. "
        f"It may be stopped, or swapping. If a batch really takes so long, raise FactoredStrategy(stall_timeout_s=...)."
    )
    error = QueueStalledError(text)
    error.failure = Failure("sampler", rank, False, doing, text)
    return error


def stuck(rank: int, doing: str, timeout_s: float, where: str) -> Failure:
    """Returns the failure of a sampler whose setup hangs; ``where`` is the stack of the thread that hangs."""
    text = (
        f"For {timeout_s:g} s, nothing moved in it ({doing}): the data module's setup did not return, no rows were "
        f"cached, no mini-batches sampled ahead. Its process ends itself. If setup takes so long, raise "
        f"FactoredStrategy(setup_timeout_s=...). It hangs here:\n{where}"
    )
    return Failure("sampler", rank, False, "setup", text[-_MAX_TEXT:])
