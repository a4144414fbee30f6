"""Settings: what a declaration gives, and what it refuses."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

from labelry.errors import ParameterError
from labelry.estimators import SYSTEMS, system_class
from labelry.parameters import Between, OneOf, Settings, param, parameters_of, settings


@settings
class Example(Settings):
    """An example.

    Notes
    -----
    Of no use.
    """

    n_trees: int = param(default=3, least=1, help="Trees. More are slower.", tune=OneOf((1, 3)))
    C: float = param(default=1.0, above=0, help="Weight.", tune=Between(0.1, 10.0, log=True))
    share: float | None = param(default=None, above=0, most=1, help="Share.")
    dim: int | Literal["auto"] = param(default="auto", least=1, help="Dimensions.")
    loss: Literal["hinge", "logistic"] = param(default="hinge", help="Loss.")
    fast: bool = param(default=True, help="Fast.")

    def check_together(self) -> None:
        if self.fast and self.n_trees > 10:
            raise ParameterError("n_trees", f"must be at most 10 if fast, got {self.n_trees}")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"n_trees": np.int64(2)},
        {"C": 1},
        {"C": np.float32(0.5)},
        {"share": 1.0},
        {"dim": 5},
        {"loss": "logistic"},
        {"fast": np.bool_(False), "n_trees": 11},
    ],
)
def test_allowed(given: dict) -> None:
    Example(**given).check_parameters()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_trees": 0}, "n_trees must be at least 1, got 0"),
        ({"n_trees": 1.5}, "n_trees must be a whole number, got 1.5"),
        ({"n_trees": True}, "n_trees must be a whole number, got True"),
        ({"n_trees": None}, "n_trees must be a whole number, got None"),
        ({"n_trees": 10**21}, r"n_trees must be at most 2.14748e\+09 in size, got 10{21}"),
        ({"C": 0}, "C must be positive, got 0"),
        ({"C": math.nan}, "C must be a finite number, got nan"),
        ({"C": -math.inf}, "C must be a finite number, got -inf"),
        ({"C": 1e308}, r"C must be at most 1e\+30 in size, got 1e\+308"),
        ({"C": "much"}, "C must be a number, got 'much'"),
        ({"share": 0}, "share must be above 0 and at most 1, got 0"),
        ({"dim": 0}, "dim must be at least 1 or 'auto', got 0"),
        ({"dim": "all"}, "dim must be one of auto, a whole number; got 'all'"),
        ({"loss": "l1"}, "loss must be one of hinge, logistic; got 'l1'"),
        ({"fast": 1}, "fast must be True or False, got 1"),
        ({"n_trees": 11}, "n_trees must be at most 10 if fast, got 11"),
    ],
)
def test_refused(given: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Example(**given).check_parameters()


def test_only_keywords() -> None:
    with pytest.raises(TypeError, match="positional"):
        Example(3)
    with pytest.raises(TypeError, match="n_tress"):
        Example(n_tress=3)


def test_the_docstring_has_a_section_for_the_parameters() -> None:
    lines = [line.strip() for line in str(Example.__doc__).splitlines()]
    assert lines.index("Parameters") < lines.index("Notes")
    assert "n_trees : int, default 3" in lines
    assert "loss : {'hinge', 'logistic'}, default \"hinge\"" in lines
    assert "Trees. More are slower." in lines


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_parameter_of_every_system(system: str) -> None:
    """Its default is allowed, its help is a sentence, and all that `tune` tries is allowed."""
    rng = np.random.default_rng(0)
    parameters = parameters_of(system_class(system))
    assert {"random_state", "n_jobs"} < set(parameters)
    for parameter in parameters.values():
        parameter.check(parameter.default)
        assert parameter.help.endswith((".", ")")), parameter.name
        if parameter.tune is not None:
            for _ in range(20):
                parameter.check(parameter.tune.draw(rng))


@pytest.mark.parametrize("system", SYSTEMS)
def test_values_that_no_parameter_takes(system: str) -> None:
    cls = system_class(system)
    for name in parameters_of(cls):
        for odd in (math.nan, math.inf, 10**40, 1e308, "no such", [], {}, object()):
            if name == "tree" and odd == []:
                continue  # a taxonomy without edges is refused when the tree is made
            with pytest.raises(ParameterError, match=f"{name} must be "):
                cls(**{name: odd}).check_parameters()
