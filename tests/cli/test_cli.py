"""The command line as a person uses it: real processes, real files, exit codes, messages."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from labelry.cli.app import app
from labelry.cli.data_commands import frequency_curve

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
WORDS = {"cat": "cat purrs whiskers", "dog": "dog barks bone", "fish": "fish swims water"}


def labelry(*arguments: object, code: int = 0, **options: object) -> subprocess.CompletedProcess:
    """Run a command and check its exit code."""
    result = subprocess.run(
        [*LABELRY, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        **options,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents about animals as JSONL, and a model trained on them."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        animals = rng.choice(list(WORDS), size=rng.integers(1, 3), replace=False).tolist()
        words = rng.permutation(" ".join(WORDS[a] for a in animals).split())
        rows.append({"text": " ".join(words), "labels": animals})
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "train.jsonl").write_text("".join(lines[:45]))
    (folder / "test.jsonl").write_text("".join(lines[45:]))
    model = folder / "model.labelry"
    train = ("train", folder / "train.jsonl", "--out", model, "--system", "one-vs-rest")
    labelry(*train, "--loss", "logistic", "--C", 10)
    labelry("train", folder / "train.jsonl", "--out", folder / "tagger.labelry", "-q")
    return folder


@pytest.fixture
def xc(tmp_path: Path) -> Path:
    path = tmp_path / "small.txt"
    path.write_text("3 4 2\n0,1 0:1 2:0.5\n1 3:2\n 1:1\n")
    return path


def test_help_names_every_command() -> None:
    text = labelry("--help").stdout
    commands = [str(command.name) for command in app.registered_commands]
    assert len(commands) > 10
    for command in commands:
        assert command in text
        shown = CliRunner().invoke(app, [command, "--help"]).stdout
        assert "Example: labelry" in shown
    assert "labelry 0." in labelry("--version").stdout


def test_similar_labels(folder: Path) -> None:
    model = folder / "embedded.labelry"
    labelry("train", folder / "train.jsonl", "--out", model, "--system", "plst")
    found = json.loads(labelry("similar", model, "cat", "-k", 2, "--json").stdout)
    assert found["label"] == "cat"
    assert sorted(row["label"] for row in found["similar"]) == ["dog", "fish"]
    assert "cosine" in labelry("similar", model, "cat").stdout
    error = labelry("similar", model, "cow", code=2).stderr
    assert "label must be one of the 3 labels of the model, got 'cow'" in error
    error = labelry("similar", folder / "model.labelry", "cat", code=2).stderr
    assert "one-vs-rest has no label vectors" in error


def test_help_has_the_parameters_of_the_system_that_is_named() -> None:
    text = labelry("train", "--help").stdout
    assert "fast|balanced|best" in text
    assert "--max-sweeps" not in text
    text = labelry("train", "--help", "--system", "one-vs-rest").stdout
    assert "--max-sweeps" in text
    assert "--normalize" in text
    assert "--no-normalize" in text
    assert "Weight of the losses against the regulariser" in text
    assert "squared_hinge|logistic" in text
    assert "fast|balanced|best" not in text
    assert "--depth" in labelry("tune", "--system=linear-tree", "--help").stdout


def test_evaluate(folder: Path) -> None:
    result = labelry("evaluate", folder / "model.labelry", folder / "test.jsonl", "--json")
    values = json.loads(result.stdout)
    assert values["rows"] == 15
    assert values["P@1"] > 90
    assert 0 < values["P@3"] <= 100
    assert {"nDCG@5", "PSP@1", "AUC", "ECE", "seconds"} <= set(values)
    assert "evaluating: 15 rows" in result.stderr  # progress is not on standard output
    table = labelry(
        "evaluate", folder / "model.labelry", folder / "test.jsonl", "--by-frequency", "-q"
    )
    assert "torso P" in table.stdout
    assert table.stderr == ""


def test_predict(folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("text\nthe cat purrs\nbone and barks\n")  # no label column
    lines = labelry("predict", folder / "model.labelry", new, "-k", 2).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["labels"][0] for row in rows] == ["cat", "dog"]
    assert all(len(row["labels"]) == len(row["scores"]) == 2 for row in rows)
    out = tmp_path / "out.jsonl.gz"
    labelry("predict", folder / "model.labelry", new, "-k", 2, "--out", out)
    assert gzip.decompress(out.read_bytes()).decode().splitlines() == lines
    again = labelry("predict", folder / "model.labelry", new, "--out", out, code=2)
    assert "already exists" in again.stderr


def test_inspect(folder: Path) -> None:
    found = json.loads(labelry("inspect", folder / "model.labelry", "--json").stdout)
    assert found["system"] == "one-vs-rest"
    assert found["n_labels"] == 3
    assert found["parameters"]["C"] == 10
    assert "coef" in labelry("inspect", folder / "model.labelry").stdout


@pytest.mark.parametrize("decoder", ["neighbours", "logistic", "least-squares"])
def test_rembrandt(folder: Path, tmp_path: Path, decoder: str) -> None:
    model = tmp_path / "model"
    train = ("train", folder / "train.jsonl", "--out", model, "--system", "rembrandt")
    result = labelry(*train, "--embedding-dim", 3, "--decoder", decoder)
    assert "learning label vectors" in result.stderr
    values = json.loads(labelry("evaluate", model, folder / "test.jsonl", "--json").stdout)
    assert values["P@1"] > 90
    assert values["AUC"] > 90
    bad = labelry(*train, "--force", "--loss", "logistic", code=2)
    assert "--loss is not for rembrandt" in bad.stderr.replace("\n", " ")


def test_embed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.npy"
    arguments = ("embed", folder / "train.jsonl", "--out", out, "--embedding-dim", 2)
    written = json.loads(labelry(*arguments, "--json", "-q").stdout)
    assert (written["labels"], written["dimensions"]) == (3, 2)
    assert np.load(out).shape == (3, 2)
    assert Path(f"{out}.labels.txt").read_text().split() == ["cat", "dog", "fish"]
    assert "already exists" in labelry(*arguments, code=2).stderr


def test_tree(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "tree.labelry"
    labelry("train", folder / "train.jsonl", "--out", model, "--system", "label-tree", "-q")
    outline = labelry("tree", model).stdout
    assert outline.startswith("3 labels: ")
    assert {"cat", "dog", "fish"} <= set(outline.replace(",", " ").split())
    nested = json.loads(labelry("tree", model, "--format", "json").stdout)
    assert nested["children"]
    assert "digraph" in labelry("tree", model, "--format", "dot").stdout
    assert labelry("tree", model, "--format", "newick").stdout.strip().endswith(";")
    out = tmp_path / "tree.txt"
    labelry("tree", model, "--out", out)
    assert out.read_text() == outline
    assert "already exists" in labelry("tree", model, "--out", out, code=2).stderr
    flat = folder / "model.labelry"
    assert "has no tree" in labelry("tree", flat, code=2).stderr
    assert "has no topics" in labelry("topics", flat, code=2).stderr


def test_a_taxonomy_file_is_the_tree(folder: Path, tmp_path: Path) -> None:
    taxonomy, model = tmp_path / "animals.tsv", tmp_path / "animals.labelry"
    taxonomy.write_text("animal\tmammal\nmammal\tcat\nmammal\tdog\nanimal\tfish\n")
    arguments = ("train", folder / "train.jsonl", "--out", model, "--system", "label-tree", "-q")
    labelry(*arguments, "--tree", taxonomy)
    top = json.loads(labelry("tree", model, "--format", "json").stdout)["children"]
    assert sorted(node.get("name", "inner") for node in top) == ["fish", "inner"]
    scores = labelry("evaluate", model, folder / "test.jsonl", "--json").stdout
    assert json.loads(scores)["P@1"] > 0.9
    taxonomy.write_text("animal mammal\nfish\n")
    assert "animals.tsv:2" in labelry(*arguments, "--force", "--tree", taxonomy, code=2).stderr
    refused = labelry(*arguments, "--force", "--tree", "oak", code=2).stderr
    assert "--tree must be one of rembrandt, confusion, random, FILE; got 'oak'" in refused


def test_topics(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "topics.labelry"
    arguments = ("train", folder / "train.jsonl", "--out", model, "--system", "moments")
    labelry(*arguments, "--n-topics", 2, "-q")
    found = json.loads(labelry("topics", model, "-k", 2, "--json").stdout)["topics"]
    assert len(found) == 2
    assert found[0]["share"] >= found[1]["share"]
    assert sum(topic["share"] for topic in found) == pytest.approx(1.0, abs=1e-3)
    assert {label for topic in found for label in topic["labels"]} <= {"cat", "dog", "fish"}
    assert "share" in labelry("topics", model).stdout
    labelry("topics", model, "--out", tmp_path / "topics.svg")
    assert "<svg" in (tmp_path / "topics.svg").read_text()
    assert "must end in .svg" in labelry("topics", model, "--out", "x.txt", code=2).stderr


def test_train_refuses_before_it_trains(folder: Path) -> None:
    model, train = folder / "model.labelry", folder / "train.jsonl"
    assert "already exists" in labelry("train", train, "--out", model, code=2).stderr
    bad = labelry("train", train, "--out", folder / "x", "--system", "oracle", code=2)
    assert "unknown system 'oracle'; there are: one-vs-rest" in bad.stderr
    one = ("train", train, "--out", folder / "x", "--system", "one-vs-rest")
    bad = labelry(*one, "--loss", "cubic", code=2)
    assert "--loss must be one of squared_hinge, logistic; got 'cubic'" in bad.stderr
    bad = labelry(*one, "--los", "logistic", code=2)
    assert "No such option" in bad.stderr
    bad = labelry(*one, "--C", "-1", code=2)
    assert "--C must be positive, got -1" in bad.stderr
    assert not (folder / "x").exists()


def test_same_seed_same_bytes(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        labelry("train", folder / "train.jsonl", "--out", tmp_path / name, "--seed", 4, "-q")
    for file in (tmp_path / "a").iterdir():
        if file.name != "training.json":  # what took how long
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_stats(xc: Path) -> None:
    values = json.loads(labelry("stats", xc, "--json").stdout)
    assert (values["n_rows"], values["n_features"], values["n_labels"]) == (3, 4, 2)
    assert values["rows_without_labels"] == 1
    shown = labelry("stats", xc).stdout
    assert "rows without labels" in shown
    assert "█" in shown


def test_convert_and_back(xc: Path, tmp_path: Path) -> None:
    for step, name in enumerate(["a.npz", "b.svmlight.gz", "c.xc.xz", "d.txt.zst"]):
        result = labelry("convert", xc, tmp_path / name, "--json", "-q")
        assert json.loads(result.stdout)["rows"] == 3, step
    labelry("convert", tmp_path / "d.txt.zst", tmp_path / "back.txt", "-q")
    assert json.loads(labelry("stats", tmp_path / "back.txt", "--json").stdout) == json.loads(
        labelry("stats", xc, "--json").stdout
    )
    assert "already exists" in labelry("convert", xc, tmp_path / "a.npz", code=2).stderr


def test_shards(folder: Path, tmp_path: Path) -> None:
    shards, texts = tmp_path / "shards", folder / "train.jsonl"
    convert = ("convert", texts, shards, "--sharded", "--shard-size", "1kB")
    assert json.loads(labelry(*convert, "--json").stdout)["rows"] == 45
    assert len(list(shards.glob("shard-*"))) > 2
    system = ("--system", "rembrandt", "--embedding-dim", "3", "--jobs", "1")
    labelry("train", shards, "--out", tmp_path / "a", *system, "--memory", "1MiB")
    in_memory = ("train", str(texts), "--out", str(tmp_path / "b"), *system)
    assert CliRunner().invoke(app, in_memory).exit_code == 0
    a, b = ((tmp_path / name / "arrays.safetensors").read_bytes() for name in "ab")
    assert a == b
    error = labelry("train", shards, "--out", tmp_path / "c", "--memory", "6kB", code=1).stderr
    assert "quality balanced, which has all rows in memory, needs about" in error


def test_what_has_no_place_with_shards(folder: Path, xc: Path, tmp_path: Path) -> None:
    def invoke(*arguments: object) -> str:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)))
        return result.output + str(result.exception)

    shards, names = tmp_path / "shards", tmp_path / "names.tsv"
    invoke("convert", xc, shards, "--sharded")
    assert "the option force" in invoke("convert", xc, shards, "--sharded")
    names.write_text("cat\tan animal\n")
    out = ("--out", tmp_path / "model")
    assert "memory must be at least" in invoke("train", shards, *out, "--memory", "10")
    assert "got 'much'" in invoke("train", shards, *out, "--memory", "much")
    assert "--names needs texts" in invoke("train", shards, *out, "--names", names)
    assert "--group-column needs a table" in invoke("train", shards, *out, "--group-column", "a")
    error = invoke("train", folder / "train.jsonl", *out, "--memory", "1GiB")
    assert "labelry convert --sharded" in error
    error = invoke("convert", xc, tmp_path / "other", "--sharded", "--to", "npz")
    assert "--sharded has its own" in error


def test_predictions_for_shards_of_features(xc: Path, tmp_path: Path) -> None:
    def invoke(*arguments: object) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    shards, model = tmp_path / "shards", tmp_path / "model"
    invoke("convert", xc, shards, "--sharded")
    invoke("train", shards, "--out", model, "--system", "one-vs-rest")
    assert invoke("predict", model, shards, "-q") == invoke("predict", model, xc, "-q")
    assert len(invoke("predict", model, shards, "-q").splitlines()) == 3
    assert json.loads(invoke("evaluate", model, shards, "--json", "-q"))["rows"] == 3
    assert json.loads(invoke("stats", shards, "--json", "-q"))["n_features"] == 4


def test_errors_name_the_place(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("2 3 2\n0 0:1\n1 7:1\n")
    error = labelry("stats", bad, "-q", code=2).stderr
    assert error.count("\n") == 1
    assert f"{bad}:3:" in error
    assert "7" in error
    assert "no such file" in labelry("stats", tmp_path / "none.txt", code=2).stderr.lower()
    assert labelry("inspect", tmp_path, code=2).stderr.startswith("labelry: ")


def test_interrupt_leaves_no_traceback_and_no_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{i % 400} " + " ".join(f"{f}:1" for f in sorted({*rng.integers(0, 5000, 60)})) + "\n"
        for i in range(4000)
    ]
    (tmp_path / "big.txt").write_text("4000 5000 400\n" + "".join(lines))
    endless = ["--system", "one-vs-rest", "--tolerance", "1e-9", "--max-sweeps", "10000000"]
    # A test that runs in the background may have inherited that interrupts are ignored.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [LABELRY[0], "-c", heeding + LABELRY[2], "train", "big.txt", "--out", "model"]
    with subprocess.Popen(
        [*command, *endless], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            while "needs about" not in process.stderr.readline():  # training begins
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert not (tmp_path / "model").exists()


def test_frequency_curve_falls_from_left_to_right() -> None:
    lines = frequency_curve(np.array([1000, 100, 10, 1, 1, 0]), width=20, height=4)
    assert len(lines) == 6
    assert lines[0].startswith("    1,000 |█")
    assert lines[0].endswith(" ")
    assert lines[-1].rstrip().endswith("5")
    assert frequency_curve(np.zeros(3)) == ["(no label has any row)"]


def test_the_tagger_is_what_is_trained_by_default(folder: Path, tmp_path: Path) -> None:
    model = folder / "tagger.labelry"
    found = json.loads(labelry("inspect", model, "--json").stdout)
    assert (found["system"], found["parameters"]["quality"]) == ("tagger", "balanced")
    values = json.loads(labelry("evaluate", model, folder / "test.jsonl", "--json", "-q").stdout)
    assert values["P@1"] > 90
    fast = tmp_path / "fast"
    train = ("train", folder / "train.jsonl", "--out", fast)
    done = labelry(*train, "--quality", "fast", "--objective", "f1", "--budget", "1h", "--json")
    assert json.loads(done.stdout)["system"] == "tagger"
    parameters = json.loads(labelry("inspect", fast, "--json").stdout)["parameters"]
    assert (parameters["quality"], parameters["objective"]) == ("fast", "f1")
    train = (*train, "--force")
    bad = labelry(*train, "--quality", "good", code=2).stderr
    assert "--quality must be one of fast, balanced, best; got 'good'" in bad
    other = labelry(*train, "--loss", "logistic", code=2).stderr
    assert "--loss is not for tagger; it has: --quality, --objective" in " ".join(other.split())


def test_names_make_labels_without_rows_predictable(folder: Path, tmp_path: Path) -> None:
    names, model = tmp_path / "names.tsv", tmp_path / "model"
    names.write_text("cat\tcat that purrs\nbird\tbird with wings and feathers\n")
    train = ("train", folder / "train.jsonl", "--out", model, "-q", "--names", names)
    labelry(*train)
    new = tmp_path / "new.csv"
    new.write_text("text\na bird with feathers\n")
    row = json.loads(labelry("predict", model, new, "-k", 1, "-q").stdout)
    assert row["labels"] == ["bird"]
    names.write_text("cat\tcat that purrs\nbird\n")
    assert "names.tsv:2: found 'bird'" in labelry(*train, "-f", code=2).stderr


def test_rows_of_a_group_are_held_out_together(tmp_path: Path) -> None:
    data, model = tmp_path / "train.jsonl", tmp_path / "model"
    rows = [
        {"text": f"word{i % 4} site{i // 6} filler{i % 7}", "labels": [f"L{i % 4}"], "site": i // 6}
        for i in range(240)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = ("train", data, "--out", model, "-q", "-f", "--quality", "fast")
    labelry(*train, "--group-column", "site")
    by_site = (model / "model.json").read_bytes()
    assert labelry("evaluate", model, data, "--json", "-q").stdout
    labelry(*train)
    assert (model / "model.json").read_bytes() != by_site  # other rows to calibrate on
    error = labelry(*train, "--group-column", "page", code=2).stderr
    assert "expected the group column 'page'" in error
    other = ("train", data, "--out", model, "-f", "--system", "blend", "--group-column", "site")
    error = labelry(*other, code=2).stderr
    assert "--group-column is for the tagger, not for blend" in " ".join(error.split())


def test_explain(folder: Path, tmp_path: Path) -> None:
    model, text = folder / "tagger.labelry", "the cat purrs at a bone"
    found = json.loads(labelry("explain", model, text, "-k", 1, "-n", 1, "--json").stdout)
    (best,) = found["explanations"]
    assert best["label"] == "cat"
    assert len(best["supporting"]) == 1
    assert best["supporting"][0][0] in {"cat", "purrs", "cat purrs"}
    listed = sum(value for _, value in best["supporting"] + best["opposing"])
    assert best["bias"] + listed + best["rest"] == pytest.approx(best["margin"])
    shown = labelry("explain", model, text, "--label", "dog").stdout
    assert shown.startswith("dog: 0.")
    assert "bone" in shown
    first = json.loads((folder / "test.jsonl").read_text().splitlines()[0])["labels"]
    row = labelry("explain", model, folder / "test.jsonl", "-k", 1, "--json").stdout
    assert json.loads(row)["explanations"][0]["label"] in first
    assert (
        "has 15 rows"
        in labelry("explain", model, folder / "test.jsonl", "--row", 15, code=2).stderr
    )
    other = labelry("explain", folder / "model.labelry", text, code=2).stderr
    assert "only a tagger or a linear tree can explain its labels" in other
