"""Budgets of time, with a clock that only fitting moves."""

from __future__ import annotations

import pytest

from labelry.tagging.time_budget import Choice, as_seconds, choose, estimate_time


class Machine:
    """Fits take the time that is said for them."""

    def __init__(self, **seconds_per_row: float) -> None:
        self.now = 0.0
        self.fixed = 0.0
        self.seconds_per_row = seconds_per_row
        self.fits: list[tuple[str, int]] = []

    def clock(self) -> float:
        return self.now

    def fit(self, quality: str, n_rows: int) -> None:
        self.fits.append((quality, n_rows))
        self.now += self.fixed + self.seconds_per_row[quality] * n_rows


@pytest.mark.parametrize("budget", [20.0, 60.0, 300.0, 1000.0])
@pytest.mark.parametrize("fixed", [0.0, 0.5])
def test_what_is_chosen_is_done_in_time(budget: float, fixed: float) -> None:
    machine = Machine(best=8e-3, balanced=4e-3, fast=5e-4)
    machine.fixed = fixed
    choice = choose(("best", "balanced", "fast"), 40_000, budget, machine.fit, machine.clock)
    machine.fit(choice.quality, choice.n_rows)
    assert machine.now <= budget
    expected = {20.0: "fast", 60.0: "fast", 300.0: "balanced", 1000.0: "best"}[budget]
    assert choice.quality == expected
    assert (choice.n_rows < 40_000) == (budget == 20.0)
    assert choice.n_rows > 10_000  # it is not wasted either


def test_what_cannot_be_in_time_is_not_even_tried() -> None:
    machine = Machine(best=8e-3, fast=5e-4)
    choose(("best", "fast"), 40_000, 30.0, machine.fit, machine.clock)
    assert {quality for quality, _ in machine.fits} == {"fast"}
    assert max(n for _, n in machine.fits) < 8_000


def test_without_any_time_a_small_sample_is_learnt_from() -> None:
    machine = Machine(fast=1.0)
    choice = choose(("fast",), 40_000, 0.0, machine.fit, machine.clock)
    assert choice == Choice("fast", 1000, {"fast": pytest.approx(48_000)})


def test_time_that_does_not_depend_on_rows_is_not_multiplied() -> None:
    machine = Machine(fast=1e-3)
    machine.fixed = 3.0
    estimate = estimate_time(lambda n: machine.fit("fast", n), 40_000, 400.0, machine.clock)
    assert estimate.of(40_000) == pytest.approx(1.2 * 43.0)
    assert estimate.rows_in(estimate.of(30_000)) == pytest.approx(30_000, abs=1)
    assert estimate.rows_in(0.0) == estimate.n_sample


def test_few_rows_are_all_fitted() -> None:
    machine = Machine(fast=1e-3)
    estimate = estimate_time(lambda n: machine.fit("fast", n), 100, 400.0, machine.clock)
    assert estimate.n_sample == 100
    assert estimate.of(100) == pytest.approx(1.2 * 0.1)


def test_seconds() -> None:
    assert [as_seconds(b) for b in ("90", " 60s ", "2m", ".5h", 3)] == [90, 60, 120, 1800, 3]
    for bad in ("soon", "0", 0, -1, "1d", "", float("nan"), float("inf")):
        with pytest.raises(ValueError, match="budget must be a positive number of seconds"):
            as_seconds(bad)
