"""Models that are changed in one place after another, loaded, and asked to predict.

python tests/fuzz/forge.py STEP FIXTURE.zip ...     one in STEP cases, others of each fixture

A file with right checksums holds just parameters, state and arrays, so none is written. The name of
each case comes out before it is tried: if the process crashes, the last one was it. After those of
a fixture comes a line with how many were refused and how many answered.
"""

from __future__ import annotations

import json
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelry import memory
from labelry.errors import ModelError
from labelry.estimators import system_class
from labelry.estimators.base import LabelRanker
from labelry.storage import modelfile

MOST_GROWTH = 500 << 20  # bytes of memory
K = 3
ODD: list[Any] = [None, True, -1, 0, 3, 2**31 - 1, 2**31, 2**70, 0.5, 1e300, "", "x", [], [[]], {}]
ODD += [[-1], [1, 2], {"is": "array"}, {"is": "Choice"}]
DTYPES = ["bool", "int8", "uint64", "int64", "float16", "float32", "float64"]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value inside of JSON; of a long list, only the first two."""
    if above:
        yield above
    items = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        items = list(enumerate(value))[:2]
    for key, item in items:
        yield from places(item, (*above, key))


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return copy


def changed_arrays(a: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """An array with other values, shapes and types; what it changes into, and the array."""
    flat = a.reshape(-1)
    if a.size:
        for place in sorted({0, a.size // 2, a.size - 1}):
            for value in _odd_numbers(a):
                other = flat.copy()
                other[place] = value
                yield f"[{place}] = {value}", other.reshape(a.shape)
        for value in _odd_numbers(a):
            yield f"all {value}", np.full_like(a, value)
        yield "reversed", np.ascontiguousarray(flat[::-1]).reshape(a.shape)
        yield "one less", flat[:-1].copy()
    yield "one more", np.append(flat, flat[-1:] if a.size else np.zeros(1, a.dtype))
    yield "none", flat[:0].copy()
    yield "no rows", np.empty((0, *a.shape[1:]), a.dtype)
    yield "flat", flat.copy()
    yield "deeper", a[None].copy()
    yield "a number", np.zeros((), a.dtype)
    yield "transposed", np.ascontiguousarray(a.T)
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            if dtype != a.dtype:
                yield dtype, a.astype(dtype)


def _odd_numbers(a: NDArray[Any]) -> list[Any]:
    if a.dtype.kind == "f":
        return [np.nan, np.inf, -1.0, 0.0, np.finfo(a.dtype).max]
    if a.dtype.kind == "b":
        return [True, False]
    info = np.iinfo(a.dtype)
    near = [-2, -1, 0, 1, a.size, a.size + 1, 1000]
    return [n for n in (info.min, *near, info.max) if info.min <= n <= info.max]


def cases(file: modelfile.ModelFile) -> Iterator[tuple[str, modelfile.ModelFile]]:
    for part in ("state", "parameters"):
        value = getattr(file, part)
        for place in places(value):
            for new in ODD:
                yield (
                    f"{part} {place} = {new!r}",
                    replace(file, **{part: changed(value, place, new)}),
                )
    for name, array in file.arrays.items():
        for how, other in changed_arrays(array):
            yield f"{name}: {how}", replace(file, arrays=file.arrays | {name: other})
        yield (
            f"{name}: missing",
            replace(file, arrays={key: a for key, a in file.arrays.items() if key != name}),
        )


def predict(model: LabelRanker, rows: Any) -> None:
    try:
        labels, scores = model.topk_ids(rows, K)
    except ValueError as error:
        if "features as input" not in str(error):  # it is a model of other rows
            raise
        return
    assert labels.shape == scores.shape == (len(rows), min(K, len(model.classes_)))
    assert labels.min() >= -1
    assert labels.max() < len(model.classes_)
    with suppress(NotImplementedError, ValueError):  # of systems that do not score all labels
        model.score_all(rows)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def forge(fixture: Path, first: int, step: int) -> None:
    """Try one in `step` cases of a model, from the first one on."""
    with TemporaryDirectory() as folder:
        with zipfile.ZipFile(fixture) as archive:
            archive.extractall(folder)
        rows = json.loads((Path(folder) / "expected.json").read_bytes())["rows"][:2]
        rows = rows if isinstance(rows[0], str) else np.array(rows, dtype=np.float32)
        file = modelfile.load(folder)
        cls = system_class(file.system)
        predict(cls.from_file(file), rows)
        before, n_refused, n_answered = memory.peak(), 0, 0
        for name, forged in islice(cases(file), first, None, step):
            say(f"{fixture.stem} {name}")
            try:
                model = cls.from_file(forged)
            except ModelError:
                n_refused += 1
                continue
            predict(model, rows)
            n_answered += 1
        assert memory.peak() - before < MOST_GROWTH, memory.peak() - before
    say(f"{fixture.stem}: {n_refused} refused, {n_answered} answered")


def main(step: int, fixtures: list[str]) -> None:
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        for number, fixture in enumerate(fixtures):
            forge(Path(fixture), number % step, step)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
