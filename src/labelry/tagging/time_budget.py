"""Estimate training times from fits to small samples, and choose what fits into a time budget."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_BUDGET = "a positive number of seconds, or such as 60s, 2m or 1h"
# Not tuned, any of these.
_FIRST_SAMPLE = 250  # rows of the first sample, which compiles kernels, so its time is not used
_SAMPLE_SHARE = 0.03  # share of the time left: samples double until one takes this long
_TIMES_SLOWER = 3  # the other qualities take at least so many times as long as the last
_MARGIN = 1.2  # factor on the times of samples


class Estimate(NamedTuple):
    """``seconds + (n - n_sample) slope`` for n rows: times grow about linearly with the rows."""

    n_sample: int
    seconds: float
    slope: float

    def of(self, n_rows: int) -> float:
        """Return the seconds for so many rows."""
        return self.seconds + (n_rows - self.n_sample) * self.slope

    def rows_in(self, seconds: float) -> int:
        """Return the rows for which there is time; at least those of the sample."""
        return self.n_sample + int(max(seconds - self.seconds, 0.0) / max(self.slope, 1e-12))


class Choice(NamedTuple):
    """The quality that is fitted, and the number of rows that it is fitted to."""

    quality: str
    n_rows: int
    # Seconds that each quality considered would take with all rows; empty without a budget.
    estimates: dict[str, float]

    def described(self) -> str:
        """Return the estimates in words."""
        return ", ".join(f"{quality} {s:.1f} s" for quality, s in self.estimates.items())


def as_seconds(budget: float | str) -> float:
    """Return the seconds of a number, or of a text such as "90", "60s", "2m" or "1.5h".

    >>> as_seconds("2m"), as_seconds("1.5h"), as_seconds(90)
    (120.0, 5400.0, 90.0)
    """
    seconds = _seconds(budget)
    if seconds is None:
        raise ValueError(f"budget must be {_BUDGET}; got {budget!r}")
    return seconds


def budget_problem(budget: float | str) -> str | None:
    """Return what a budget must be, or None if it is a time."""
    return _BUDGET if _seconds(budget) is None else None


def _seconds(budget: float | str) -> float | None:
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", str(budget))
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def choose(
    qualities: Sequence[str],
    n_rows: int,
    deadline: float,
    fit: Callable[[str, int], object],
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Choose the first quality that can be fitted to all rows in time, or the last with fewer rows.

    The slowest quality comes first. `deadline` is a time of the clock, and ``fit(quality, n_rows)``
    fits a quality to so many rows.
    """

    def estimate(quality: str) -> Estimate:
        return estimate_time(partial(fit, quality), n_rows, deadline - clock(), clock)

    *better, last = qualities
    least = estimate(last)  # this is quick, and shows whether the others are worth a sample
    estimates = {last: least.of(n_rows)}
    for quality in better:
        if _TIMES_SLOWER * estimates[last] <= deadline - clock():
            estimates[quality] = estimate(quality).of(n_rows)
            if estimates[quality] <= deadline - clock():
                return Choice(quality, n_rows, estimates)
    return Choice(last, min(n_rows, least.rows_in(deadline - clock())), estimates)


def estimate_time(
    fit: Callable[[int], object], n_rows: int, seconds: float, clock: Callable[[], float]
) -> Estimate:
    """Estimate the time to fit from two or more samples, each twice as large as the last.

    Samples double until one takes a few percent of the `seconds` that are left. The estimate is the
    line through the last two, but not steeper than that from zero to the last: the last sample may
    be the first that is large enough for a part, such as a larger re-ranker, which costs only once.
    """
    n, before, less = min(_FIRST_SAMPLE, n_rows), 0, 0.0
    fit(n)
    while True:
        n = min(2 * n, n_rows)
        begin = clock()
        fit(n)
        took = _MARGIN * (clock() - begin)
        enough = before and took >= _MARGIN * _SAMPLE_SHARE * seconds
        if enough or 2 * n > n_rows:
            slope = took / n
            if took > less:
                slope = min(slope, (took - less) / (n - before))
            return Estimate(n, took, slope)
        before, less = n, took
