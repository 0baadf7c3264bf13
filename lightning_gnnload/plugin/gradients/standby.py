"""Standby: how a sampler trains while it has nothing to sample.

Source: GNNLab (EuroSys'22), section 5.3 (dynamic executor switching: a standby trainer beside each sampler).
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torchmetrics import Metric

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import SwitchingError
from lightning_gnnload.nn.accelerate import accelerate
from lightning_gnnload.nn.keys import DropoutStep
from lightning_gnnload.nn.steps import follow
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.streams import Stream, StreamSpec, TrainerPeer
from lightning_gnnload.pipeline.queue.wire import Message
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.accelerate import copied_from
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import MAX_OUT, NUM_COPIES, ParameterExchange, state_of
from lightning_gnnload.plugin.gradients.cost_model import Timings


class ModelReplica:
    """A replica of the model on a sampler, which runs ``training_step`` and backward outside of a fit loop.

    The hooks that build a model (``setup``, ``configure_model``) have run; the callbacks' have not. ``self.trainer``
    has the epoch, and the global step of the parameters; ``self.log`` does nothing; there is no process group. Dropout
    draws from the mini-batch's own seed, so that a gradient does not depend on when it is computed; our own draws what
    the trainer would have drawn.
    """

    def __init__(self, trainer: pl.Trainer, datamodule: Any) -> None:
        self._strategy = strategy = trainer.strategy
        assert strategy.lightning_module is not None
        self.module = strategy.lightning_module
        self._trainer = trainer
        self.module.trainer = trainer
        compat.attach_data_hooks(trainer, self.module, datamodule)
        # Hooks that ask the Trainer for its stage find the one that trainers are in.
        trainer.training = True
        compat.build_model(trainer)
        for callback in copied_from(trainer):
            callback.setup(trainer, self.module, "fit")
            accelerate(self.module)
        strategy.precision_plugin.convert_module(self.module)
        self.module.to(strategy.root_device)
        self.module.train()
        for log in ("log", "log_dict"):
            setattr(self.module, log, _log_nothing)

    def train(self, batch: Any, step: int, *, global_step: int, seed: int) -> dict[str, torch.Tensor | None]:
        """Computes the gradients of one mini-batch, by parameter name; None where a parameter has none. Raises
        SwitchingError: ``training_step`` returned no loss."""
        compat.set_global_step(self._trainer, global_step)
        with self._own_draws(seed):
            moved = self._to_device(batch)
            with self._strategy.precision_plugin.train_step_context():
                output = self._training_step(moved, step)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            if not isinstance(loss, torch.Tensor):
                raise SwitchingError(
                    f"training_step returned {output!r:.100} on a sampler: a loss is needed, for every mini-batch."
                )
            self.module.backward(loss)
        gradients = {}
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                gradients[name], parameter.grad = parameter.grad, None
        for part in self.module.modules():
            if isinstance(part, Metric):
                part.reset()  # the trainers' own count; this one would only grow
        return gradients

    def restore(self) -> None:
        for log in ("log", "log_dict"):
            delattr(self.module, log)

    @property
    def _training_step(self) -> Callable[[Any, int], Any]:
        step = self.module.training_step
        return step if compat.takes_batch_idx(self.module) else lambda batch, _: step(batch)

    def _to_device(self, batch: Any) -> Any:
        batch = self._strategy.precision_plugin.convert_input(batch)
        return self._strategy.batch_to_device(compat.before_transfer(self.module, batch))

    @contextmanager
    def _own_draws(self, seed: int) -> Iterator[None]:
        device = self._strategy.root_device
        # The script goes on after the fit, and must not draw otherwise for what was contributed meanwhile.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield


def seed_of(seed: int, epoch: int, number: int) -> int:
    """The seed that dropout draws from, for one slice of an epoch."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{number}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 1


def _log_nothing(*_: Any, **__: Any) -> None:
    """Takes the place of ``self.log``, as what samplers contribute is not logged."""


_POLL_S = 0.2
_FRESH = 0.9  # what must be left of a version's time for it to count as just published
_MAX_TEXT = 8_000  # characters
_log = logging.getLogger(__name__)


class _Version(NamedTuple):
    """Parameters that trainer 0 has published; ``due_ms`` after it came, a gradient of them is too old."""

    copy: int
    number: int
    global_step: int
    due_ms: float
    fresh_due_ms: float
    came_at: float

    @property
    def left_ms(self) -> float:
        return self.due_ms - (time.perf_counter() - self.came_at) * 1e3


class Standby:
    """Trains on a sampler while that has nothing to sample, and sends the gradients to trainer 0.

    Sampling has precedence: a mini-batch is begun only while none can be sampled for the trainers. The mini-batches
    that it trains are made in private memory, not in the queue's slots. ``replica`` builds the model once trainer 0 has
    opened its first training stream, hence after the trainers' ``setup`` hooks.
    """

    def __init__(
        self,
        service: SamplerService,
        replica: Callable[[], ModelReplica],
        open_loader: Callable[[StreamSpec], SampledLoader],
    ) -> None:
        self._service = service
        self._make_replica = replica
        self._open_loader = open_loader
        self._replica: ModelReplica | None = None
        self._exchange: ParameterExchange | None = None
        self._leader: TrainerPeer | None = None
        self._slots = SlotPool()
        self._training = Timings()
        # Order of locks: the service calls the handlers below under its own lock, and they take ``_news``. So nothing
        # may call the service while it has ``_news``.
        self._news = threading.Condition()
        # Written by the service's reading thread, under _news.
        self._tasks: deque[tuple[int, int]] = deque()  # (stream, slice)
        self._num_asked = 0
        self._version: _Version | None = None
        self._free_copies = list(range(NUM_COPIES))
        service.handlers |= {"task": self._on_task, "parameters": self._on_parameters, "settled": self._on_settled}
        service.companions.append(self.run)

    # The standby thread, which the service starts and waits for.

    def run(self) -> None:
        try:
            while not self._service.is_over:
                if not self._service.wait_until_idle(_POLL_S):
                    continue
                if self._exchange is None:
                    if not self._introduce():
                        time.sleep(_POLL_S)
                    continue
                self._ask()
                if (task := self._next_task()) is not None and self._idles_again():
                    self._contribute(*task)
        except Exception:
            # Not raised: the trainers lose help, and no mini-batch. Sampling goes on.
            text = traceback.format_exc()[-_MAX_TEXT:]
            _log.debug("training failed on a sampler:\n%s", text)
            self._send("withdrawn", text=text)
        finally:
            if self._replica is not None:
                self._replica.restore()
            if self._exchange is not None:
                self._exchange.close()

    def _introduce(self) -> bool:
        """Builds the model once trainer 0 trains, and sends the memory that it and trainer 0 will share."""
        stream = self._service.stream_of(rank=0, phase="train")
        if stream is None:
            return False
        self._leader = stream.trainer
        self._open_loader(stream.spec)  # sets the data module up, on which the model's setup may rely
        self._replica = self._make_replica()
        self._exchange = ParameterExchange(self._replica.module)
        self._send("standby", [self._exchange.slot.fd], digest=self._exchange.digest)
        return True

    def _ask(self) -> None:
        with self._news:
            room = MAX_OUT - len(self._tasks) - self._num_asked
            self._num_asked += room
        if room:
            self._send("offer", room=room)

    def _next_task(self) -> tuple[Stream, int] | None:
        """Returns a slice of an epoch that goes on, once there is memory for its gradient; waits a while for both."""
        with self._news:
            if not self._news.wait_for(lambda: self._tasks and self._free_copies, _POLL_S):
                return None
            number, slice_number = self._tasks.popleft()
        assert self._leader is not None
        stream = self._leader.streams.get(number)
        return None if stream is None else (stream, slice_number)

    def _idles_again(self) -> bool:
        """Waits until all newer requests are sampled; False when the service is over."""
        while not (idles := self._service.wait_until_idle(_POLL_S)) and not self._service.is_over:
            pass
        return idles

    def _contribute(self, stream: Stream, number: int) -> None:
        assert self._replica is not None
        assert self._exchange is not None
        began = time.perf_counter()
        step, rank = divmod(number, self._service.world_size)
        loader = self._open_loader(stream.spec)
        slot = self._slots.take()
        payload = loader.source.make(BatchRequest(stream.spec.epoch, step, rank, self._service.world_size), slot)
        batch = loader.convert(payload.view(self._slots.lend(slot)))
        made_s = time.perf_counter()
        # After sampling: parameters that are taken late are young when the gradient comes.
        if (version := self._timely_version(stream)) is None:
            return
        loaded = time.perf_counter()
        # A newer version may lie there by now; the gradient then counts as older than it is, which is safe.
        self._exchange.load(version.copy, state_of(self._replica.module))
        # Trainer 0 must know the version before the gradient comes, to decide whether to wait for it.
        self._send("begun", stream=stream.number, slice=number, version=version.number)
        seed = seed_of(loader.source.workload.seed, stream.spec.epoch, number)
        at = DropoutStep(loader.source.workload.seed, stream.spec.epoch, step, rank)
        follow(self._replica.module, lambda: at)
        gradients = self._replica.train(batch, step, global_step=version.global_step, seed=seed)
        with self._news:
            # There is one: ``_next_task`` has waited for it, and no other thread takes any.
            copy = self._free_copies.pop()
        for name, view in self._exchange.gradients[copy].items():
            gradient = gradients[name]
            _ = view.zero_() if gradient is None else view.copy_(gradient)
        train_ms = (time.perf_counter() - loaded) * 1e3
        self._training.add(train_ms)
        self._send(
            "gradient",
            stream=stream.number,
            slice=number,
            copy=copy,
            version=version.number,
            make_ms=(made_s - began) * 1e3,  # waiting for parameters is no part of its slowness
            train_ms=train_ms,
        )

    def _timely_version(self, stream: Stream) -> _Version | None:
        """Returns the newest parameters, once a gradient of them can come in time; None when the epoch is over
        first."""
        # Before anything is known, only a version with all of its time left is sure to serve.
        needed_ms = self._training.typical_ms or math.inf

        def is_timely() -> bool:
            version = self._version
            return version is not None and version.left_ms >= min(needed_ms, _FRESH * version.fresh_due_ms)

        while not (stream.closed or self._service.is_over):
            with self._news:
                if self._news.wait_for(is_timely, _POLL_S):
                    return self._version
            self._send("offer", room=0)  # a sign of life, without which trainer 0 publishes no more
        return None

    def _send(self, message: str, fds: list[int] | None = None, **fields: Any) -> None:
        assert self._leader is not None
        try:
            self._leader.channel.send(message, fds or [], **fields)
        except OSError:
            _log.debug("trainer 0 is gone: the service finds out why")

    # The service's reading thread. Only trainer 0 sends these.

    def _on_task(self, trainer: TrainerPeer, message: Message) -> None:
        with self._news:
            self._tasks.append((message["stream"], message["slice"]))
            self._num_asked -= 1
            self._news.notify_all()

    def _on_parameters(self, trainer: TrainerPeer, message: Message) -> None:
        with self._news:
            self._version = _Version(
                message["copy"],
                message["version"],
                message["global_step"],
                message["due_ms"],
                message["fresh_due_ms"],
                time.perf_counter(),
            )
            self._news.notify_all()

    def _on_settled(self, trainer: TrainerPeer, message: Message) -> None:
        with self._news:
            self._free_copies.append(message["copy"])
            self._news.notify_all()
