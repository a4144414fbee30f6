"""Changes of packed directories that keep their form, so that what is checked last is reached too.

Bytes that are changed at random mostly end JSON or the layout of arrays, and are refused there.
Here a value, a name or an array is another, a file is gone or has the content of another; the
target makes the checksums right.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import numpy as np
from forge import ODD, changed_arrays, places
from safetensors import SafetensorError
from safetensors.numpy import load, save
from targets import pack_files, unpack_files

Files = dict[str, bytes]
NAMES = ["", "../../x", "/etc/passwd", "shard-00000.safetensors", "model.json", "é\0", "x" * 300]
DTYPES = ["BOOL", "U8", "I32", "I64", "F16", "BF16", "F64"]


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Other bytes of the same form; the same bytes if they have none, or would be too many."""
    rng = random.Random(seed)
    files = unpack_files(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if files:
            rng.choice(CHANGES)(files, rng)
    changed = pack_files(files)
    return changed if len(changed) <= max_size else data


def change_json(files: Files, rng: random.Random) -> None:
    name = rng.choice([name for name in files if name.endswith(".json")] or [""])
    try:
        value = json.loads(files[name])
    except (KeyError, ValueError, RecursionError):
        return
    files[name] = json.dumps(changed(value, rng)).encode()


def change_layout(files: Files, rng: random.Random) -> None:
    """What the header of arrays says, and not the arrays."""
    name = rng.choice([name for name in files if name.endswith(".safetensors")] or [""])
    size = int.from_bytes(files.get(name, b"")[:8], "little")
    try:
        layout = json.loads(files[name][8 : 8 + size])
    except (KeyError, ValueError, RecursionError):
        return
    header = json.dumps(changed(layout, rng)).encode()
    files[name] = len(header).to_bytes(8, "little") + header + files[name][8 + size :]


def change_array(files: Files, rng: random.Random) -> None:
    """One array, and what is said of it: values, shape or type."""
    name = rng.choice([name for name in files if name.endswith(".safetensors")] or [""])
    try:
        arrays = load(files[name])
    except (KeyError, SafetensorError, ValueError, TypeError):
        return
    if not arrays:
        return
    which = rng.choice(sorted(arrays))
    with np.errstate(all="ignore"):
        others = [other for _, other in changed_arrays(arrays[which])]
    arrays[which] = rng.choice(others)
    files[name] = save(arrays)
    try:
        header = json.loads(files["model.json"])
        said = {"dtype": arrays[which].dtype.name, "shape": list(arrays[which].shape)}
        header["arrays"][which] |= said
        files["model.json"] = json.dumps(header).encode()
    except (KeyError, ValueError, TypeError, RecursionError):
        return  # it has no such table


def change_files(files: Files, rng: random.Random) -> None:
    a, b = rng.choice(list(files)), rng.choice([*files, "shard-00001.safetensors", "features.json"])
    how = rng.randrange(3)
    if how == 0:
        del files[a]
    elif how == 1:
        files[b] = files[a]
    else:
        files[a], files[b] = files.get(b, b""), files[a]


def changed(value: Any, rng: random.Random) -> Any:
    """Another value, without one, or with one by another name, or with one of the others."""
    everywhere = list(places(value))
    if not everywhere:
        return rng.choice(ODD)
    *above, key = rng.choice(everywhere)
    inside = at(value, above)
    how = rng.randrange(5)
    if how == 0:
        inside[key] = rng.choice([*ODD, *NAMES, *DTYPES])
    elif how == 1:
        inside[key] = deepcopy(at(value, rng.choice(everywhere)))
    elif how == 2 and isinstance(inside[key], (int, float)):
        inside[key] = rng.choice([inside[key] + 1, inside[key] - 1, 2 * inside[key], -inside[key]])
    elif how == 3 and isinstance(inside, dict):
        inside[rng.choice([*NAMES, *inside])] = inside.pop(key)
    elif how == 4:
        del inside[key]
    return value


def at(value: Any, place: Any) -> Any:
    for key in place:
        value = value[key]
    return value


CHANGES = (change_json, change_json, change_array, change_layout, change_files)
