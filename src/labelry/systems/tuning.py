"""The parameters of a system that do best on held-out rows, by successive halving."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.checks import check_at_least
from labelry.data.dataset import Dataset
from labelry.data.labels import label_counts
from labelry.data.text import TextFeatures
from labelry.errors import LabelryError
from labelry.estimator import LabelRanker, rows_of
from labelry.linalg.matrices import as_matrix, scaled_rows
from labelry.metrics import Evaluation
from labelry.metrics.evaluation import RANKING_MEASURES
from labelry.systems.hold_out import held_out_groups
from labelry.systems.ranges import Ranges, ranges_of
from labelry.systems.registry import system_class
from labelry.systems.time_budget import as_seconds

_FEWER = 3  # times fewer configurations at each rung, on so many times more rows
_RUNGS = 3
_HELD_OUT = 0.2  # of the rows
_MOST_HELD_OUT = 10_000
_SIMILARITY = 0.9  # cosine of rows that are held out together
_DRAWS = 20  # for each configuration that is wanted, where few differ


class Trial(NamedTuple):
    """A configuration that was trained and judged.

    Attributes
    ----------
    parameters : dict
        Those that are not left at their defaults.
    score : float
        The measure on held-out rows, in percent; not a number if it failed.
    seconds : float
        Training and judging.
    error : str or None
        Why it failed.
    """

    parameters: dict[str, Any]
    score: float
    seconds: float
    error: str | None = None


class Rung(NamedTuple):
    """Configurations that were trained on the same rows, best first."""

    n_rows: int
    trials: list[Trial]


class Tuned(NamedTuple):
    """What a search found.

    Attributes
    ----------
    best : Trial
        The winner, with the most rows. Its score is optimistic: the best of many on the rows by
        which it was chosen.
    default : Trial or None
        The defaults on the same rows; None if they failed.
    n_held_out : int
        Rows that judged.
    rungs : list of Rung
    """

    best: Trial
    default: Trial | None
    n_held_out: int
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
    """Search the ranges of a system (`ranges_of`) for what does best on held-out rows.

    Configurations are drawn at random and trained on a ninth of the rows; the best third of them
    again on a third of the rows, and the best third of those on all. The defaults are among
    them all the way, so that the winner is at least as good on the held-out rows: a fifth of all,
    without near-duplicates outside.

    Parameters
    ----------
    n_trials : int
        Configurations. More find better ones, and take longer: the time is about that of
        n_trials / 3 trainings with all rows.
    measure : str
        P@k, nDCG@k, R@k, PSP@k or PSnDCG@k.
    fixed : dict, optional
        Parameters to leave as they are given here.
    budget : float or str, optional
        Time for the search, such as 300 or "5m": a training that would not be done in time is
        not begun. The result then depends on the speed of the machine.
    random_state : int
        The same seed finds the same.
    told : function
        Called with the number of rows and each trial that is done.

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
    judge = _Judge(system, fixed | {"random_state": random_state, "n_jobs": n_jobs}, measure)
    deadline = math.inf if budget is None else time.perf_counter() + as_seconds(budget)
    train, held_out = _parts(dataset, rng)
    order = rng.permutation(train.n_rows)
    counts = label_counts(train.Y)
    trials = [Trial(chosen, math.nan, 0.0) for chosen in _configurations(ranges, n_trials, rng)]
    rungs: list[Rung] = []
    for n_rows in _sizes(train.n_rows):
        growth = n_rows / rungs[-1].n_rows if rungs else 0.0
        rows = train.take(np.sort(order[:n_rows]))
        done: list[Trial] = []
        for trial in trials:
            late = time.perf_counter() + growth * trial.seconds > deadline
            if late and (rungs or done):
                continue
            done.append(judge(trial.parameters, rows, held_out, counts, train.n_rows))
            told(n_rows, done[-1])
        if done:
            rungs.append(Rung(n_rows, sorted(done, key=lambda t: (t.error is not None, -t.score))))
            trials = _promoted(rungs[-1].trials) or trials  # perhaps more rows help
    return _result(system, rungs, held_out.n_rows)


class _Judge:
    """Trains configurations and measures them."""

    def __init__(self, system: str, common: dict[str, Any], measure: str) -> None:
        name, _, cutoff = measure.partition("@")
        if name not in RANKING_MEASURES or not cutoff.isdigit() or int(cutoff) < 1:
            known = ", ".join(f"{name}@k" for name in RANKING_MEASURES)
            raise ValueError(f"measure must be one of {known}, such as P@1; got {measure!r}")
        self.cls = system_class(system)
        self.common = common
        self.measure = measure
        self.cutoff = int(cutoff)

    def __call__(
        self,
        parameters: dict[str, Any],
        rows: Dataset,
        held_out: Dataset,
        counts: NDArray[Any],
        n_train: int,
    ) -> Trial:
        start = time.perf_counter()
        score, failed = math.nan, None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the winner they are told when it is trained
                model = self.cls(**self.common, **parameters).fit_dataset(rows)
                evaluation = Evaluation((self.cutoff,), train_counts=counts, n_train=n_train)
                evaluation.update(held_out.Y, self._best(model, held_out))
                score = evaluation.result()[self.measure]
        except Exception as error:  # one that cannot be trained is no reason to give up the others
            failed = str(error) or type(error).__name__
        return Trial(parameters, score, time.perf_counter() - start, failed)

    def _best(self, model: LabelRanker, held_out: Dataset) -> NDArray[np.integer]:
        ids = model.topk_ids(rows_of(held_out), self.cutoff)[0]
        missing = self.cutoff - ids.shape[1]  # places that no label can fill
        return np.pad(ids, ((0, 0), (0, missing)), constant_values=-1)


def _parts(dataset: Dataset, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Rows to train on and rows to judge by."""
    n = dataset.n_rows
    if n < 2:
        raise ValueError(f"tuning needs at least 2 rows, to train and to judge; got {n}")
    n_wanted = min(max(1, int(_HELD_OUT * n)), _MOST_HELD_OUT)
    X = rows_of(dataset)
    if dataset.X is None:
        X = TextFeatures(min_df=1).fit_transform(X)
    held_out = held_out_groups(scaled_rows(as_matrix(X)), _SIMILARITY, n_wanted, rng) >= 0
    if not held_out.any():  # all rows are alike
        held_out[rng.permutation(n)[:n_wanted]] = True
    return dataset.take(~held_out), dataset.take(held_out)


def _configurations(
    ranges: Ranges, n_trials: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """The defaults and others drawn at random, all different; fewer if there are no more."""
    found: list[dict[str, Any]] = [{}]
    for _ in range(_DRAWS * n_trials):
        if len(found) == n_trials:
            break
        drawn = {name: values.draw(rng) for name, values in ranges.items()}
        if drawn not in found:
            found.append(drawn)
    return found


def _sizes(n_rows: int) -> list[int]:
    """Training rows of each rung; fewer rungs where there are hardly any rows."""
    return sorted({max(1, n_rows // _FEWER**rung) for rung in range(_RUNGS)})


def _promoted(trials: list[Trial]) -> list[Trial]:
    """The best third, of two at least; the defaults in any case."""
    good = [trial for trial in trials if trial.error is None]
    kept = good[: max(2, math.ceil(len(trials) / _FEWER))]
    defaults = [trial for trial in good if not trial.parameters]
    if defaults and defaults[0] not in kept:
        kept[-1] = defaults[0]
    return kept


def _result(system: str, rungs: list[Rung], n_held_out: int) -> Tuned:
    """The winner of the last rung in which there was a choice."""
    good = [[trial for trial in rung.trials if trial.error is None] for rung in rungs]
    finals = [trials for trials in good if len(trials) > 1] or [trials for trials in good if trials]
    if not finals:
        why = rungs[0].trials[0].error
        raise LabelryError(f"no configuration of {system} could be trained; the first: {why}")
    default = next((trial for trial in finals[-1] if not trial.parameters), None)
    return Tuned(finals[-1][0], default, n_held_out, rungs)
