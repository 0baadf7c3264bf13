"""Clock: times as numbers of 32 bits in the same order, which kernels compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_array
from lightning_gnnload.errors import GnnLoadError, GraphDataError, GraphFormatError, SamplerConfigError, SeedError

Before = Literal["<=", "<"]
_MOST_CODES = 2**32 - 1  # so that a bound beyond the last code fits, too
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
            first = min((int(each.min()) for each in held), default=0)
            last = max((int(each.max()) for each in held), default=0)
            unit = 1 if last - first < _MOST_CODES else _common_unit(held, first, last)
            if last - first < _MOST_CODES * unit:
                return cls(first, last, None, timed, unit, of_dates)
        ranked = np.unique(np.concatenate(held))
        if len(ranked) > _MOST_CODES:
            raise GraphFormatError(
                f"the graph has {len(ranked)} different times, but at most {_MOST_CODES} can be told apart. Round them."
            )
        return cls(0, 0, ranked, timed, of_dates=of_dates)

    def codes(self, times: np.ndarray) -> np.ndarray:
        """Returns the codes, uint32 ``[n]``, of times that the clock was made of."""
        if self.ranked is None:
            counted = times - self.first
            return (counted if self.unit == 1 else counted // self.unit).astype(np.uint32)
        return np.searchsorted(self.ranked, times).astype(np.uint32)

    def until(self, times: np.ndarray, before: Before) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, below which those lie that are ``before`` it."""
        return self._bound(times, before == "<=")

    def since(self, times: np.ndarray) -> np.ndarray:
        """Returns for each time the code, uint32 ``[n]``, from which on those lie that are not earlier."""
        return self._bound(times, False)

    def _bound(self, times: np.ndarray, beyond: bool) -> np.ndarray:
        if self.ranked is not None:
            return np.searchsorted(self.ranked, times, side="right" if beyond else "left").astype(np.uint32)
        if times.dtype.kind == "f":  # a time between two whole ones: those before it are before the next
            times = (np.floor(times) if beyond else np.ceil(times)).clip(-(2.0**62), 2.0**62).astype(np.int64)
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
            sound = (
                type(of_dates) is bool
                and all(type(value) is int for value in (first, last, unit))
                and isinstance(timed, list)
            )
            sound = sound and -(2**63) <= first <= last < 2**63 and 0 < last - first + unit <= _MOST_CODES * unit
            sound = sound and all(type(each) is bool for each in timed)
        except (KeyError, TypeError) as error:
            raise GraphFormatError(f"{values!r:.200} describes no clock: {error!r}.") from error
        if ranked is not None:
            sound = sound and ranked.dtype in (np.int64, np.float64) and ranked.ndim == 1
            sound = sound and bool((ranked[1:] > ranked[:-1]).all())  # which not-a-number fails
        if not sound:
            raise GraphFormatError(f"{values!r:.200} describes no clock: its numbers cannot be.")
        return cls(first, last, ranked, np.array(timed, np.bool_), unit, of_dates)


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
    array = np.asarray(values)
    try:
        return array.astype("datetime64") if array.dtype.kind in "OU" else array  # in a unit that holds them all
    except (TypeError, ValueError):
        return values


def are_dates(values: Any) -> bool:
    """Returns whether :func:`as_times` takes these for dates."""
    array = _dates(values)
    return isinstance(array, np.ndarray) and array.dtype.kind in "Mm"


def nanoseconds_of(values: np.ndarray, *, what: str, error: type[GnnLoadError]) -> np.ndarray:
    """Converts ``datetime64`` or ``timedelta64``, of any shape and without NaT, to int64.

    Raises:
        GnnLoadError: one that 64 bits cannot count, which NumPy would wrap.
    """
    converted = values.astype(f"{values.dtype.kind}8[ns]")
    for each in (values.min(), values.max()) if values.size else ():
        if each.astype(converted.dtype).astype(values.dtype) != each:
            raise error(
                f"{what}: {each} lies beyond the 292 years, before and after 1970, that 64 bits of nanoseconds can "
                "count. Leave it out, or give whole numbers of another unit."
            )
    return converted.view(np.int64)


def length_of(window: float | np.timedelta64) -> float:
    """Returns a length of time as a number, of a ``timedelta64`` in nanoseconds; whole ones stay whole.

    Raises:
        SamplerConfigError: one that 64 bits cannot count.
    """
    if not isinstance(window, np.timedelta64):
        return window
    return int(nanoseconds_of(np.array([window]), what="window", error=SamplerConfigError)[0])


def as_times(
    values: Any, *, what: str, error: type[GraphFormatError] | type[SeedError] = GraphFormatError
) -> np.ndarray:
    """Converts times to int64 or float64 ``[n]``; dates to nanoseconds since 1970.

    Raises:
        GraphFormatError, SeedError: no numbers or dates ``[n]``, or one that is not a number (NaN, NaT).
    """
    values = _dates(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
        bad = np.flatnonzero(np.isnat(values))
        array = values.view(np.int64) if len(bad) else nanoseconds_of(values, what=what, error=error)
    else:
        if isinstance(values, torch.Tensor) and values.dtype is torch.bfloat16:
            raise error(f"{what}: times of dtype bfloat16 are too coarse. Give int64 or float64.")
        try:
            array = as_array(values, what=what)
        except GraphDataError as bad_array:
            raise error(f"times are numbers or dates; {bad_array}") from bad_array
        if array.dtype.kind not in "iuf" or (array.dtype == np.uint64 and array.size and array.max() > 2**63 - 1):
            given = "one is 2**63 or more" if array.dtype.kind == "u" else f"the dtype is {array.dtype}"
            raise error(f"{what}: times must be numbers below 2**63, or dates, but {given}.")
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)
        bad = np.flatnonzero(np.isnan(array)) if array.dtype.kind == "f" else np.empty(0, np.int64)
    if array.ndim != 1:
        raise error(f"{what}: times must be [n], one each, but the shape is {list(array.shape)}.")
    if len(bad):
        raise error(
            f"{what}[{bad[0]}] is no time (NaN or NaT); {len(bad)} of {len(array)} are none. Give each one, or leave "
            "these rows out."
        )
    return array
