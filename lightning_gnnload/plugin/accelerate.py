"""Accelerate: faster steps on CPUs, by a callback; and the step that dropout layers take from a Trainer."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from pathlib import Path

import torch

from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.nn.accelerate import AccelerationReport, accelerate
from lightning_gnnload.nn.keys import DropoutStep
from lightning_gnnload.nn.steps import follow, following
from lightning_gnnload.ops.checks import as_integer_within
from lightning_gnnload.plugin.compat import pl, training_progress

_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # of x86-64, and of Arm
_OF_EVALUATION = 0x5851F42D4C957F2D


def follow_trainer(trainer: pl.Trainer, seed: int) -> None:
    """Has the dropout layers of the Trainer's model draw by its epoch, batch and rank. A batch is a step, also where
    gradients of several are accumulated."""
    follow(trainer.lightning_module, _StepOf(trainer, seed, trainer.global_rank))


def forget_trainer(trainer: pl.Trainer) -> None:
    """Has them draw from torch's generator again, unless they follow another Trainer, amid whose fit this one ran."""
    if trainer.lightning_module is None:
        return
    read = following(trainer.lightning_module)
    if not isinstance(read, _StepOf) or read.trainer is trainer:
        follow(trainer.lightning_module, None)


@dataclass(frozen=True)
class _StepOf:
    """Reads a Trainer's step. A validation whose model is in training mode draws by another seed, so that the masks of
    the next training step do not depend on whether there was one."""

    trainer: pl.Trainer
    seed: int
    rank: int

    def __call__(self) -> DropoutStep:
        seed = self.seed if self.trainer.training else self.seed ^ _OF_EVALUATION
        return DropoutStep(seed, *training_progress(self.trainer), self.rank)


class Accelerate(pl.Callback):
    """A callback that swaps the model's dropout for a faster one when a fit begins; see :func:`.accelerate`.

    On most CPUs, torch's dropout takes a third of a training step. It is swapped after ``configure_model``, and what
    was swapped, or left, is logged. Checkpoints load with the callback and without it. ``gnnload fit --accelerate
    true`` adds it, ``--accelerate bf16`` with ``bf16=True``.

    Args:
        bf16: compute in bfloat16 as well, which is ``Trainer(precision="bf16-mixed")``, where the processor, or the
            GPU, has instructions for it. Elsewhere it would be slower: then precision stays, and a warning says so.
        seed: of dropout's masks, where the data are no :class:`.GraphDataModule`, whose ``seed`` counts else.

    Raises:
        LoaderConfigError: ``bf16`` is no flag, or ``seed`` has more than 64 bits.

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[Accelerate()], logger=False, accelerator="cpu")
    """

    def __init__(self, bf16: bool = False, seed: int = 0) -> None:
        if not isinstance(bf16, bool):
            raise LoaderConfigError(f"Accelerate: bf16 is {bf16!r}, but must be True or False.")
        self.bf16 = bf16
        self.seed = as_integer_within("Accelerate: seed", seed, 0, (1 << 64) - 1, LoaderConfigError)
        self.report: AccelerationReport | None = None
        """What the last fit has swapped."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        strategy = trainer.strategy
        if not self.bf16 or type(strategy.precision_plugin) is not pl.plugins.Precision:
            return
        device = strategy.root_device.type
        if (reason := reason_against_bf16(device)) is not None:
            pl.utilities.rank_zero.rank_zero_warn(f"Accelerate(bf16=True) stays with float32: {reason}")
            return
        strategy.precision_plugin = pl.plugins.MixedPrecision("bf16-mixed", device)
        pl.utilities.rank_zero.rank_zero_info("Accelerate: computes in bfloat16, as Trainer(precision='bf16-mixed')")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.report = accelerate(pl_module)
        pl.utilities.rank_zero.rank_zero_info(f"Accelerate: {self.report}")
        follow_trainer(trainer, self.seed)  # the loaders of a GraphDataModule, which come later, have its own seed

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        forget_trainer(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        forget_trainer(trainer)  # no teardown comes


def copied_from(trainer: pl.Trainer) -> list[Accelerate]:
    """Copies of a Trainer's callbacks of this class, for what trains its model elsewhere, where no callbacks run."""
    return [copy(callback) for callback in trainer.callbacks if isinstance(callback, Accelerate)]  # type: ignore[attr-defined]


def reason_against_bf16(device: str, cpu_info: str = "/proc/cpuinfo") -> str | None:
    """Why bfloat16 would make a model slower on a device of this type; None where it has instructions for it."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        return None if torch.cuda.is_bf16_supported() else f"{name} has no instructions for bfloat16."
    if device != "cpu":
        return f"it is not known whether {device} computes in bfloat16. Give Trainer(precision='bf16-mixed') to try."
    try:
        lines = Path(cpu_info).read_text().splitlines()
    except OSError:  # no Linux
        lines = []
    fields = {key.strip(): value for key, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", fields.get("Features", "")).split()
    if not set(flags).isdisjoint(_BF16_FLAGS):
        return None
    return (
        f"this processor ({fields.get('model name', 'unknown').strip()}) has none of {', '.join(_BF16_FLAGS)}, by "
        "which bfloat16 is faster. Give Trainer(precision='bf16-mixed') to use it all the same."
    )
