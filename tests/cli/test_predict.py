"""labelry predict: any input, three outputs, block after block, whole files or none."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner, Result

import labelry
from labelry.cli.app import app

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
WORDS = {"cat": "cat purrs whiskers", "dog": "dog barks bone", "fish, wet": "fish swims water"}
TEXTS = ["the cat purrs", "bone and barks", "water fish"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of texts and one of features."""
    folder = tmp_path_factory.mktemp("predict")
    texts = list(WORDS.values()) * 5
    model = labelry.OneVsRest(loss="logistic", C=10, n_jobs=1)
    model.fit(texts, [[name] for name in WORDS] * 5).save(folder / "texts.labelry")
    X = np.eye(3, dtype=np.float32)
    labelry.OneVsRest(n_jobs=1).fit(X, csr_array(X)).save(folder / "features.labelry")
    return folder


def predict(*arguments: object, input: bytes | str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)], input=input)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        assert code == 2, result.exception  # `main` says it in one line
        assert isinstance(result.exception, ValueError)
    else:
        assert result.exit_code == code, result.stderr
    return result


def lines_of(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


TEXT_INPUTS = {
    "lines": "\n".join(TEXTS).encode(),
    "jsonl": "".join(json.dumps({"id": 7, "text": t}) + "\n" for t in TEXTS).encode(),
    "csv": ("id,text\n" + "".join(f"7,{t}\n" for t in TEXTS)).encode(),
    "one column": ("text\n" + "\n".join(TEXTS)).encode(),
}


@pytest.mark.parametrize("content", TEXT_INPUTS.values(), ids=TEXT_INPUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_texts_from_standard_input(folder: Path, content: bytes, packed: bool) -> None:
    data = gzip.compress(content) if packed else content
    for file in ([], ["-"]):
        rows = lines_of(predict(folder / "texts.labelry", *file, "-k", 1, input=data))
        assert [row["labels"] for row in rows] == [["cat"], ["dog"], ["fish, wet"]]


@pytest.mark.parametrize(
    "content",
    [b"3 3 3\n0 0:1\n 1:2\n1 2:1\n", b"1:1\n2:2\n3:1\n", b"-1 1:1\n+1 2:2\n-1 3:1\n"],
    ids=["xc", "svmlight", "svmlight of two classes"],
)
def test_features_from_standard_input(folder: Path, content: bytes) -> None:
    rows = lines_of(predict(folder / "features.labelry", "-", "-k", 1, "-q", input=content))
    assert [row["labels"] for row in rows] == [[0], [1], [2]]


def test_input_that_does_not_fit(folder: Path, tmp_path: Path) -> None:
    texts, features = folder / "texts.labelry", folder / "features.labelry"
    assert "fitted on texts" in str(predict(texts, input=b"1:1\n", code=2).exception)
    assert "expected xc or svmlight" in str(predict(features, input=b"a cat", code=2).exception)
    zero = predict(features, input=b"0:1\n1:1\n", code=2).exception
    assert "found feature '0', expected an integer from 1 to 3" in str(zero)
    assert "an empty file" in str(predict(texts, input=b"", code=2).exception)
    other = predict(texts, "--input-format", "csv", input=b"doc\na cat\n", code=2).exception
    assert "text_column" in str(other)
    numbers = predict(texts, "--input-format", "fasttext", "-q", input=b"1 2 3\n")
    assert len(lines_of(numbers)) == 1


def test_every_output_says_the_same(folder: Path, tmp_path: Path) -> None:
    arguments = (folder / "texts.labelry", "-", "-k", 2, "-q")
    data = TEXT_INPUTS["lines"]
    rows = lines_of(predict(*arguments, input=data))
    cells = predict(*arguments, "--format", "csv", input=data).stdout
    table = list(csv.DictReader(io.StringIO(cells)))
    assert [[row["label_1"], row["label_2"]] for row in table] == [r["labels"] for r in rows]
    assert [[float(row["score_1"]), float(row["score_2"])] for row in table] == [
        r["scores"] for r in rows
    ]
    header, *lines = predict(*arguments, "--format", "xc", input=data).stdout.splitlines()
    assert header == "3 3"  # rows and labels
    names = list(WORDS)
    for line, row in zip(lines, rows, strict=True):
        pairs = dict(pair.split(":") for pair in line.split())
        scores = {names[int(column)]: float(score) for column, score in pairs.items()}
        assert scores == dict(zip(row["labels"], row["scores"], strict=True))


def test_threshold_takes_all_labels_that_reach_it(folder: Path) -> None:
    model, data = folder / "texts.labelry", b"cat dog\nfish\n"
    every = lines_of(predict(model, "-k", 3, "-q", input=data))
    (limit,) = every[0]["scores"][1:2]
    rows = lines_of(predict(model, "--threshold", limit - 1e-6, "-q", input=data))
    assert rows[0]["labels"] == every[0]["labels"][:2]
    assert all(score >= limit - 1e-6 for row in rows for score in row["scores"])
    best = lines_of(predict(model, "--threshold", 0.0, "-k", 1, "-q", input=data))
    assert [len(row["labels"]) for row in best] == [1, 1]


def test_a_document_without_a_known_word_says_so(folder: Path) -> None:
    rows = lines_of(predict(folder / "texts.labelry", "-k", 1, "-q", input=b"zebra\na cat\n\n"))
    assert rows[0] == {"labels": [], "scores": [], "note": "no known word"}
    assert rows[1]["labels"] == ["cat"]
    assert "note" not in rows[1]
    cells = predict(folder / "texts.labelry", "-k", 1, "-q", "--format", "csv", input=b"zebra\n")
    assert cells.stdout == "text,label_1,score_1\nzebra,,\n"


@pytest.mark.parametrize(
    "model",
    [
        labelry.Rembrandt(embedding_dim=8, n_neighbors=10),
        labelry.LinearLabelTree(n_trees=2, depth=2),
        labelry.SLEEC(n_learners=2, embedding_dim=5, n_neighbors=10),
        labelry.Tagger(quality="balanced"),
    ],
    ids=lambda model: model.system,
)
def test_many_blocks_side_by_side_keep_their_order(model: object, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(20, size=5_000)
    words = np.where(
        rng.random((5_000, 6)) < 0.5, labels[:, None], rng.integers(60, size=(5_000, 6))
    )
    texts = [" ".join(f"w{word}" for word in row) for row in words.tolist()]
    model.fit(texts[:400], [[f"label {label}"] for label in labels[:400]])
    model.save(tmp_path / "model")
    data = "\n".join(texts).encode()
    one = predict(tmp_path / "model", "-k", 3, "-q", "--jobs", 1, input=data).stdout
    two = predict(tmp_path / "model", "-k", 3, "-q", "--jobs", 2, input=data).stdout
    assert one == two
    rows = [json.loads(line) for line in one.splitlines()]
    expected, scores = model.set_params(n_jobs=1).predict_topk(texts, 3)
    assert [row["labels"][0] for row in rows] == expected[:, 0].tolist()
    np.testing.assert_allclose([row["scores"][0] for row in rows], scores[:, 0], rtol=1e-4)


def test_a_file_appears_only_when_it_is_complete(folder: Path, tmp_path: Path) -> None:
    good = '{"text": "the cat"}\n' * 4_500
    (tmp_path / "new.jsonl").write_text(good + '{"text": \n')
    for form in ("jsonl", "csv", "xc"):
        out = tmp_path / f"out.{form}.gz"
        arguments = (folder / "texts.labelry", tmp_path / "new.jsonl", "--format", form, "-o", out)
        failed = predict(*arguments, code=2).exception
        assert "new.jsonl:4501: found invalid JSON" in str(failed)
        assert [path.name for path in tmp_path.iterdir()] == ["new.jsonl"]
    (tmp_path / "new.jsonl").write_text(good)
    result = predict(*arguments)
    assert "labelling new.jsonl: 4,500 rows" in result.stderr
    text = gzip.decompress(out.read_bytes()).decode()
    assert text.startswith("4500 3\n")
    assert text.count("\n") == 4_501
    assert "already exists" in str(predict(*arguments, code=2).exception)


def start(*arguments: object) -> subprocess.Popen[bytes]:
    # A test that runs in the background may have inherited that interrupts are ignored.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [LABELRY[0], "-c", heeding + LABELRY[2], "predict", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_reader_that_has_enough_ends_it_quietly(folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.txt"
    new.write_text("the cat purrs\n" * 30_000)
    with start(folder / "texts.labelry", new, "--quiet") as process:
        assert json.loads(process.stdout.readline())["labels"][0] == "cat"
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stdin.close()
    assert process.returncode == 1


def test_interrupt_leaves_no_traceback(folder: Path) -> None:
    # A block and a bit, as input is read in parts of 256 KiB; what comes out fits into a pipe.
    texts = (b"the cat purrs at other cats " * 5 + b"\n") * 3_800
    options = ("-k", 1, "--format", "csv", "--quiet", "--jobs", 1)
    with start(folder / "texts.labelry", *options) as process:
        process.stdin.write(texts)
        process.stdin.flush()
        assert process.stdout.readline() == b"text,label_1,score_1\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.stdin.close()
    assert process.returncode == 130
    assert re.search(rb"labelry: interrupted; [\d,]+ rows are printed\n", said), said
    assert b"Traceback" not in said
