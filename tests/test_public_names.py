"""``labelry.__all__`` is exactly what can be imported, and the papers' map is true."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import labelry

PAPERS = Path(__file__).parent.parent / "docs" / "papers.md"


def test_all_is_exact() -> None:
    assert set(labelry.__all__) == {*labelry._HOME, "__version__"}
    for name in labelry.__all__:
        assert getattr(labelry, name) is not None
    assert dir(labelry) == sorted(labelry.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Oracle'"):
        _ = labelry.Oracle


def test_each_function_in_the_papers_map_exists() -> None:
    names = re.findall(r"`(labelry(?:\.\w+)+)`", PAPERS.read_text())
    assert len(names) > 3
    for dotted in names:
        module, _, attribute = dotted.rpartition(".")
        while True:
            try:
                value = import_module(module)
                break
            except ModuleNotFoundError:
                module, _, head = module.rpartition(".")
                attribute = f"{head}.{attribute}"
        for part in attribute.split("."):
            value = getattr(value, part)
