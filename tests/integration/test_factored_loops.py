"""FactoredStrategy against the same data module under Lightning's own strategies: the same batches, losses and
weights, bit for bit, whatever Lightning's loops are told to do."""

from __future__ import annotations

import json
from collections import Counter, deque
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import seed_everything
from torch.nn import functional

from tests.integration.scripts import launch
from tests.integration.scripts.loops import CASES, WITH_TWO_TRAINERS
from tests.integration.scripts.toy import Recorder, digest, toy_module
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(400)  # the first test waits for three launches
SCRIPT = Path(__file__).parent / "scripts" / "loops.py"
TRAINERS = {1: "auto", 2: "ddp"}
"""Lightning's own strategy for each number of trainers."""

WITH_ONE = list(CASES)
WITH_TWO = [case for case in WITH_TWO_TRAINERS if case in CASES]


class Records:
    """What the runs of one launch wrote, by number of trainers, case and file."""

    def __init__(self, job: launch.Job, folder: Path) -> None:
        self.output = job.output
        self.folder = folder

    def of(self, num_trainers: int, case: str, file: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(
            (self.folder / f"trainers-{num_trainers}" / case / f"{file}.json").read_text()
        )
        return record

    def trainers(self, num_trainers: int, case: str) -> list[dict[str, Any]]:
        return [self.of(num_trainers, case, f"trainer-{rank}") for rank in range(num_trainers)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Records]:
    """Under Lightning's own strategies, sampling in each rank; by number of trainers."""
    found = {}
    for num_trainers, strategy in TRAINERS.items():
        folder = tmp_path_factory.mktemp(strategy)
        names = WITH_ONE if num_trainers == 1 else WITH_TWO
        found[num_trainers] = Records(
            launch.run(SCRIPT, strategy, *names, folder=folder, num_devices=num_trainers), folder
        )
    return found


@pytest.fixture(scope="module")
def factored(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """On three devices: one sampler and two trainers, then two samplers and one trainer."""
    folder = tmp_path_factory.mktemp("factored")
    return Records(launch.run(SCRIPT, "factored", folder=folder, num_devices=3), folder)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """As ``factored``, at staleness 2."""
    folder = tmp_path_factory.mktemp("stale")
    return Records(launch.run(SCRIPT, "stale", folder=folder, num_devices=3, timeout_s=300), folder)


@pytest.mark.parametrize(("num_trainers", "case"), [(1, case) for case in WITH_ONE] + [(2, case) for case in WITH_TWO])
def test_batches_losses_and_weights_are_those_of_the_training_ranks_alone(
    own: dict[int, Records], factored: Records, num_trainers: int, case: str
) -> None:
    wanted, found = own[num_trainers].trainers(num_trainers, case), factored.trainers(num_trainers, case)
    assert [record["seen"] for record in found] == [record["seen"] for record in wanted]
    assert [record["weights"] for record in found] == [record["weights"] for record in wanted]
    assert [record["step"] for record in found] == [record["step"] for record in wanted]
    # Samplers included, which get what trainer 0 has: the script goes on alike in every rank.
    for rank in range(3):
        wanted_hands = own[num_trainers].of(num_trainers, case, f"hands-{rank if rank < num_trainers else 0}")
        if rank >= num_trainers:
            wanted_hands["predicted"] = [[]] if wanted_hands["predicted"] else []
        assert factored.of(num_trainers, case, f"hands-{rank}") == wanted_hands


@pytest.mark.matrix
@pytest.mark.parametrize(("num_trainers", "case"), [(1, case) for case in WITH_ONE] + [(2, case) for case in WITH_TWO])
def test_with_late_gradients_the_batches_are_the_same_and_no_update_is_missing(
    own: dict[int, Records], stale: Records, num_trainers: int, case: str
) -> None:
    for wanted, found in zip(
        own[num_trainers].trainers(num_trainers, case), stale.trainers(num_trainers, case), strict=True
    ):
        assert [entry[:-1] for entry in found["seen"]] == [entry[:-1] for entry in wanted["seen"]]  # all but the loss
        assert found["step"] == found["updates"] == wanted["step"]
    assert len({record["weights"] for record in stale.trainers(num_trainers, case)}) == 1


@pytest.mark.matrix
@pytest.mark.parametrize("num_trainers", TRAINERS)
def test_a_run_with_late_gradients_resumes_in_mid_epoch(stale: Records, num_trainers: int) -> None:
    """Bit for bit, losses and weights, if it is given the lags of the run that was not interrupted."""
    for whole, resumed in zip(
        stale.trainers(num_trainers, "saving"), stale.trainers(num_trainers, "resumed_saving"), strict=True
    ):
        assert resumed["seen"] == [entry for entry in whole["seen"] if entry[3] >= 5]
        assert len(resumed["seen"]) < len(whole["seen"])
        assert resumed["weights"] == whole["weights"]
        assert resumed["updates"] == resumed["step"] == whole["step"]


@pytest.mark.matrix
def test_late_gradients_of_sampled_batches_are_those_of_a_plain_loop(stale: Records) -> None:
    """Two epochs on the toy graph, each flushed at its end; each step begins with the lag that was recorded."""
    torch.set_num_threads(1)
    seed_everything(1, verbose=False)
    model, data = Recorder(), toy_module()
    optimizer = model.configure_optimizers()
    loader = data.train_dataloader()
    checkpoint = torch.load(stale.folder / "trainers-1" / "checkpoints" / "saved-step=20.ckpt", weights_only=False)
    lags = iter(checkpoint["gnnload_lags"][0].tolist())
    for epoch in range(2):
        loader.set_epoch(epoch)
        late: deque[list[torch.Tensor]] = deque()

        def apply(num_left: int, late: deque[list[torch.Tensor]] = late) -> None:
            while len(late) > num_left:
                for parameter, gradient in zip(model.parameters(), late.popleft(), strict=True):
                    parameter.grad = gradient
                optimizer.step()

        for batch in islice(loader, 10):
            apply(next(lags))
            loss = functional.cross_entropy(model(batch), batch.y)
            late.append(list(torch.autograd.grad(loss, list(model.parameters()))))
            apply(2)
        apply(0)
    (record,) = stale.trainers(1, "saving")
    assert record["weights"] == digest(model.state_dict().values())


def test_the_cases_do_what_they_are_named_for(factored: Records) -> None:
    """Equal runs prove nothing where both do nothing."""

    def phases(case: str) -> list[tuple[str, int]]:
        """(phase, number of batches) in the order of events."""
        runs: list[list[Any]] = []
        for phase, loader, *_ in factored.of(1, case, "trainer-0")["seen"]:
            name = f"{phase}{loader or ''}"
            if runs and runs[-1][0] == name:
                runs[-1][1] += 1
            else:
                runs.append([name, 1])
        return [(name, number) for name, number in runs]

    assert phases("sanity") == [("sanity", 2), ("train", 20), ("val", 5)]
    assert phases("two_val_loaders") == [
        ("sanity", 1),
        ("sanity1", 1),
        ("train", 20),
        ("val", 5),
        ("val1", 4),
    ]
    assert phases("limit_int") == [("train", 3), ("val", 2)]
    assert phases("limit_float") == [("train", 10), ("val", 2)]
    assert phases("limit_0") == []
    assert phases("val_interval") == [("sanity", 1), *[("train", 5), ("val", 5)] * 4]
    val = ("val", 9)
    assert phases("reload") == [("train", 40), val, ("train", 20), val, ("train", 14), val]
    assert phases("fast_dev_run") == [("train", 3), ("val", 3)]
    assert [phase for phase, _ in phases("after")] == ["train", "val", "test", "predict"]
    overfit = [entry[-2] for entry in factored.of(1, "overfit", "trainer-0")["seen"] if entry[0] == "train"]
    assert overfit[:3] == overfit[3:]


@pytest.mark.parametrize("num_trainers", TRAINERS)
def test_a_run_resumes_in_mid_epoch(own: dict[int, Records], factored: Records, num_trainers: int) -> None:
    for records in (own[num_trainers], factored):
        for whole, resumed in zip(
            records.trainers(num_trainers, "uninterrupted"),
            records.trainers(num_trainers, "resumed"),
            strict=True,
        ):
            assert resumed["seen"] == [entry for entry in whole["seen"] if entry[3] >= 7]
            assert len(resumed["seen"]) < len(whole["seen"])
            assert resumed["weights"] == whole["weights"]


def test_two_trainers_share_the_steps_of_one(factored: Records) -> None:
    """Of each global step, the seeds in order and the union of the sampled edges."""
    (alone,), shared = factored.trainers(1, "union"), factored.trainers(2, "union")
    assert len(alone["drawn"]) == 3
    for step, (phase, seeds, edges) in enumerate(alone["drawn"]):
        slices = [record["drawn"][step] for record in shared]
        assert phase == "train"
        assert [seed for _, part, _ in slices for seed in part] == seeds
        assert {tuple(edge) for _, _, part in slices for edge in part} == {tuple(edge) for edge in edges}


def test_predictions_come_in_order_and_once(factored: Records) -> None:
    alone = list(chain.from_iterable(factored.of(1, "after", "hands-0")["predicted"]))
    assert len(alone) == len(set(alone)) == 50
    assert factored.of(1, "hoard", "hands-0")["predicted"] == [alone[i : i + 4] for i in range(0, 50, 4)]
    first, second = (factored.of(2, "after", f"hands-{rank}")["predicted"] for rank in range(2))
    assert list(chain.from_iterable(a + b for a, b in zip(first, second, strict=True))) == alone
    assert factored.of(2, "after", "hands-2")["predicted"] == [[]], "no rows, in the form of the others"


def test_any_number_of_threads_and_slots_gives_the_same_batches(factored: Records) -> None:
    names = ["threads_1", "threads_2", "threads_4", "shallow"]
    seen = [factored.of(1, name, "trainer-0")["seen"] for name in names]
    assert seen == [seen[0]] * len(names)
    assert Counter(entry[0] for entry in seen[0])["train"] == 8


def test_a_plain_data_loader_works_with_a_warning(factored: Records) -> None:
    first, second = (record["seen"] for record in factored.trainers(2, "plain_loader"))
    assert [len(batches) for batches in (first, second)] == [4, 4]
    rows = [row for _, batch, _ in first + second for row in batch]
    assert len(set(rows)) == 64, "Lightning's distributed sampler must count the trainers alone"
    assert "which trainers read themselves while the samplers are idle" in factored.output


def test_the_strategy_goes_by_its_name(factored: Records, own: dict[int, Records]) -> None:
    assert [len(record["seen"]) for record in factored.trainers(2, "by_name")] == [6, 6]
    assert own[2].trainers(2, "limit_float")[0]["seen"][:3] == factored.trainers(2, "by_name")[0]["seen"][:3]


@pytest.mark.parametrize(
    ("how", "case"),
    mostly_matrix([("spawn", "uninterrupted"), ("fork", "interrupted"), ("torchrun", "after")], ("torchrun", "after")),
)
def test_other_launchers_give_the_same(own: dict[int, Records], tmp_path: Path, how: str, case: str) -> None:
    found = Records(launch.run(SCRIPT, "factored", case, folder=tmp_path, how=how, num_devices=2), tmp_path)
    assert found.of(1, case, "trainer-0") == own[1].of(1, case, "trainer-0")
    wanted, hands = own[1].of(1, case, "hands-0"), found.of(1, case, "hands-0")
    if how in ("spawn", "fork"):
        wanted["epoch"] = 0  # Lightning brings no loop's progress back to the script's process
    assert hands == wanted
