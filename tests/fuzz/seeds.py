"""The inputs that fuzzing starts from: small, valid files of each kind, and some known attacks.

python tests/fuzz/seeds.py
"""

from __future__ import annotations

import gzip
import io
import lzma
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from scipy.sparse import csr_array
from targets import pack_files

from labelry.data import Dataset, write
from labelry.data.shard_writer import write_shards
from labelry.estimators.baselines import OneVsRest
from labelry.estimators.tagging import Tagger

CORPUS = Path(__file__).parent / "corpus"
TEXTS = ["knee pain", "arm broken", "knee swollen", "arm pain"] * 3
LABELS = [["knee"], ["arm"], ["knee", "acute"], ["arm"]] * 3
JSONL = b'{"text": "knee pain", "labels": ["knee"]}\n{"text": "caf\\u00e9", "labels": null}\n'
CSV = b'text,labels\nknee pain,knee|acute\n"two\nlines, ""quoted""",\n'


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def zip_bomb() -> bytes:
    """An array of a quarter of a terabyte of zeros, as its header says, in a few kilobytes."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 36, 1)}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", head.getvalue() + bytes(1 << 20))
    return out.getvalue()


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def directory(path: Path) -> bytes:
    return pack_files({file.name: file.read_bytes() for file in sorted(path.iterdir())})


def directories(folder: Path) -> dict[str, list[bytes]]:
    Y = csr_array(np.eye(3, dtype=np.float32))
    write(Dataset(Y, csr_array(np.eye(3, 4, dtype=np.float32))), folder / "rows.xc")
    write_shards(folder / "rows.xc", folder / "of rows", shard_bytes=30)
    (folder / "texts.jsonl").write_bytes(2 * JSONL)
    write_shards(folder / "texts.jsonl", folder / "of texts")
    OneVsRest(n_jobs=1).fit(np.eye(3, dtype=np.float32), [0, 1, 2]).save(folder / "vectors")
    Tagger(quality="fast", n_jobs=1).fit(TEXTS, LABELS).save(folder / "tagger")
    return {
        "shards": [directory(folder / "of rows"), directory(folder / "of texts")],
        "model": [directory(folder / "vectors"), directory(folder / "tagger")],
    }


def files() -> dict[str, list[bytes]]:
    xc = b"3 4 5\n0,4 0:0.5 3:-1e-3\n 1:2\n2 \n"
    svmlight = b"# comment\n1 1:0.5 3:1\n-1 2:+2.5e1 # more\n2.0 4:.5\n"
    sparse = {"data": np.ones(2, np.float32), "indices": np.arange(2), "indptr": np.arange(3)}
    Y = {f"Y_{name}": part for name, part in sparse.items()} | {"Y_shape": np.array([2, 2])}
    table = pa.table({"text": ["knee", "arm"], "labels": [["a", "b"], None]})
    bombs = [
        gzip.compress(bytes(1 << 22), mtime=0),
        zstandard.compress(b"\n" * (1 << 25)),
        lzma.compress(b"1 " * (1 << 22)),
    ]
    return {
        "xc": [xc, b"1000000000000 4 5\n0 0:1\n", b"1 2147483647 2147483647\n2147483646 5:1\n"],
        "svmlight": [
            svmlight,
            b"1,2 1:1\n3 2147483647:1\n",
            b"1 1:1e-400 2:123456789012345678901\n",
        ],
        "npz": [npz(**Y, X=np.eye(2)), npz(**Y, label_names=np.array(["a", "b"])), zip_bomb()],
        "jsonl": [JSONL, b"[" * 4000, b'{"text": "\\ud800", "labels": [1, true]}\n'],
        "csv": [CSV, b'text,label\n"never closed\n'],
        "tsv": [CSV.replace(b",", b"\t")],
        "parquet": [parquet(table), parquet(pa.table({"title": ["x"], "tags": [1]}))],
        "fasttext": [b"__label__a __label__b some text\nno label\n\n"],
        "stream": [gzip.compress(xc, mtime=0), lzma.compress(xc), zstandard.compress(xc), *bombs],
        "label-names": [b"knee\narm\nleg\n"],
        "names-tsv": [b"label\tname\nM25\tpain\tin joint\n"],
        "names-csv": [b'label,name\nM25,"pain, in ""joint"""\n'],
        "names-jsonl": [
            b'{"label": "M25", "name": "pain"}\n{"label": 3, "name": "x"}\n',
            b"[" * 4000,
        ],
        "hierarchy": [b"body\tleg\nleg\tknee\nbody\tarm\n", b"a b\nb c\nc a\n"],
        "any": [xc, svmlight, JSONL, CSV, gzip.compress(JSONL, mtime=0)],
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for target, contents in (files() | directories(Path(folder))).items():
            (CORPUS / target).mkdir(parents=True, exist_ok=True)
            for number, content in enumerate(contents):
                (CORPUS / target / f"seed-{number}").write_bytes(content)


if __name__ == "__main__":
    main()
