"""Label embeddings as files that other tools read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labelry.arrays import F32
from labelry.data.streams import open_output
from labelry.errors import DataError


def export_files(path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
    """Return the files that `export_embedding` would write; an error if it would refuse to."""
    path = Path(path)
    name = path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst")
    is_text = name.endswith((".txt", ".vec"))
    if not is_text and path.suffix != ".npy":
        raise DataError("expected a file name that ends in .npy, .txt or .vec", path=path)
    files = [path] if is_text else [path, path.with_name(path.name + ".labels.txt")]
    for file in files:
        if file.exists() and not force:
            raise DataError("the file already exists; use force (--force) to replace it", path=file)
    return files


def export_embedding(
    path: str | os.PathLike[str], vectors: F32, names: Sequence[object], *, force: bool = False
) -> list[Path]:
    """Write label vectors and names in the format of the suffix, and return the files written.

    ``.npy`` has the array; a file with ``.labels.txt`` added has the names, one per line.
    ``.txt`` or ``.vec`` (also compressed) is word2vec's text format, one line per label. It cannot
    hold names with white space.
    """
    if len(names) != len(vectors):
        raise ValueError(f"names must name the {len(vectors)} vectors; got {len(names)}")
    texts = [str(name) for name in names]
    files = export_files(path, force=force)
    is_text = len(files) == 1
    separators = str.split if is_text else str.splitlines
    for row, text in enumerate(texts):
        if separators(text) != [text]:
            what = "white space" if is_text else "a line break"
            message = f"label {row} is {text!r}: the format cannot hold {what}"
            raise DataError(message, path=files[0])
    if is_text:
        with open_output(files[0]) as stream:
            stream.write(f"{len(texts)} {vectors.shape[1]}\n".encode())
            for text, vector in zip(texts, vectors, strict=True):
                values = " ".join(f"{v:.6g}" for v in vector.tolist())
                stream.write(f"{text} {values}\n".encode())
    else:
        with open_output(files[0]) as stream:
            np.lib.format.write_array(stream, vectors, allow_pickle=False)
        with open_output(files[1]) as stream:
            stream.write("".join(f"{text}\n" for text in texts).encode())
    return files
