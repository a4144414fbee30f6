"""Constraints for pip: the lowest version that pyproject.toml allows of each dependency.

python tests/lowest_versions.py pyproject.toml > lowest.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_BOUND = re.compile(r"([\w.-]+)>=([\d.]+)")


def lowest(pyproject: str, extras: tuple[str, ...] = ("formats",)) -> list[str]:
    """Give the lines of a constraints file.

    >>> lowest('[project]\\ndependencies = ["numpy>=1.26", "rich>=13"]', extras=())
    ['numpy==1.26', 'rich==13']
    """
    project = tomllib.loads(pyproject)["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [f"{name}=={version}" for name, version in map(_bound, wanted)]


def _bound(requirement: str) -> tuple[str, str]:
    found = _BOUND.match(requirement)
    if found is None:
        raise ValueError(f"{requirement} has no lower bound")
    return found[1], found[2]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest(Path(sys.argv[1]).read_text())) + "\n")
