"""A run that is cut short and resumed ends as the run that was not, bit for bit, wherever its checkpoint was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_gnnload.errors import CheckpointError
from tests.integration.scripts import launch
from tests.integration.scripts.resume import BREAKING, CASES, CHECKPOINT
from tests.integration.scripts.toy import Recorder, toy_module

pytestmark = pytest.mark.timeout(600)  # a launch's first test waits for it
SCRIPT = Path(__file__).parent / "scripts" / "resume.py"
# Lightning counts an epoch as done that max_steps or should_stop has ended before a checkpoint is made.
ENDED_EARLY = {"stopped": 20, "endless_ended": 4}
REMAINING = {
    "batch_end": 33,
    "rows": 33,
    "max_steps": 33,
    "endless": 24,
    "accumulate": 31,
    "reload": 13,
    "limited": 2,
    **dict.fromkeys(["validated", "validating", "two_val_loaders"], 30),
    **dict.fromkeys(["last_batch", "validated_last", "epoch_end"], 20),
    **dict.fromkeys(["endless_last_batch", "endless_validated", "endless_epoch_end"], 11),
    # A batch at work comes again; on SIGTERM, Lightning finishes it.
    "error": 34,
    "error_after": 33,
    "sigterm": 33,
}
"""Batches that are trained on after the restart, of 20 an epoch."""
TWO_TRAINERS = ["batch_end", "validated"]
TWO_SAMPLERS = ["batch_end", "reload"]


class Launch:
    """One launch of the script, and what its runs wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, devices: int, strategy: str, runs: str, *names: str, other: Path | str = "-") -> Launch:
        launch.run(SCRIPT, strategy, other, runs, *names, folder=self.folder, num_devices=devices, timeout_s=300)
        return self

    def of(self, case: str, run: str, rank: int = 0) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / case / run / f"trainer-{rank}.json").read_text())
        return record

    def checkpoint(self, case: str) -> Any:
        return torch.load(self.folder / case / CHECKPOINT, weights_only=True)


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """One rank that samples and trains."""
    return Launch(tmp_path_factory.mktemp("auto")).run(1, "auto", "whole,cut,resumed", *CASES, *BREAKING)


@pytest.fixture(scope="module")
def factored(tmp_path_factory: pytest.TempPathFactory, auto: Launch) -> Launch:
    """One sampler and one trainer, which also resumes the checkpoints of the one rank."""
    folder = tmp_path_factory.mktemp("factored")
    return Launch(folder).run(2, "1", "cut,resumed,crossed", *CASES, other=auto.folder)


@pytest.fixture(scope="module")
def two_samplers(tmp_path_factory: pytest.TempPathFactory, factored: Launch) -> Launch:
    """Two samplers and one trainer, which resumes the checkpoints made with one sampler."""
    folder = tmp_path_factory.mktemp("two_samplers")
    return Launch(folder).run(3, "2", "cut,crossed", *TWO_SAMPLERS, other=factored.folder)


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Two ranks that sample and train."""
    return Launch(tmp_path_factory.mktemp("ddp")).run(2, "ddp", "whole,cut,resumed", *TWO_TRAINERS)


@pytest.fixture(scope="module")
def two_trainers(tmp_path_factory: pytest.TempPathFactory, ddp: Launch) -> Launch:
    """One sampler and two trainers."""
    folder = tmp_path_factory.mktemp("two_trainers")
    return Launch(folder).run(3, "1", "cut,resumed,crossed", *TWO_TRAINERS, other=ddp.folder)


def trained(record: dict[str, Any]) -> list[Any]:
    return [entry for entry in record["seen"] if entry[0] == "train"]


def check_end(whole: dict[str, Any], resumed: dict[str, Any]) -> None:
    """All that is seen, training and validation, with the losses; and all bits of the weights."""
    assert resumed["seen"]
    assert resumed["seen"] == whole["seen"][-len(resumed["seen"]) :]
    assert (resumed["step"], resumed["weights"]) == (whole["step"], whole["weights"])


@pytest.mark.parametrize("case", REMAINING)
def test_one_rank_resumes_from_every_kind_of_checkpoint(auto: Launch, case: str) -> None:
    whole, resumed = auto.of(case, "whole"), auto.of(case, "resumed")
    check_end(whole, resumed)
    assert len(trained(resumed)) == REMAINING[case]


@pytest.mark.parametrize("case", [case for case in REMAINING if case in CASES])
def test_so_does_a_trainer_with_a_sampler(auto: Launch, factored: Launch, case: str) -> None:
    whole = auto.of(case, "whole")
    for run in ("resumed", "crossed"):
        check_end(whole, factored.of(case, run))
        assert len(trained(factored.of(case, run))) == REMAINING[case]


@pytest.mark.matrix
@pytest.mark.parametrize("case", TWO_SAMPLERS)
def test_so_does_one_with_two_samplers_where_there_was_one(auto: Launch, two_samplers: Launch, case: str) -> None:
    check_end(auto.of(case, "whole"), two_samplers.of(case, "crossed"))


def check_checkpoint(found: Any, wanted: Any) -> None:
    for part in ("epoch", "global_step", "loops", "lr_schedulers"):
        assert found[part] == wanted[part]
    for part in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(found[part], wanted[part], rtol=0, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_checkpoints_do_not_tell_who_sampled(auto: Launch, factored: Launch, case: str) -> None:
    """Hence those of runs with samplers resume without, or with fewer, as those of runs without do."""
    check_checkpoint(factored.checkpoint(case), auto.checkpoint(case))


@pytest.mark.matrix
@pytest.mark.parametrize("case", TWO_SAMPLERS)
def test_nor_how_many_did(auto: Launch, two_samplers: Launch, case: str) -> None:
    check_checkpoint(two_samplers.checkpoint(case), auto.checkpoint(case))


@pytest.mark.parametrize("case", ENDED_EARLY)
def test_an_epoch_that_was_ended_early_counts_as_lightning_counts_it(auto: Launch, factored: Launch, case: str) -> None:
    """The next one begins, or with max_steps the same goes on; in each, the batches are the uninterrupted run's."""
    for record in (auto.of(case, "resumed"), factored.of(case, "resumed"), factored.of(case, "crossed")):
        digests = [entry[-2] for entry in trained(record)]
        assert digests == [entry[-2] for entry in trained(auto.of(case, "whole"))][-ENDED_EARLY[case] :]


@pytest.mark.matrix
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", TWO_TRAINERS)
def test_two_trainers_resume_with_a_sampler_and_without(
    ddp: Launch, two_trainers: Launch, case: str, rank: int
) -> None:
    whole = ddp.of(case, "whole", rank)
    for resumed in (
        ddp.of(case, "resumed", rank),
        *(two_trainers.of(case, run, rank) for run in ("resumed", "crossed")),
    ):
        check_end(whole, resumed)
        assert len(resumed["seen"]) < len(whole["seen"])


@pytest.mark.matrix
def test_a_job_that_sigterm_has_ended_goes_on(tmp_path: Path, ddp: Launch) -> None:
    ended = tmp_path / "ended"
    arguments = ("1", "-", "cut", "sigterm")
    with launch.start(SCRIPT, *arguments, folder=ended, num_devices=3) as job:
        job.wait(120)
    assert (ended / "sigterm" / CHECKPOINT).exists(), job.output
    resumed = Launch(tmp_path / "resumed").run(3, "1", "crossed", "sigterm", other=ended)
    for rank in range(2):
        check_end(ddp.of("batch_end", "whole", rank), resumed.of("sigterm", "crossed", rank))


def test_another_global_batch_is_refused_in_mid_epoch_and_not_at_an_epochs_end(tmp_path: Path) -> None:
    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    options |= {"limit_val_batches": 0, "default_root_dir": tmp_path, "max_epochs": 2}
    saves = [
        ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=7, save_top_k=-1),
        ModelCheckpoint(tmp_path, "end", every_n_epochs=1),
    ]
    Trainer(**(options | {"max_epochs": 1}), callbacks=saves).fit(Recorder(), toy_module(16))
    for batch_size in (8, 32):
        says = (
            rf"after 7 steps of epoch 0.*global_batch_size=16 then and {batch_size} now.*Give batch_size=16, for 1 x 16"
        )
        with pytest.raises(CheckpointError, match=says):
            Trainer(**options).fit(Recorder(), toy_module(batch_size), ckpt_path=tmp_path / "step=7.ckpt")
        module = Recorder()
        Trainer(**options).fit(module, toy_module(batch_size), ckpt_path=tmp_path / "end.ckpt")
        assert [(entry[2], entry[4]) for entry in module.seen] == [(1, step) for step in range(320 // batch_size)]


def test_a_checkpoint_of_weights_alone_is_no_place_to_resume_at(tmp_path: Path) -> None:
    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
    first = Trainer(**options, limit_train_batches=2, limit_val_batches=0, default_root_dir=tmp_path)
    first.fit(Recorder(), toy_module())
    first.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    with pytest.raises(KeyError, match="contains only the model"):  # Lightning's own words
        Trainer(**options, default_root_dir=tmp_path).fit(Recorder(), toy_module(), ckpt_path=tmp_path / "weights.ckpt")
