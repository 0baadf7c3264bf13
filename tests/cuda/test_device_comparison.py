"""What ``gnnload doctor`` compares: every kernel, and any difference is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.plans.planned import PlannedBatches
from lightning_gnnload.plugin.device_report.comparison import Comparison, comparisons, quick_comparisons
from lightning_gnnload.plugin.device_report.row_comparison import ROW_COMPARISONS

from .emulated import EmulatedDevice
from .emulated_libcuda import EmulatedLibcuda

NOT_COMPARED = {
    "copy_pieces/copy_pieces": "launched by native code, which is not listed",
    "probe/do_nothing": "no result",
    "probe/read_random": "tests of its own",
    "probe/lower_random": "tests of its own",
}


def test_every_kernel_is_compared_and_equal() -> None:
    device = EmulatedDevice(num_processors=2, library=EmulatedLibcuda())
    compared = list(comparisons(device))
    assert not [each for each in compared if each.is_bad]
    assert len({each.subject for each in compared}) == len(compared)
    assert all(each.num_cases for each in compared if each.outcome == "equal")
    launched = {name.partition("<")[0] for name in device.launched}
    there = {f"{op}/{kernel}" for op in sources.ops() for kernel in sources.kernels(op)}
    of_several = {name for name in there if name.startswith("partitioned_cache/")}  # devices, which share a cache
    assert there - launched - of_several == NOT_COMPARED.keys()


def test_a_device_is_compared_with_the_cpu(device: Device) -> None:
    assert [each.outcome for each in quick_comparisons(device)] == ["equal"] * 2


ON_TENSORS = ("dropout", "sums and maxima of neighbours")  # which are not read by the device


class Wrong(EmulatedDevice):
    """One bit of each array that is read is another, but for the words that the host goes by."""

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        array = super().read(tensor)
        if array.dtype != np.int64:
            array.reshape(-1).view(np.uint8)[:1] ^= 1
        return array


def test_a_wrong_bit_is_told_where_it_is() -> None:
    first, second = quick_comparisons(Wrong())
    assert (first.outcome, second.outcome) == ("differs", "differs")
    assert first.why == "indptr of hop 0 of step 0, graph 'random, int64 ids'"
    assert first.is_bad


@pytest.mark.parametrize("subject", [name for name in ROW_COMPARISONS if name not in ON_TENSORS])
def test_a_wrong_bit_of_rows_is_told(subject: str) -> None:
    assert any(ROW_COMPARISONS[subject](Wrong()))


def test_a_batch_that_one_call_makes_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlannedBatches, "_differing", lambda *_: "indices of hop 1")
    first, _ = quick_comparisons(EmulatedDevice(library=EmulatedLibcuda()))
    assert first.outcome == "differs"
    assert "made indices of hop 1 of a batch otherwise by one call" in first.why


def test_what_fails_is_told_and_the_next_is_compared() -> None:
    class Broken(EmulatedDevice):
        def launch(self, op: str, *kernel, **arguments) -> None:
            if op == "sample_weighted":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            super().launch(op, *kernel, **arguments)

    outcomes = {}
    for each in comparisons(Broken()):
        outcomes[each.subject] = each
        if each.subject == "walks by weight":
            break
    assert outcomes["neighbours by weight"].why.startswith("RuntimeError: CUDA error: an illegal memory access")
    assert outcomes["walks"] == Comparison("walks", "equal", num_cases=outcomes["walks"].num_cases)
    assert outcomes["walks by weight"].outcome in ("equal", "refused")
    assert not outcomes["walks by weight"].is_bad
