"""Find uses of private names from outside: ``x._name`` where x is of another module.

    python tools/private_names.py src

A name that begins with one underscore belongs to its module, or to its class. It may be used
through ``self`` and ``cls``, and on other objects in the module whose classes define it. Public
names of named tuples (``_replace`` and others) are not private, and other packages are not looked
at. There is no list of exceptions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

NAMED_TUPLE = {"_replace", "_asdict", "_make", "_fields", "_field_defaults"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def defined(tree: ast.Module) -> set[str]:
    """Names that a module defines, at its top or in its classes."""
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = (t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets)
    found |= {target.id for target in targets if isinstance(target, ast.Name)}
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(cls):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def uses(tree: ast.Module, everywhere: set[str]) -> Iterator[tuple[int, str]]:
    """Lines and texts of uses of private names that another module defines."""
    foreign = everywhere - defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            through = node.value
            is_self = isinstance(through, ast.Name) and through.id in ("self", "cls")
            is_super = isinstance(through, ast.Call) and ast.unparse(through.func) == "super"
            if node.attr in foreign and not (is_self or is_super):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name) and alias.name != "_version":
                    yield node.lineno, f"from {node.module} import {alias.name}"


def main(folders: list[str]) -> int:
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    everywhere = set().union(*map(defined, trees.values()))
    found = [
        f"{path}:{line}: {text}"
        for path, tree in trees.items()
        for line, text in uses(tree, everywhere)
    ]
    print("\n".join(found) or "no private name is used from outside")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
