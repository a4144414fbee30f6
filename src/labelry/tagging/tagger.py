"""The tagger: calibrated trees or a blend, by a quality and the time there is."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelry.arrays import Rng
from labelry.linalg.rows import Rows
from labelry.parameters import Settings, param, settings
from labelry.ranking.objectives import OBJECTIVE_HELP, Objective, ObjectiveSettings
from labelry.tagging.blend import BlendModel, BlendSettings, fit_blend
from labelry.tagging.calibrated_trees import CalibratedTrees, fit_calibrated_trees
from labelry.tagging.time_budget import Choice, as_seconds, budget_problem, choose
from labelry.trees.linear import FEW_LABELS

Quality = Literal["fast", "balanced", "best"]

QUALITIES = ("fast", "balanced", "best")

# These sizes were chosen on held-out rows of Bibtex, Delicious, Debian packages and WordNet, which
# no table shows. They take two thirds of the time of the best, for most of its gain over the trees.
_BALANCED = {"n_trees": 3, "embedding_dim": 50, "n_neighbors": 50, "n_candidates": 20}
_BEST = {"n_trees": 5}
_FEW_LABELS = {"n_trees": 1}  # one tree is one-vs-rest here, to which further trees add nothing

_COPIES = 3  # copies of the rows that a blend holds at a time


@settings
class TaggerSettings(Settings):
    """How much time training and prediction may take, and which labels should be first."""

    quality: Quality = param(
        default="balanced",
        help='Accuracy against time and size. "fast" is three linear label trees, calibrated; '
        '"balanced" a `Blend` of three trees and neighbours; "best" a `Blend` of five trees and '
        "more neighbours. Up to 1,000 labels each has one tree, of one level: one-vs-rest.",
    )
    objective: Objective = param(default="precision", help=OBJECTIVE_HELP)
    budget: float | str | None = param(
        default=None,
        check=budget_problem,
        help='Time for training, in seconds or such as "60s", "2m" or "1h". If the quality would '
        "take longer, a lower one is trained, and at last fewer rows; a warning says so.",
    )


def fit_tagger(
    rows: Rows, settings: TaggerSettings, rng: Rng, start: float | None = None
) -> CalibratedTrees | BlendModel:
    """Fit the quality that was asked for, or what the budget allows.

    The budget counts from `start`, a time of ``time.perf_counter()``; by default from now.
    """
    seed = int(rng.integers(2**31))
    chosen = _choice(rows, settings, rng, time.perf_counter() if start is None else start)
    if chosen.n_rows < rows.n_rows:
        rows = _some(rows, rng.choice(rows.n_rows, chosen.n_rows, replace=False))
    model = _fit_quality(rows, chosen.quality, settings.objective, seed)
    return replace(model, chosen=chosen)


def _choice(rows: Rows, settings: TaggerSettings, rng: Rng, start: float) -> Choice:
    """Return the quality that was asked for, or what the budget allows."""
    quality = settings.quality
    if settings.budget is None:
        return Choice(quality, rows.n_rows, {})
    order = rng.permutation(rows.n_rows)

    def fit(quality: str, n_rows: int) -> None:
        _fit_quality(_some(rows, order[:n_rows]), quality, settings.objective, seed=0)

    downwards = QUALITIES[QUALITIES.index(quality) :: -1]
    budget = as_seconds(settings.budget)
    choice = choose(downwards, rows.n_rows, start + budget, fit)
    if choice.quality != quality or choice.n_rows < rows.n_rows:
        lost = _given_up(quality, rows.known.label_features is not None, choice, rows.n_rows)
        warnings.warn(
            f"for the budget of {budget:g} s these are given up: {lost}; with all rows it "
            f"would take: {choice.described()}",
            stacklevel=2,
        )
    return choice


def _fit_quality(
    rows: Rows, quality: str, objective: Objective, seed: int
) -> CalibratedTrees | BlendModel:
    """Fit one quality to these rows."""
    rng = np.random.default_rng(seed)
    if quality == "fast":
        return fit_calibrated_trees(rows, ObjectiveSettings(objective=objective), rng)
    rows.require(
        _COPIES * rows.n_bytes,
        f"quality {quality}, which has all rows in memory,",
        "give more memory, or quality fast, which does not",
    )
    parts: dict[str, Any] = _BALANCED if quality == "balanced" else _BEST
    parts = parts | _FEW_LABELS if rows.n_labels <= FEW_LABELS else parts
    return fit_blend(rows, BlendSettings(**parts, objective=objective), rng)


def _some(rows: Rows, numbers: NDArray[np.integer]) -> Rows:
    """Return the rows of these numbers, in their order."""
    return rows.only(np.isin(np.arange(rows.n_rows), numbers))


def _given_up(quality: str, described: bool, choice: Choice, n_rows: int) -> str:
    """Return in words what was left out of what was asked for."""
    lost = []
    if choice.quality != quality:
        lost.append(f"quality {quality} for {choice.quality}")
    if described and choice.quality == "fast":
        lost.append("the names of labels")
    if choice.n_rows < n_rows:
        lost.append(f"{n_rows - choice.n_rows:,} of {n_rows:,} rows")
    return " and ".join(lost)
