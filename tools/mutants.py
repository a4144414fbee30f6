"""Change the code in small ways and see whether the tests notice: the holes in the tests.

    python tools/mutants.py                             # 40 mutants of all modules
    python tools/mutants.py --only cli storage checks --number 60 --seed 1 --seconds 1200

Mutants are drawn by a seed: a comparison, a number, ``and``, ``+``, ``not``, a returned value or a
call is changed in a copy of src and tests, and the quick tests of that module run. Limits that have
a name of their own (``_MOST = 64``) are left as they are. A mutant that no test notices is printed
with its line. tools/mutants_equivalent.txt lists those that change nothing that can be seen, as
``path | line | changed line | reason``.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src/labelry")
EQUIVALENT = ROOT / "tools" / "mutants_equivalent.txt"
HEAVY = ("cli", "storage", "server", "checks.py", "memory.py")  # parts that are drawn more often
WEIGHT = 4

# Tests of a module beside those at its mirrored path; a folder without tests of its own has these.
FURTHER = {
    "cli": ["test_options.py", "test_system_flags.py", "test_hostile_names.py", "test_cli.py"],
    "cli/predict_command.py": ["test_predict.py"],
    "cli/serve_command.py": ["test_serve.py"],
    "cli/compare_command.py": ["test_compare.py"],
    "cli/demo_command.py": ["test_demo.py"],
    "cli/tune_command.py": ["test_tune.py"],
    "cli/warm_command.py": ["test_warm.py"],
    "storage": ["test_modelfile.py", "test_values.py", "test_format.py"],
    "server": ["test_app.py", "test_protocol.py", "test_holder.py", "test_batching.py"],
}
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


class Mutant(NamedTuple):
    """A change of one place of a file: the lines that it touches, and the new text of the file."""

    path: Path
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\n  - {self.before}\n  + {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return a node with its mistake, or None if there is none to make."""
    new = deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            new.ops = [OPPOSITE[type(op)]()]  # type: ignore[list-item]
        case ast.BoolOp():
            new.op = OPPOSITE[type(new.op)]()  # type: ignore[assignment]
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            new.op = OPPOSITE[type(new.op)]()  # type: ignore[assignment]
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=int() | float()):
            new.value += 1  # type: ignore[operator]
        case ast.Return(value=ast.expr()):
            new.value = ast.Constant(None)
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case _:
            return None
    return new


def places(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, decorators, docstrings or texts."""
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue  # the places within a text are not known
            named = isinstance(child, ast.Assign) and ast.unparse(child.targets[0]).isupper()
            if field not in skipped and not named:
                yield child
                yield from places(child)


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    text = (ROOT / path).read_text()
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
    found = []
    for node in places(ast.parse(text)):
        new = changed(node)
        if new is None or "\n" in (old := ast.get_source_segment(text, node) or "\n"):
            continue
        row = node.lineno - 1  # type: ignore[attr-defined]
        column = len(lines[row].encode()[: node.col_offset].decode())  # type: ignore[attr-defined]
        at, said = starts[row] + column, ast.unparse(new)
        said = f"({said})" if isinstance(new, ast.BinOp | ast.BoolOp | ast.Compare) else said
        mutated = text[:at] + said + text[at + len(old) :]
        after = mutated.splitlines()[row].strip()
        found.append(Mutant(path, row + 1, lines[row].strip(), after, mutated))
    return found


def tests_of(path: Path) -> list[str]:
    """Return the test files of a module, as paths from the root."""
    inside = path.relative_to(PACKAGE)
    folder = Path("tests") / inside.parent
    names = [f"test_{inside.name}", *FURTHER.get(str(inside), FURTHER.get(inside.parts[0], []))]
    files = [folder / name for name in dict.fromkeys(names) if (ROOT / folder / name).exists()]
    return [str(file) for file in files] or [str(folder)]


def run(copy: Path, tests: list[str], limit: float) -> bool:
    """Return whether the tests of the copy pass within a time, in seconds."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
    ]
    env = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *tests], cwd=copy, env=env, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts, such as cli or checks.py")
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800, help="time for all of it")
    parser.add_argument("--each", type=float, default=120, help="time for one mutant")
    given = parser.parse_args()
    files = sorted(path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py"))
    part = {path: path.relative_to(PACKAGE).parts[0] for path in files}
    files = [path for path in files if not given.only or part[path] in given.only]
    drawn = [m for path in files for m in mutants_of(path)]
    weights = [WEIGHT if part[m.path] in HEAVY else 1 for m in drawn]
    rng = random.Random(given.seed)
    keys = [rng.random() ** (1 / weight) for weight in weights]
    order = sorted(range(len(drawn)), key=keys.__getitem__, reverse=True)[: given.number]
    entries = [line.split(" | ") for line in EQUIVALENT.read_text().splitlines() if "|" in line]
    equal = {tuple(entry[:3]) for entry in entries}
    end, caught, survivors = time.monotonic() + given.seconds, 0, []
    with tempfile.TemporaryDirectory(prefix="labelry-mutants-") as name:
        copy = Path(name)
        for folder in ("src", "tests"):
            shutil.copytree(ROOT / folder, copy / folder)
        shutil.copy2(ROOT / "pyproject.toml", copy)

        @cache
        def passes(tests: tuple[str, ...]) -> bool:
            return run(copy, list(tests), given.each)

        for mutant in (drawn[i] for i in order):
            if (str(mutant.path), mutant.before, mutant.after) in equal:
                continue
            if time.monotonic() > end:
                print("the time is over")
                break
            tests = tests_of(mutant.path)
            if not passes(tuple(tests)):
                print(f"left out, as its tests fail or take too long without a change: {mutant}")
                continue
            original = (
                copy / f"{mutant.path}.original"
            )  # keeps its time, by which kernels are found
            (copy / mutant.path).rename(original)
            (copy / mutant.path).write_text(mutant.text)
            if run(copy, tests, given.each):
                survivors.append(mutant)
                print(mutant, flush=True)
            else:
                caught += 1
            original.replace(copy / mutant.path)
    total = caught + len(survivors)
    print(f"{caught} of {total} mutants were caught, {100 * caught / max(total, 1):.0f} %")


if __name__ == "__main__":
    main()
