"""LateStrategy: trainers whose gradients come late, and idle samplers' gradients, which join theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.gradients.contributors import SwitchingStats
from lightning_gnnload.plugin.gradients.lags import CHECKPOINT_KEY, Lags, check_lags
from lightning_gnnload.plugin.gradients.reduction import DelayedReduction, StalenessStats
from lightning_gnnload.plugin.gradients.staleness import DelayedUpdates, check_module, check_optimizer, check_staleness
from lightning_gnnload.plugin.gradients.switching import (
    Switching,
    check_optimizer_switches,
    check_switching,
    check_train_loader,
)
from lightning_gnnload.plugin.strategy.ranked import RankedStrategy


class LateStrategy(RankedStrategy):
    """A RankedStrategy whose gradients may come late (``staleness``, ``lags``), or from samplers (``switching``).

    What it overrides is what Lightning calls around updates, in trainers only. The arguments are those of
    :class:`.FactoredStrategy`. Raises RoleConfigError: they exclude each other, or other arguments of DDP.
    """

    def __init__(
        self,
        num_samplers: int,
        trainers: int | None,
        sampler_nodes: int,
        *,
        staleness: int,
        switching: bool | int,
        lags: str | None,
        **ddp: Any,
    ) -> None:
        check_staleness(staleness, ddp, switching=bool(switching))
        check_lags(lags, staleness, switching=bool(switching))
        self.staleness = staleness
        self.switching = switching
        self.lags = lags
        self.queue: BatchQueue | None = None
        self.staleness_stats: StalenessStats | None = None  # of the latest fit, where gradients were delayed
        self.switching_stats: SwitchingStats | None = None  # of the latest fit, in trainer 0
        self._updates: DelayedUpdates | None = None
        self._switch: Switching | None = None
        self._past_lags: Tensor | None = None  # of the checkpoint that a fit is resumed from
        super().__init__(num_samplers, trainers, sampler_nodes, **ddp)

    def setup(self, trainer: pl.Trainer) -> None:
        switches = self.switching and not self.roles.is_lone
        if trainer.state.fn != compat.TrainerFn.FITTING or not (self.staleness or switches):
            super().setup(trainer)
            return
        assert self.lightning_module is not None
        if switches:
            check_switching(self, trainer, self.lightning_module)
            assert self.queue is not None
            self._switch = Switching(self.job, self.queue, trainer, self.lightning_module, lambda: self.num_updates)
            self._switch.install(self)
            self.switching_stats = self._switch.stats
        check_module(self.staleness, self.lightning_module, self.precision_plugin)
        super().setup(trainer)
        if switches:
            check_optimizer_switches(self.optimizers[0])
        # Only now: Lightning makes the optimizers in its own ``setup``.
        check_optimizer(self.staleness, self.optimizers[0])

    def _register_ddp_hooks(self) -> None:
        if not self.staleness and self._switch is None:
            super()._register_ddp_hooks()
            return
        assert isinstance(self.model, DistributedDataParallel)
        # With switching alone, the hook delays nothing; it is there to take the contributions in.
        contributions = self._switch.contributions if self._switch is not None else None
        reduction = DelayedReduction(self.staleness, timeout=self._timeout, contributions=contributions)
        after_step = self._switch.after_update if self._switch is not None else lambda: None
        lags = Lags.of(
            self.lags,
            trainer=self.global_rank,
            num_trainers=self.world_size,
            staleness=self.staleness,
            past=self._past_lags,
            load=self.checkpoint_io.load_checkpoint,
        )
        self._updates = DelayedUpdates(self, super().optimizer_step, reduction, lags=lags, after_step=after_step)
        self._updates.begin(self.model)
        self.staleness_stats = reduction.stats

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        if self._updates is None:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        return self._updates.optimizer_step(
            optimizer, closure, model=model, passes_over=self._switch is not None and self._switch.passes, **kwargs
        )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._updates is not None:
            self._updates.before_step()
        if self._switch is not None:
            self._switch.begin_step(batch)
        super().on_train_batch_start(batch, batch_idx)

    def on_train_start(self) -> None:
        if self._switch is not None:
            check_train_loader(self.lightning_module.trainer.train_dataloader)  # type: ignore[union-attr]
        super().on_train_start()

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        checkpoint = super().load_checkpoint(*args, **kwargs)
        self._past_lags = checkpoint.get(CHECKPOINT_KEY)
        return checkpoint

    @property
    def num_updates(self) -> int:
        """Optimizer steps done in this fit, where gradients are delayed or contributed."""
        return self._updates.reduction.stats.applied if self._updates is not None else 0

    def flush(self) -> None:
        """Applies the gradients that are still on their way, in every trainer after the same step. The strategy does
        so wherever Lightning needs complete parameters; call it before you read them in mid-epoch."""
        if self._updates is not None:
            self._updates.flush()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self.flush()
        return super().lightning_module_state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        self.flush()
        return super().optimizer_state(optimizer)

    def on_validation_start(self) -> None:
        self.flush()  # where callbacks were replaced, as in a search for a learning rate
        if self._switch is not None:
            self._switch.pause()
        super().on_validation_start()

    def on_train_end(self) -> None:
        self.flush()
        super().on_train_end()

    def defer_sigterm(self) -> bool:
        """Whether trainers agree among themselves on when to heed a SIGTERM: where no step begins with a broadcast."""
        if self._updates is not None:
            self._updates.reduction.stop_asked = True
        return self._updates is not None

    def teardown(self) -> None:
        if self._updates is not None:
            self._updates.end()
            self._updates = None
        self._past_lags = None
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        super().teardown()
