"""Verdicts: whether a device's figures are what the H200's let expect, and why one is not.

A figure of the H200 is scaled by the ceiling that bounds it: by the device's own copy, bus, random reads or atomics
against the H200's. What the host bounds is not scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lightning_gnnload.plugin.device_report import figures
from lightning_gnnload.plugin.device_report.figures import CEILINGS, H200, Figure

BOUND = 1.35
"""A device is slower, or faster, where it takes so many times as long as was expected, or the other way round."""
HOST_BOUND = 2.0
"""Likewise where the host's processor decides, which differs more than devices do."""
_OF_THEORY = 0.7
"""The least share of what a bus or memory could move in theory that copies reach on a sound machine."""
_LANE_GB = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.877}  # a second and PCIe lane, by generation

Answer = Literal["as expected", "slower", "faster", "not judged"]


class Verdict(NamedTuple):
    """A figure beside the H200's."""

    figure: Figure
    h200: float | None
    expected: float | None  # here, by the H200's
    ratio: float | None  # how many times as slow as expected
    answer: Answer

    @property
    def values(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {**self.figure._asdict(), **{name: getattr(self, name) for name in self._fields[1:]}}


def verdicts(measured: Sequence[Figure]) -> list[Verdict]:
    """Judges figures, each by the ceilings among them."""
    values = {figure.name: figure.value for figure in measured}
    return [_verdict(figure, values) for figure in measured]


def _verdict(figure: Figure, values: Mapping[str, float]) -> Verdict:
    reference = H200.get(figure.name)
    if reference is None:
        return Verdict(figure, None, None, None, "not judged")
    scale = 1.0 if reference.bound_by == "host" else _scale(reference.bound_by, values)
    if scale is None or figure.value <= 0:
        return Verdict(figure, reference.value, None, None, "not judged")
    expected = reference.value * scale if reference.more_is_better else reference.value / scale
    ratio = expected / figure.value if reference.more_is_better else figure.value / expected
    bound = HOST_BOUND if reference.bound_by == "host" else BOUND
    answer: Answer = "slower" if ratio > bound else "faster" if ratio < 1 / bound else "as expected"
    return Verdict(figure, reference.value, round(expected, 4), round(ratio, 3), answer)


def _scale(bound_by: str, values: Mapping[str, float]) -> float | None:
    ceiling = CEILINGS.get(bound_by)
    value = None if ceiling is None else values.get(ceiling)
    return value / H200[ceiling].value if value and ceiling else None


def reasons(judged: Sequence[Verdict], device: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence on each thing that is slower than it should be, the likeliest cause in it. ``device`` has what
    :func:`.device_attributes` says."""
    values = {verdict.figure.name: verdict.figure.value for verdict in judged}
    yield from _of_ceilings(values, device)
    for num_seeds, fanouts in figures.BATCHES:
        yield from _of_batch(figures.batch_name(num_seeds, fanouts), figures.kernels_name(num_seeds, fanouts), values)
    for verdict in judged:
        if verdict.answer == "slower":
            yield _of_verdict(verdict)


def _of_ceilings(values: Mapping[str, float], device: Mapping[str, Any]) -> Iterator[str]:
    smi, attributes = device.get("nvidia-smi"), device.get("attributes")
    lanes, generation = _number(smi, "pcie.link.width.max"), _number(smi, "pcie.link.gen.max")
    bus, in_theory = values.get(figures.BUS, 0.0), lanes * _LANE_GB.get(int(generation), 0.0)
    if bus and bus < _OF_THEORY * in_theory:
        now = _number(smi, "pcie.link.width.current")
        narrow = f", of whose lanes {now:.0f} are in use," if 0 < now < lanes else ""
        yield (
            f"A copy to the device moves {bus:.0f} GB/s, where PCIe {generation:.0f} x{lanes:.0f}{narrow} could move "
            f"{in_theory:.0f}. Others may use the bus, the card may sit in a slot of fewer lanes, or this process runs "
            f"on a processor that is far from it (numactl --cpunodebind)."
        )
    bits, khz = _number(attributes, "memory bus bits"), _number(attributes, "memory clock kHz")
    copy, in_theory = values.get(figures.COPY, 0.0), 2 * khz * 1e3 * bits / 8 / 1e9
    if copy and 2 * copy < _OF_THEORY * in_theory:
        yield (
            f"A copy on the device reads and writes {2 * copy:,.0f} GB/s, where its memory could move "
            f"{in_theory:,.0f}. Another process may use the GPU, or its clocks are held down, by power or heat."
        )


def _of_batch(whole: str, kernels: str, values: Mapping[str, float]) -> Iterator[str]:
    if whole in values and kernels in values and values[kernels] < values[whole] / 2:
        yield (
            f"A {whole}, takes {values[whole]:.2f} ms, its kernels {values[kernels]:.3f}. The host takes the rest, "
            f"which hardly grows with the mini-batch: larger ones, or a faster processor, lose less."
        )


def _of_verdict(verdict: Verdict) -> str:
    figure, reference = verdict.figure, H200[verdict.figure.name]
    begin = (
        f"{figure.name[0].upper()}{figure.name[1:]}: {figure.value:,.3g} {figure.unit}, where {verdict.expected:,.3g} "
        f"were expected of the H200's {reference.value:,.3g}"
    )
    why = {
        "host": "the processor is slower, or busy with other work",
        "memory": "the kernel uses less of this device's memory than of the H200's: please report it",
        "bus": "reads of single rows cost more on this bus than copies do: an older processor, or one with an IOMMU",
        "reads": "the kernels use less of this device's random reads than of the H200's: please report it",
        "minima": "the kernels use less of this device's atomics than of the H200's: please report it",
    }[reference.bound_by]
    return f"{begin}. {why[0].upper()}{why[1:]}."


def _number(values: Any, name: str) -> float:
    try:
        return float(values.get(name, 0))
    except (AttributeError, TypeError, ValueError):
        return 0.0
