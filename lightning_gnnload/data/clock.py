"""Clock: maps times to 32-bit codes in the same order, which kernels compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.errors import GnnLoadError, GraphDataError, GraphFormatError, SamplerConfigError

Before = Literal["<=", "<"]
MOST_CODES = 2**32 - 1  # one less than fit, so that the bound beyond the last code fits, too
_CHUNK = 1 << 20  # times: 8 MB, which a cache still holds for the second pass


@dataclass(frozen=True)
class Clock:
    """Maps times to uint32 codes that keep their order.

    Whole numbers are counted from the earliest, in the largest unit that divides them all, if 32 bits hold that. Other
    times are numbered by their rank among those of the graph.

    Example:
        >>> clock = Clock.of([np.array([100, 160, 130])])
        >>> clock.codes(np.array([130])).tolist(), clock.until(np.array([130, 99]), "<=").tolist()
        ([30], [31, 0])
    """

    first: int  # the earliest and latest time, where codes count from the first
    last: int
    ranked: np.ndarray | None  # the distinct times, int64 or float64 ``[n]``, ascending; None where codes count
    timed: np.ndarray  # bool ``[K]``, the edge types that have times; edges of others are always eligible
    unit: int = 1  # that codes count: 10**9 for whole seconds in nanoseconds
    has_dates: bool = False  # times were dates, and so are nanoseconds

    @classmethod
    def of(cls, times: list[np.ndarray], timed: np.ndarray | None = None, *, has_dates: bool = False) -> Clock:
        """Makes the clock of all these arrays of times, each int64 or float64 ``[n]``."""
        timed = np.ones(1, np.bool_) if timed is None else timed
        arrays = [array for array in times if array.size]
        if all(array.dtype == np.int64 for array in arrays):
            first, last = _span(arrays)
            # The common unit takes another pass over all times, so it is looked for only where a unit of 1 is too fine.
            unit = 1 if last - first < MOST_CODES else _common_unit(arrays, first, last)
            if last - first < MOST_CODES * unit:
                return cls(first, last, None, timed, unit, has_dates)
        ranked = np.unique(np.concatenate(arrays))
        if len(ranked) > MOST_CODES:
            raise GraphFormatError(
                f"the graph has {len(ranked)} different times, but at most {MOST_CODES} can be told apart. Round them."
            )
        return cls(0, 0, ranked, timed, has_dates=has_dates)

    @property
    def span(self) -> tuple[Any, Any]:
        return (self.first, self.last) if self.ranked is None else tuple(self.ranked[[0, -1]].tolist())

    def codes(self, times: np.ndarray) -> np.ndarray:
        """Returns the uint32 codes ``[n]`` of times that the clock was made of."""
        if self.ranked is None:
            counted = times - self.first
            if self.unit != 1:
                counted //= self.unit
            return counted.astype(np.uint32)
        return np.searchsorted(self.ranked, times).astype(np.uint32)

    def times(self, codes: np.ndarray) -> np.ndarray:
        """Returns the times ``[n]`` that have these codes, int64, or float64 where the clock was made of floats."""
        return codes.astype(np.int64) * self.unit + self.first if self.ranked is None else self.ranked[codes]

    def until(self, times: np.ndarray, before: Before) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, below which all earlier times (or equal ones) have theirs."""
        return self._bound(times, before == "<=")

    def since(self, times: np.ndarray) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, from which on no time is earlier."""
        return self._bound(times, False)

    def eligible(self, times: np.ndarray, before: Before, window: Any = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the range of codes that seeds of these times may see, each uint32 ``[n]``.

        They are those below the first array and, with a window, from the second one on.
        """
        return self.until(times, before), None if window is None else self.since(_earlier(times, window))

    def _bound(self, times: np.ndarray, beyond: bool) -> np.ndarray:
        if times.dtype.kind == "f" and (self.ranked is None or self.ranked.dtype == np.int64):
            # Between two whole times: what is before a fraction is before the next whole one. Floats would not do, as
            # they cannot tell large int64 apart.
            times = _clipped_int64(np.floor(times) if beyond else np.ceil(times))
        if self.ranked is not None:
            return np.searchsorted(self.ranked, times, side="right" if beyond else "left").astype(np.uint32)
        # Clipped first, as the difference of far times wraps around.
        inside = np.clip(times, self.first, self.last) - self.first
        if beyond:
            code = inside // self.unit + 1
            code[times < self.first] = 0
        else:
            code = -(-inside // self.unit)
            code[times > self.last] = (self.last - self.first) // self.unit + 1
        return code.astype(np.uint32)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values of all but ``ranked``."""
        numbers = {"first": self.first, "last": self.last, "unit": self.unit}
        return {**numbers, "timed": self.timed.tolist(), "of_dates": self.has_dates}

    @classmethod
    def from_json(cls, values: Any, ranked: np.ndarray | None) -> Clock:
        """Reads a clock from a file that anyone may have written. Raises GraphFormatError: it describes none."""
        try:
            first, last, unit = (values[name] for name in ("first", "last", "unit"))
            timed, has_dates = values["timed"], values["of_dates"]
            flags = [*timed, has_dates] if isinstance(timed, list) else [None]
            sound = {type(number) for number in (first, last, unit)} == {int} and {type(flag) for flag in flags} == {
                bool
            }
            sound = sound and -(2**63) <= first <= last < min(first, 0) + 2**63 and 0 < unit < 2**63
            sound = sound and last - first < MOST_CODES * unit
        except (KeyError, TypeError) as error:
            raise GraphFormatError(f"{values!r:.200} describes no clock: {error!r}.") from error
        if not sound:
            raise GraphFormatError(f"{values!r:.200} describes no clock: its numbers cannot be.")
        if ranked is not None and not _ascends(ranked):
            raise GraphFormatError(
                f"clock_ranked must be int64 or float64 times [T] that ascend, but it is {ranked.dtype} "
                f"{list(ranked.shape)}{'' if ranked.ndim != 1 else ', or does not ascend'}."
            )
        return cls(first, last, ranked, np.array(timed, np.bool_), unit, has_dates)


def _ascends(ranked: np.ndarray) -> bool:
    is_array = ranked.dtype in (np.int64, np.float64) and ranked.ndim == 1 and len(ranked) > 0
    return is_array and bool((ranked[1:] > ranked[:-1]).all())  # false for not-a-number, too


def _clipped_int64(times: np.ndarray) -> np.ndarray:
    """Converts whole floats to int64; those beyond it become its least or greatest number."""
    # 2**63 - 1 is no float: the largest one below 2**63 is the last that converts without wrapping around.
    limits = np.iinfo(np.int64)
    within = times.clip(limits.min, np.nextafter(2.0**63, 0)).astype(np.int64)
    return np.where(times < 2.0**63, within, limits.max)


def _span(times: list[np.ndarray]) -> tuple[int, int]:
    """Returns the least and the greatest time of int64 arrays ``[n]``; 0 of none."""
    bounds = [
        (chunk.min(), chunk.max())
        for array in times
        for chunk in (array[begin : begin + _CHUNK] for begin in range(0, len(array), _CHUNK))
    ]
    return (int(min(low for low, _ in bounds)), int(max(high for _, high in bounds))) if bounds else (0, 0)


def _common_unit(times: list[np.ndarray], first: int, last: int) -> int:
    """Returns the greatest common divisor of the differences between times, int64 arrays ``[n]``."""
    unit = last - first
    if unit >= 2**63:
        return 1
    for array in times:
        for begin in range(0, len(array), _CHUNK):
            since = array[begin : begin + _CHUNK] - first
            # The check is one division a time, where a common divisor takes several. Most units hold from the start.
            if not np.array_equal(since // unit * unit, since):
                unit = int(np.gcd.reduce(since, initial=unit))
    return unit


def _dates(values: Any) -> Any:
    """Converts Python's and pandas' dates to ``datetime64``; other values stay as they are."""
    if isinstance(values, torch.Tensor):
        return values
    dtype: Any = getattr(values, "dtype", None)
    try:
        if getattr(dtype, "tz", None) is not None:  # as objects, pandas' would lose their nanoseconds
            return np.asarray(values, f"datetime64[{dtype.unit}]")
        array = np.asarray(values)
        return array.astype("datetime64") if array.dtype.kind in "OU" else array  # NumPy takes the finest unit
    except (TypeError, ValueError):
        return values


def are_dates(values: Any) -> bool:
    """Returns whether :func:`as_times` reads these values as dates."""
    array = _dates(values)
    return isinstance(array, np.ndarray) and array.dtype.kind in "Mm"


_NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class TimeForm:
    """The unit and time zone of a user's times, which results are given in, too."""

    unit: str  # "D", "s", "ms", "us" or "ns"
    zone: str | None = None  # as "Europe/Berlin"
    is_number: bool = False  # numbers of units since 1970, not dates

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
        """Reads what :meth:`to_json` wrote. Raises TypeError: it is something else, and not None."""
        if values is None:
            return None
        unit, zone, is_number = values
        if unit not in _NANOSECONDS or not isinstance(zone, str | None) or type(is_number) is not bool:
            raise TypeError(f"{values!r:.100} is no form of times")
        return cls(unit, zone, is_number)

    def to_json(self) -> list[Any]:
        return [self.unit, self.zone, self.is_number]

    def of_nanoseconds(self, times: np.ndarray) -> np.ndarray:
        """Converts int64 nanoseconds ``[n]`` to this form; dates with a zone stay UTC, as NumPy has no zones."""
        if self.is_number:
            return times // _NANOSECONDS[self.unit]
        return times.view("datetime64[ns]").astype(f"datetime64[{self.unit}]")


def length_of(window: float | np.timedelta64) -> float:
    """Returns a length of time as a number: of a ``timedelta64``, in nanoseconds."""
    if not isinstance(window, np.timedelta64):
        return window
    return int(as_times(np.array([window]), name="window", error=SamplerConfigError)[0])


def _earlier(times: np.ndarray, window: Any) -> np.ndarray:
    """Returns the times ``[n]`` from which on a window counts; int64 stays so, as floats would round it."""
    length = length_of(window)
    if times.dtype != np.int64:
        return times - length
    limits = np.iinfo(np.int64)
    whole = math.floor(min(length, limits.max))
    return np.maximum(times, limits.min + whole) - whole


def as_times(values: Any, *, name: str, error: type[GnnLoadError] = GraphFormatError) -> np.ndarray:
    """Converts times to int64 or float64 ``[n]``; dates to nanoseconds since 1970, those with a zone by UTC.

    Raises:
        GraphFormatError, or ``error``: no numbers or dates ``[n]``, or one that is not a number (NaN, NaT) or beyond 64
            bits: nanoseconds reach from 1678 to 2262.
    """
    values = _dates(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
        array, bad, lost = _nanoseconds(values)
    else:
        values = _time_numbers(values, name, error)
        dtype_kind = values.dtype.kind
        bad = np.isnan(values) if dtype_kind == "f" else np.array(False)
        lost = values > np.iinfo(np.int64).max if dtype_kind == "u" else np.array(False)
        array = values.astype(np.float64 if dtype_kind == "f" else np.int64, copy=False)
    if array.ndim != 1:
        raise error(f"{name}: times must be [n], one each, but the shape is {list(array.shape)}.")
    for wrong, problem in ((bad, "is no time"), (lost, "does not fit in 64 bits (nanoseconds: 1678 to 2262)")):
        if np.any(wrong):
            first = int(np.argmax(wrong))
            raise error(
                f"{name}[{first}] {problem}: {values[first]}, as {np.sum(wrong)} of {len(array)}. Give others, or "
                "leave these rows out."
            )
    return array


def _nanoseconds(dates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns dates as int64 nanoseconds, which of them are NaT, and which 64 bits do not hold, bool ``[n]``."""
    bad = np.isnat(dates)
    converted = dates.astype(f"{dates.dtype.kind}8[ns]")
    # Far dates wrap around, which the way back shows. Finer units cannot, and lose digits on it.
    is_finer = np.datetime_data(dates.dtype)[0] in ("ps", "fs", "as")
    lost = ~bad & (converted.astype(dates.dtype) != dates) & (not is_finer)
    return converted.view(np.int64), bad, lost


def _time_numbers(values: Any, name: str, error: type[GnnLoadError]) -> np.ndarray:
    if isinstance(values, torch.Tensor) and values.dtype is torch.bfloat16:
        raise error(f"{name}: times of dtype bfloat16 are too coarse. Give int64 or float64.")
    try:
        array = as_array(values, name=name)
    except GraphDataError as no_array:
        raise error(f"times are numbers or dates; {no_array}") from no_array
    if array.dtype.kind not in "iuf":
        raise error(f"{name}: times must be numbers or datetime64, but the dtype is {array.dtype}.")
    return array
