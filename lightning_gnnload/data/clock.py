"""Clock: times as numbers of 32 bits in the same order, which kernels compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.errors import GnnLoadError, GraphDataError, GraphFormatError, SamplerConfigError

Before = Literal["<=", "<"]
MOST_CODES = 2**32 - 1  # so that a bound beyond the last code fits, too
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Clock:
    """Maps times to codes, uint32, that keep their order. Whole numbers are counted from the earliest, in the largest
    unit that divides them all, where 32 bits hold that; others are numbered by their rank among those of the graph.

    Attributes:
        first: the earliest time, where codes count from it.
        last: the latest.
        ranked: the times that the graph has, int64 or float64, ascending, each once; None where codes count.
        timed: bool ``[K]``: which edge types have times; those of the others are always eligible.
        unit: what codes count, in the numbers that times are given in: 10**9 for whole seconds in nanoseconds.
        of_dates: whether times were given as dates, and so are known to be nanoseconds.

    Example:
        >>> clock = Clock.of([np.array([100, 160, 130])])
        >>> clock.codes(np.array([130])).tolist(), clock.until(np.array([130, 99]), "<=").tolist()
        ([30], [31, 0])
    """

    first: int
    last: int
    ranked: np.ndarray | None
    timed: np.ndarray
    unit: int = 1
    of_dates: bool = False

    @classmethod
    def of(cls, times: list[np.ndarray], timed: np.ndarray | None = None, *, of_dates: bool = False) -> Clock:
        """Makes the clock of all these times, each int64 or float64 ``[n]``.

        Raises:
            GraphFormatError: more than 2**32 - 1 different times.
        """
        timed = np.ones(1, np.bool_) if timed is None else timed
        held = [each for each in times if each.size]
        if all(each.dtype == np.int64 for each in held):
            first, last = _span(held)
            unit = 1 if last - first < MOST_CODES else _common_unit(held, first, last)
            if last - first < MOST_CODES * unit:
                return cls(first, last, None, timed, unit, of_dates)
        ranked = np.unique(np.concatenate(held))
        if len(ranked) > MOST_CODES:
            raise GraphFormatError(
                f"the graph has {len(ranked)} different times, but at most {MOST_CODES} can be told apart. Round them."
            )
        return cls(0, 0, ranked, timed, of_dates=of_dates)

    @property
    def ends(self) -> tuple[Any, Any]:
        """The earliest and the latest time."""
        return (self.first, self.last) if self.ranked is None else tuple(self.ranked[[0, -1]].tolist())

    def codes(self, times: np.ndarray) -> np.ndarray:
        """Returns the codes, uint32 ``[n]``, of times that the clock was made of."""
        if self.ranked is None:
            counted = times - self.first
            if self.unit != 1:
                counted //= self.unit
            return counted.astype(np.uint32)
        return np.searchsorted(self.ranked, times).astype(np.uint32)

    def until(self, times: np.ndarray, before: Before) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, below which those lie that are ``before`` it."""
        return self._bound(times, before == "<=")

    def since(self, times: np.ndarray) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, from which on those lie that are not earlier."""
        return self._bound(times, False)

    def eligible(self, times: np.ndarray, before: Before, window: Any = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns which codes count for seeds of these times: for each the one below which they lie, and, with a
        window, the one from which on, uint32 ``[n]``."""
        return self.until(times, before), None if window is None else self.since(_earlier(times, window))

    def _bound(self, times: np.ndarray, beyond: bool) -> np.ndarray:
        if times.dtype.kind == "f" and (self.ranked is None or self.ranked.dtype == np.int64):
            # A time between two whole ones: those before it are before the next.
            times = _whole(np.floor(times) if beyond else np.ceil(times))
        if self.ranked is not None:
            return np.searchsorted(self.ranked, times, side="right" if beyond else "left").astype(np.uint32)
        inside = np.clip(times, self.first, self.last) - self.first
        if beyond:
            code = inside // self.unit + 1
            code[times < self.first] = 0
        else:
            code = -(-inside // self.unit)
            code[times > self.last] = (self.last - self.first) // self.unit + 1
        return code.astype(np.uint32)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values of all but ``ranked``, which :meth:`from_json` reads."""
        numbers = {"first": self.first, "last": self.last, "unit": self.unit}
        return {**numbers, "timed": self.timed.tolist(), "of_dates": self.of_dates}

    @classmethod
    def from_json(cls, values: Any, ranked: np.ndarray | None) -> Clock:
        """Raises GraphFormatError: values that describe no clock."""
        try:
            first, last, unit = (values[name] for name in ("first", "last", "unit"))
            timed, of_dates = values["timed"], values["of_dates"]
            sound = all(type(value) is int for value in (first, last, unit)) and isinstance(timed, list)
            sound = sound and -(2**63) <= first <= last < min(first, 0) + 2**63 and 0 < unit < 2**63
            sound = sound and last - first < MOST_CODES * unit and type(of_dates) is bool
            sound = sound and all(type(each) is bool for each in timed)
        except (KeyError, TypeError) as error:
            raise GraphFormatError(f"{values!r:.200} describes no clock: {error!r}.") from error
        if ranked is not None:
            sound = sound and ranked.dtype in (np.int64, np.float64) and ranked.ndim == 1 and len(ranked) > 0
            sound = sound and bool((ranked[1:] > ranked[:-1]).all())  # which not-a-number fails
        if not sound:
            raise GraphFormatError(f"{values!r:.200} describes no clock: its numbers cannot be.")
        return cls(first, last, ranked, np.array(timed, np.bool_), unit, of_dates)


def _whole(times: np.ndarray) -> np.ndarray:
    """Converts whole floats to int64; those beyond it become its ends."""
    ends = np.iinfo(np.int64)
    within = times.clip(ends.min, np.nextafter(2.0**63, 0)).astype(np.int64)
    return np.where(times < 2.0**63, within, ends.max)


def _span(times: list[np.ndarray]) -> tuple[int, int]:
    """Returns the least and the greatest of whole times, each int64 ``[n]``; 0 of none."""
    ends = [
        (chunk.min(), chunk.max())  # by chunks, which a cache holds for the second
        for held in times
        for chunk in (held[begin : begin + _CHUNK] for begin in range(0, len(held), _CHUNK))
    ]
    return (int(min(low for low, _ in ends)), int(max(high for _, high in ends))) if ends else (0, 0)


def _common_unit(times: list[np.ndarray], first: int, last: int) -> int:
    """Returns the greatest common divisor of what lies between whole times, each int64 ``[n]``."""
    unit = last - first
    if unit >= 2**63:
        return 1
    for held in times:
        for begin in range(0, len(held), _CHUNK):
            since = held[begin : begin + _CHUNK] - first
            # A division by one number is quick, where a common divisor takes several of each.
            if not np.array_equal(since // unit * unit, since):
                unit = int(np.gcd.reduce(since, initial=unit))
    return unit


def _dates(values: Any) -> Any:
    """Converts dates that are no ``datetime64``, such as Python's or a data frame's; other values stay as they are."""
    if isinstance(values, torch.Tensor):
        return values
    dtype: Any = getattr(values, "dtype", None)
    try:
        if getattr(dtype, "tz", None) is not None:  # as objects, pandas' would lose their nanoseconds
            return np.asarray(values, f"datetime64[{dtype.unit}]")
        array = np.asarray(values)
        return array.astype("datetime64") if array.dtype.kind in "OU" else array  # of the unit that they need
    except (TypeError, ValueError):
        return values


def are_dates(values: Any) -> bool:
    """Returns whether :func:`as_times` takes these for dates."""
    array = _dates(values)
    return isinstance(array, np.ndarray) and array.dtype.kind in "Mm"


_NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class TimeForm:
    """Says in which form times were given, so that results have it, too.

    Attributes:
        unit: ``"D"``, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
        zone: of dates, as ``"Europe/Berlin"``; None: they have none.
        is_number: they count ``unit`` since 1970, and are no dates.
    """

    unit: str
    zone: str | None = None
    is_number: bool = False

    @classmethod
    def of(cls, values: Any) -> TimeForm | None:
        """Returns the form of dates; None of numbers."""
        zone, dates = getattr(getattr(values, "dtype", None), "tz", None), _dates(values)
        if not isinstance(dates, np.ndarray) or dates.dtype.kind != "M":
            return None
        unit = np.datetime_data(dates.dtype)[0]
        coarse = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}.get(unit, "ns")  # which Arrow lacks
        return cls(unit if unit in _NANOSECONDS else coarse, None if zone is None else str(zone))

    @classmethod
    def from_json(cls, values: Any) -> TimeForm | None:
        """Raises TypeError: values that are none of :meth:`to_json`, nor None."""
        if values is None:
            return None
        unit, zone, is_number = values
        if unit not in _NANOSECONDS or not isinstance(zone, str | None) or type(is_number) is not bool:
            raise TypeError(f"{values!r:.100} is no form of times")
        return cls(unit, zone, is_number)

    def to_json(self) -> list[Any]:
        """Returns JSON values."""
        return [self.unit, self.zone, self.is_number]

    def of_nanoseconds(self, times: np.ndarray) -> np.ndarray:
        """Returns int64 nanoseconds ``[n]`` in this form; dates with a zone by UTC, as NumPy has no zones."""
        if self.is_number:
            return times // _NANOSECONDS[self.unit]
        return times.view("datetime64[ns]").astype(f"datetime64[{self.unit}]")


def length_of(window: float | np.timedelta64) -> float:
    """Returns a length of time as a number, of a ``timedelta64`` in nanoseconds; whole ones stay whole.

    Raises:
        SamplerConfigError: one that 64 bits cannot count.
    """
    if not isinstance(window, np.timedelta64):
        return window
    return int(as_times(np.array([window]), what="window", error=SamplerConfigError)[0])


def _earlier(times: np.ndarray, window: Any) -> np.ndarray:
    """Returns the times from which on edges count; whole ones stay whole, as floats would round them."""
    length = length_of(window)
    if times.dtype != np.int64:
        return times - length
    ends = np.iinfo(np.int64)
    whole = math.floor(min(length, ends.max))
    return np.maximum(times, ends.min + whole) - whole


def as_times(values: Any, *, what: str, error: type[GnnLoadError] = GraphFormatError) -> np.ndarray:
    """Converts times to int64 or float64 ``[n]``; dates to nanoseconds since 1970, those with a zone by UTC.

    Raises:
        GraphFormatError, or ``error``: no numbers or dates ``[n]``, or one that is not a number (NaN, NaT) or beyond 64
            bits: nanoseconds reach from 1678 to 2262.
    """
    values = _dates(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
        bad = np.isnat(values)
        dates = values.astype(f"{values.dtype.kind}8[ns]")
        # Far ones wrap around. Finer units cannot, and have more digits.
        is_finer = np.datetime_data(values.dtype)[0] in ("ps", "fs", "as")
        lost = ~bad & (dates.astype(values.dtype) != values) & (not is_finer)
        array = dates.view(np.int64)
    else:
        if isinstance(values, torch.Tensor) and values.dtype is torch.bfloat16:
            raise error(f"{what}: times of dtype bfloat16 are too coarse. Give int64 or float64.")
        try:
            values = as_array(values, what=what)
        except GraphDataError as no_array:
            raise error(f"times are numbers or dates; {no_array}") from no_array
        if values.dtype.kind not in "iuf":
            raise error(f"{what}: times must be numbers or datetime64, but the dtype is {values.dtype}.")
        kind = values.dtype.kind
        bad = np.isnan(values) if kind == "f" else np.array(False)
        lost = values > np.iinfo(np.int64).max if kind == "u" else np.array(False)
        array = values.astype(np.float64 if kind == "f" else np.int64, copy=False)
    if array.ndim != 1:
        raise error(f"{what}: times must be [n], one each, but the shape is {list(array.shape)}.")
    for wrong, problem in ((bad, "is no time"), (lost, "does not fit in 64 bits (nanoseconds: 1678 to 2262)")):
        if np.any(wrong):
            first = int(np.argmax(wrong))
            raise error(
                f"{what}[{first}] {problem}: {values[first]}, as {np.sum(wrong)} of {len(array)}. Give others, or "
                "leave these rows out."
            )
    return array
