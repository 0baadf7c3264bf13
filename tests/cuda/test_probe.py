"""Probes do the work that they count: what they read and lower is known to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload.ops.cuda import probe
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import Moment, timed_ms, wall_ms

THREADS = 2 * 64  # two blocks


def random_places(count: int, num_words: int) -> np.ndarray:
    """MurmurHash3's finaliser of 0 .. count - 1, scaled."""
    number = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            number ^= number >> np.uint64(33)
            number *= np.uint64(factor)
    number ^= number >> np.uint64(33)
    return ((number >> np.uint64(32)) * np.uint64(num_words)) >> np.uint64(32)


@pytest.mark.parametrize("num_words", [1, 1000])
def test_every_read_is_made(device: Device, num_words: int) -> None:
    table = np.random.default_rng(num_words).integers(0, 1 << 32, num_words, dtype=np.uint32)
    sums = device.empty(THREADS, torch.int32)
    on_device = device.put(table.view(np.int32))
    device.launch(
        "probe", "read_random", blocks=2, threads=64, table=on_device, num_words=num_words, num_turns=3, sums=sums
    )
    expected = table[random_places(THREADS * 24, num_words)].reshape(THREADS, 24).sum(axis=1, dtype=np.uint32)
    assert np.array_equal(device.read(sums).view(np.uint32), expected)


def test_every_minimum_is_taken(device: Device) -> None:
    table = device.empty(50, torch.int32).fill_(-1)
    device.launch("probe", "lower_random", blocks=2, threads=64, table=table, num_words=50, num_turns=3)
    expected = np.full(50, 0xFFFFFFFF, np.uint32)
    np.minimum.at(expected, random_places(THREADS * 3, 50), np.arange(THREADS * 3, dtype=np.uint32))
    assert np.array_equal(device.read(table).view(np.uint32), expected)


def test_rates_count_what_a_turn_does(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def took_a_millisecond(device: Device, work, num_turns: int) -> float:
        work()
        return 1.0

    monkeypatch.setattr(probe, "timed_ms", took_a_millisecond)
    assert probe.random_reads_per_s(device, 4096, turns_a_thread=3, blocks=2) == 2 * 256 * 3 * 8 * 1e3
    assert probe.random_minima_per_s(device, 4096, turns_a_thread=3, blocks=2) == 2 * 256 * 3 * 1e3
    assert probe.copy_bytes_per_s(device, 1000) == 1000 * 1e3


def test_a_launch_and_a_turn_take_time(device: Device) -> None:
    assert 0 < probe.launch_us(device, num_launches=3) < 1e6
    assert wall_ms(lambda: None, num_turns=3) >= 0
    assert timed_ms(device, lambda: device.zeros(1, torch.int32), num_turns=2) >= 0
    before = Moment(device)
    assert Moment(device).ms_since(before) >= 0
