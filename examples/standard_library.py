"""Write posts.csv and new.csv: the help texts of Python's standard library, with labels.

Each function, class and method is a row: its name is the title, its docstring the body. Its labels
are the module and the class where it is found.

python examples/standard_library.py [folder]
"""

import csv
import inspect
import sys
import warnings
from importlib import import_module
from pathlib import Path

LEFT_OUT = {"antigravity", "idlelib", "lib2to3", "test", "this", "turtledemo"}  # they act on import


def described(thing, labels):
    """Yield what is said of the public parts of a module or class."""
    for name, part in sorted(vars(thing).items()):
        part = inspect.unwrap(getattr(part, "__func__", part))
        home = getattr(part, "__module__", None) or labels[0]
        if name.startswith("_") or not callable(part) or home.lstrip("_") != labels[0]:
            continue
        found = [*labels, name] if inspect.isclass(part) else labels
        if body := (part.__doc__ or "").strip():
            yield name, " ".join(body.split()), found
        if inspect.isclass(part) and len(labels) == 1:
            yield from described(part, found)


def posts():
    """Yield the title, body and labels of each distinct docstring."""
    known = set()
    for module in sorted(sys.stdlib_module_names - LEFT_OUT):
        if module.startswith("_"):
            continue
        try:
            for title, body, labels in described(import_module(module), [module]):
                if body not in known:
                    known.add(body)
                    yield title, body, ";".join(dict.fromkeys(labels))
        except ImportError:  # a module of another operating system
            continue


warnings.simplefilter("ignore", DeprecationWarning)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
rows = list(posts())
for name, part in {
    "posts.csv": [row for i, row in enumerate(rows) if i % 5],
    "new.csv": rows[::5],
}.items():
    with open(folder / name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("title", "body", "tags"), *part])
    print(f"{name}: {len(part)} rows")
