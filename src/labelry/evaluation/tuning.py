"""Search for the parameters of a system that do best on held-out rows: successive halving."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labelry.arrays import Rng
from labelry.checks import check_at_least
from labelry.data.dataset import Dataset
from labelry.data.labels import label_counts
from labelry.data.text import TextFeatures
from labelry.errors import LabelryError
from labelry.estimators.base import LabelRanker
from labelry.estimators.registry import SYSTEMS, system_class
from labelry.evaluation.evaluate import best_labels
from labelry.linalg.matrices import as_matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics import Evaluation
from labelry.metrics.evaluation import RANKING_MEASURES
from labelry.parameters import Range, parameters_of
from labelry.ranking.hold_out import hold_out, validation_split
from labelry.tagging.time_budget import as_seconds

# Not tuned, any of them.
_FEWER = 3  # each rung has a third of the configurations, on three times the rows
_RUNGS = 3  # most rungs
_HELD_OUT = 0.2  # share of the rows that is held out
_MOST_HELD_OUT = 10_000  # most rows that are held out
_SIMILARITY = 0.9  # cosine from which rows are near-duplicates, which are held out together
_DRAWS = 20  # draws per configuration that is wanted, because some are drawn twice


class Trial(NamedTuple):
    """A configuration that was trained and measured."""

    parameters: dict[str, Any]  # those that differ from the defaults
    score: float  # the measure on held-out rows, in percent; not a number if it failed
    seconds: float  # of training and measuring
    error: str | None = None  # the reason if it failed


class Rung(NamedTuple):
    """Configurations that were trained on the same rows, best first."""

    n_rows: int
    trials: list[Trial]


class Tuned(NamedTuple):
    """The result of a search.

    `best` is the winner of the rung with the most rows. Its score is optimistic: it is the best of
    many on the rows by which it was chosen.
    """

    best: Trial
    default: Trial | None  # the defaults on the same rows; None if they failed
    n_held_out: int  # rows that the scores are from
    rungs: list[Rung]


def tune(
    system: str,
    dataset: Dataset,
    *,
    n_trials: int = 27,
    measure: str = "P@1",
    fixed: Mapping[str, Any] | None = None,
    budget: float | str | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    told: Callable[[int, Trial], None] = lambda n_rows, trial: None,
) -> Tuned:
    """Search the ranges of a system (`ranges_of`) for the parameters with the best score.

    Configurations are drawn at random and trained on a ninth of the rows. The best third of them
    is trained again on a third of the rows, and the best third of those on all rows. The defaults
    are always kept, so the winner is at least as good as they are on the held-out rows. A fifth of
    all rows is held out, in whole groups of near-duplicates.

    Parameters
    ----------
    n_trials : int
        Configurations to try. More find better ones and take longer: about the time of
        n_trials / 3 trainings on all rows.
    measure : str
        P@k, nDCG@k, R@k, PSP@k or PSnDCG@k.
    fixed : dict, optional
        Parameters that are not searched.
    budget : float or str, optional
        Time for the search, such as 300 or "5m". A training that would end too late is not
        started, so the result depends on the speed of the machine.
    told : function
        Called after each trial with the number of rows and the trial.

    Notes
    -----
    Jamieson, Talwalkar: Non-stochastic best arm identification and hyperparameter optimization,
    2016, Figure 3. There half of the arms are dropped until one is left, and each goes on from
    where it was; here two thirds are dropped, twice, the resource is rows, each training starts
    anew, and the defaults are never dropped.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rng = np.random.default_rng(0)
    >>> Y = csr_array(np.eye(3)[rng.integers(3, size=60)])
    >>> data = Dataset(Y, Y.toarray() + rng.random((60, 3)))
    >>> found = tune("knn", data, n_trials=9, n_jobs=1)
    >>> [(rung.n_rows, len(rung.trials)) for rung in found.rungs], found.n_held_out
    ([(5, 9), (16, 3), (48, 2)], 12)
    >>> found.best.score >= found.default.score
    True
    """
    check_at_least("n_trials", n_trials, 1)
    rng = np.random.default_rng(random_state)
    fixed = dict(fixed or {})
    ranges = {name: values for name, values in ranges_of(system).items() if name not in fixed}
    _check_measure(measure)
    deadline = math.inf if budget is None else time.perf_counter() + as_seconds(budget)
    train, held_out = _parts(dataset, rng)
    order = rng.permutation(train.n_rows)
    make = partial(system_class(system), **fixed, random_state=random_state, n_jobs=n_jobs)
    score = partial(_trial, make, measure, train, held_out)
    trials = [Trial(chosen, math.nan, 0.0) for chosen in _configurations(ranges, n_trials, rng)]
    rungs: list[Rung] = []
    sizes = {max(1, train.n_rows // _FEWER**rung) for rung in range(_RUNGS)}
    for n_rows in sorted(sizes):
        growth = n_rows / rungs[-1].n_rows if rungs else 0.0
        rows = train.take(np.sort(order[:n_rows]))
        done: list[Trial] = []
        for trial in trials:
            late = time.perf_counter() + growth * trial.seconds > deadline
            if late and (rungs or done):
                continue
            done.append(score(trial.parameters, rows))
            told(n_rows, done[-1])
        if done:
            rungs.append(Rung(n_rows, sorted(done, key=lambda t: (t.error is not None, -t.score))))
            trials = _promoted(rungs[-1].trials) or trials  # all failed: more rows may help
    return _result(system, rungs, held_out.n_rows)


def ranges_of(system: str) -> dict[str, Range]:
    """Return the range to search of each parameter of a system that declares one.

    Raises a ValueError that lists the systems if there is none of this name.
    """
    if system not in SYSTEMS:
        raise ValueError(
            f"there are no ranges to tune {system!r}; there are for: {', '.join(SYSTEMS)}"
        )
    parameters = parameters_of(system_class(system)).items()
    return {name: parameter.tune for name, parameter in parameters if parameter.tune is not None}


def _trial(
    make: Callable[..., LabelRanker],
    measure: str,
    train: Dataset,
    held_out: Dataset,
    parameters: dict[str, Any],
    rows: Dataset,
) -> Trial:
    """Train a configuration on some of the rows, and measure it on the held-out rows."""
    start = time.perf_counter()
    score, failed = math.nan, None
    k = int(measure.partition("@")[2])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training of the winner shows them
            model = make(**parameters).fit(rows)
            counts = label_counts(train.Y)
            evaluation = Evaluation((k,), train_counts=counts, n_train=train.n_rows)
            evaluation.update(held_out.Y, best_labels(model, held_out.rows, k)[0])
            score = evaluation.result()[measure]
    except Exception as error:  # the other configurations go on
        failed = str(error) or type(error).__name__
    return Trial(parameters, score, time.perf_counter() - start, failed)


def _check_measure(measure: str) -> None:
    """Raise a ValueError unless the measure is the name of a ranking measure with a cutoff."""
    name, _, cutoff = measure.partition("@")
    if name not in RANKING_MEASURES or not cutoff.isdigit() or int(cutoff) < 1:
        known = ", ".join(f"{name}@k" for name in RANKING_MEASURES)
        raise ValueError(f"measure must be one of {known}, such as P@1; got {measure!r}")


def _parts(dataset: Dataset, rng: Rng) -> tuple[Dataset, Dataset]:
    """Split into rows to train on and rows to measure on."""
    n = dataset.n_rows
    if n < 2:
        raise ValueError(
            f"tuning needs at least 2 rows, one to train on and one to measure on; got {n}"
        )
    n_wanted = min(max(1, int(_HELD_OUT * n)), _MOST_HELD_OUT)
    X = dataset.rows
    if dataset.X is None:
        X = TextFeatures(min_df=1).fit_transform(X)
    rows = Rows(scaled_rows(as_matrix(X)), dataset.Y, n_jobs=1)
    held_out = ~hold_out(rows, n_wanted, n, _SIMILARITY, rng, keep_labels=False).seen
    if not held_out.any():  # all rows are near-duplicates
        held_out = validation_split(n, n_wanted, rng).is_held_out
    return dataset.take(~held_out), dataset.take(held_out)


def _configurations(ranges: dict[str, Range], n_trials: int, rng: Rng) -> list[dict[str, Any]]:
    """Return the defaults and random configurations, all different, at most `n_trials`."""
    found: list[dict[str, Any]] = [{}]
    for _ in range(_DRAWS * n_trials):
        if len(found) == n_trials:
            break
        drawn = {name: values.draw(rng) for name, values in ranges.items()}
        if drawn not in found:
            found.append(drawn)
    return found


def _promoted(trials: list[Trial]) -> list[Trial]:
    """Return the best third, at least two, always with the defaults."""
    good = [trial for trial in trials if trial.error is None]
    kept = good[: max(2, math.ceil(len(trials) / _FEWER))]
    defaults = [trial for trial in good if not trial.parameters]
    if defaults and defaults[0] not in kept:
        kept[-1] = defaults[0]
    return kept


def _result(system: str, rungs: list[Rung], n_held_out: int) -> Tuned:
    """Return the winner of the last rung with more than one configuration."""
    good = [[trial for trial in rung.trials if trial.error is None] for rung in rungs]
    finals = [trials for trials in good if len(trials) > 1] or [trials for trials in good if trials]
    if not finals:
        why = rungs[0].trials[0].error
        raise LabelryError(f"no configuration of {system} could be trained; the first: {why}")
    default = next((trial for trial in finals[-1] if not trial.parameters), None)
    return Tuned(finals[-1][0], default, n_held_out, rungs)
