"""RayReportCallback: checkpoints within epochs, reported to Ray Train."""

from __future__ import annotations

from typing import Any

from ray.train.lightning import RayTrainReportCallback

from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.settings import check_whole_number


class RayReportCallback(RayTrainReportCallback):
    """Reports a checkpoint to Ray Train every few optimizer steps, beside Ray's own at the end of each epoch.

    With ``RunConfig(failure_config=FailureConfig(max_failures=...))``, Ray starts the workers again when one is lost.
    Training then goes on from the last checkpoint reported, with the mini-batches that were due: its weights are those
    of a run that was never disturbed. A checkpoint is in the file ``checkpoint.ckpt`` of what
    ``ray.train.get_checkpoint()`` returns.

    Args:
        every_n_train_steps: optimizer steps from one report to the next, counted over all epochs.
        **report: arguments of Ray's RayTrainReportCallback.

    Raises:
        LoaderConfigError: ``every_n_train_steps`` is no whole number of at least 1.

    Example:
        >>> def train_function(config):
        ...     checkpoint = ray.train.get_checkpoint()
        ...     path = checkpoint and Path(checkpoint.path, RayReportCallback.CHECKPOINT_NAME)
        ...     trainer = pl.Trainer(strategy=RayFactoredStrategy(), callbacks=[RayReportCallback(500)])
        ...     prepare_trainer(trainer).fit(model, data, ckpt_path=path)
    """

    def __init__(self, every_n_train_steps: int, **report: Any) -> None:
        check_whole_number("every_n_train_steps", every_n_train_steps, LoaderConfigError)
        super().__init__(**report)
        self.every_n_train_steps = every_n_train_steps
        self._reported = 0  # the step of the last report: with accumulated gradients, several batches end at one step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        step = trainer.global_step
        # The end of an epoch is Ray's to report, when it has been counted and validated.
        if step % self.every_n_train_steps or step == self._reported or trainer.is_last_batch:
            return
        super().on_train_epoch_end(trainer, pl_module)  # it saves, reports, and waits for the other trainers
        self._reported = step
