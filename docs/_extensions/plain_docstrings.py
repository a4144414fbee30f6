"""Docstrings are written to be read as they are; this makes reStructuredText of them.

An indented paragraph of the description is a formula and stays as it is; bars and final
underscores are no markup; headings in the docstring of a module are no headings of the page.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from sphinx.application import Sphinx

_UNDERLINE = re.compile(r"-{3,}")
_CODE = re.compile(r"(`+[^`]+`+)")
_MARKUP = re.compile(r"\||(?<=\w)_(?!\w)")


def as_markup(lines: list[str], of_module: bool) -> list[str]:
    r"""A docstring as reStructuredText.

    >>> as_markup(["With unit columns", "", "    |V_j| <= 1", "", "in `objective_`."], True)
    ['With unit columns', '', '::', '', '    |V_j| <= 1', '', 'in `objective_`.']
    >>> as_markup(["References", "----------", "Of n_rounds_."], True)
    ['.. rubric:: References', '', 'Of n_rounds\\_.']
    """
    found: list[str] = []
    described, literal, example = True, False, False  # description; formula; doctest
    for line, after in pairwise([*lines, ""]):
        indented = line.startswith("    ")
        if not line.strip():
            example = False
        elif described and indented and not example and (literal or found[-1:] == [""]):
            if not literal:
                found += ["::", ""]
            literal = True
            found.append(line)
            continue
        else:
            literal = False
        example = example or line.lstrip().startswith(">>>")
        if _UNDERLINE.fullmatch(after) and line:
            described = of_module
            found.append(f".. rubric:: {line}" if of_module else line)
        elif _UNDERLINE.fullmatch(line):
            found.append("" if of_module else line)
        else:
            found.append(line if example else _escaped(line))
    return found


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    parts[::2] = [_MARKUP.sub(lambda bar: "\\" + bar[0], part) for part in parts[::2]]
    return "".join(parts)


def _process(_: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_markup(lines, what == "module")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process, priority=100)  # before numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
