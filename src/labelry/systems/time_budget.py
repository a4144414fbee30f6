"""How long training will take, from fits to small samples, and what fits into the time there is."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from labelry.state import storable

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_FIRST_SAMPLE = 250  # rows; fitted to compile and to load, its time is not used
_SAMPLE_SHARE = 0.03  # of the time that is left: samples double until one takes this long
_TIMES_SLOWER = 3  # than the last quality, at least, are the others
_MARGIN = 1.2  # on what samples tell


class Estimate(NamedTuple):
    """``seconds + (n - n_sample) slope`` for n rows: times grow about linearly with rows."""

    n_sample: int
    seconds: float
    slope: float

    def of(self, n_rows: int) -> float:
        """Seconds for so many rows."""
        return self.seconds + (n_rows - self.n_sample) * self.slope

    def rows_in(self, seconds: float) -> int:
        """Rows for which there is time; at least as many as the sample, which is soon fitted."""
        return self.n_sample + int(max(seconds - self.seconds, 0.0) / max(self.slope, 1e-12))


@storable
class Choice(NamedTuple):
    """What is trained.

    Attributes
    ----------
    quality : str
    n_rows : int
        Rows that are learnt from.
    estimates : dict
        Seconds that each quality that was considered would take with all rows; empty
        without a budget.
    """

    quality: str
    n_rows: int
    estimates: dict[str, float]

    def described(self) -> str:
        """The estimates in words."""
        return ", ".join(f"{quality} {s:.1f} s" for quality, s in self.estimates.items())


def as_seconds(budget: float | str) -> float:
    """Seconds of a number, or of a text such as "90", "60s", "2m" or "1.5h".

    Examples
    --------
    >>> as_seconds("2m"), as_seconds("1.5h"), as_seconds(90)
    (120.0, 5400.0, 90.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", str(budget))
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(
            f"budget must be a positive number of seconds, or such as 60s, 2m or 1h; got {budget!r}"
        )
    return seconds


def choose(
    qualities: Sequence[str],
    n_rows: int,
    deadline: float,
    fit: Callable[[str, int], object],
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """The first of the qualities that is done with all rows in time; else the last, on fewer.

    Parameters
    ----------
    qualities : sequence of str
        The slowest first.
    deadline : float
        On the clock.
    fit : function
        Fits a quality to so many rows.
    """

    def estimate(quality: str) -> Estimate:
        return estimated(partial(fit, quality), n_rows, deadline - clock(), clock)

    *better, last = qualities
    least = estimate(last)  # it tells, at little cost, whether the others are worth a sample
    estimates = {last: least.of(n_rows)}
    for quality in better:
        if _TIMES_SLOWER * estimates[last] <= deadline - clock():
            estimates[quality] = estimate(quality).of(n_rows)
            if estimates[quality] <= deadline - clock():
                return Choice(quality, n_rows, estimates)
    return Choice(last, min(n_rows, least.rows_in(deadline - clock())), estimates)


def estimated(
    fit: Callable[[int], object], n_rows: int, seconds: float, clock: Callable[[], float]
) -> Estimate:
    """Time to fit, from two or more samples, each twice the last, until one takes long enough.

    `seconds` are left.
    """
    n = min(_FIRST_SAMPLE, n_rows)
    fit(n)
    samples: list[tuple[int, float]] = []
    while True:
        n = min(2 * n, n_rows)
        begin = clock()
        fit(n)
        took = clock() - begin
        samples.append((n, _MARGIN * took))
        enough = len(samples) > 1 and took >= _SAMPLE_SHARE * seconds
        if enough or 2 * n > n_rows:
            return _through(samples)


def _through(samples: list[tuple[int, float]]) -> Estimate:
    """The line through the last two samples; not steeper than that from zero to the last.

    Much of the time may not depend on the rows. What makes a line steeper is parts that small
    samples do without, such as a larger re-ranker, and those set in only once.
    """
    n, took = samples[-1]
    slope = took / n
    if len(samples) > 1:
        before, less = samples[-2]
        if took > less:
            slope = min(slope, (took - less) / (n - before))
    return Estimate(n, took, slope)
