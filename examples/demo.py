"""Train, evaluate and try a tagger on generated documents, by the commands a person would type.

    python examples/demo.py [--rows 20000] [--tags 500]

Each tag has words of its own, common words are shared, and a document mixes the words of its
tags; so the task is easy to understand, and hard enough that the figures mean something.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

CONSONANTS, VOWELS = np.array(list("bdfgklmnprstvz")), np.array(list("aeiou"))


def make_words(n: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct pronounceable words."""
    words: dict[str, None] = {}
    while len(words) < n:
        pairs = [f"{rng.choice(CONSONANTS)}{rng.choice(VOWELS)}" for _ in range(rng.integers(2, 5))]
        words["".join(pairs)] = None
    return np.array(list(words))


def make_documents(n_rows: int, n_tags: int, seed: int = 0) -> list[dict[str, object]]:
    """Documents with 1 to 4 tags; half of the words are about the tags, half about nothing."""
    rng = np.random.default_rng(seed)
    words = make_words(3 * n_tags + 1000, rng)
    popularity = 1.0 / np.arange(1, n_tags + 1)
    popularity /= popularity.sum()
    # Each tag speaks through six words, some of which other tags use too.
    own = np.array([rng.choice(3 * n_tags, size=6, replace=False) for _ in range(n_tags)])
    documents: list[dict[str, object]] = []
    for _ in range(n_rows):
        tags = rng.choice(n_tags, size=rng.integers(1, 5), replace=False, p=popularity)
        about = rng.choice(own[tags].ravel(), size=10)
        filler = rng.integers(3 * n_tags, len(words), size=10)
        text = rng.permutation(words[np.concatenate([about, filler])])
        documents.append(
            {"text": " ".join(text), "labels": [f"#{words[own[t][0]]}{t}" for t in tags]}
        )
    return documents


def write(path: Path, documents: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(d) + "\n" for d in documents))


def labelry(*arguments: str) -> str:
    """Run a labelry command, showing it as it would be typed."""
    print(f"\n$ labelry {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-c", "from labelry.cli import main; main()", *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, end="")
    return result.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--tags", type=int, default=500)
    arguments = parser.parse_args()
    documents = make_documents(arguments.rows, arguments.tags)
    cut = 3 * len(documents) // 4
    with tempfile.TemporaryDirectory() as folder:
        train, test, new, model = (
            str(Path(folder) / name)
            for name in ("train.jsonl", "test.jsonl", "new.jsonl", "tagger.labelry")
        )
        write(Path(train), documents[:cut])
        write(Path(test), documents[cut:])
        write(Path(new), [{"text": d["text"]} for d in documents[cut : cut + 3]])
        labelry("stats", train)
        labelry("train", train, "--out", model, "--loss", "logistic", "--C", "10")
        labelry("evaluate", model, test, "--by-frequency")
        predicted = labelry("predict", model, new, "-k", "3", "--quiet")
        print("\nWhat those three documents are tagged in truth:")
        for line, document in zip(predicted.splitlines(), documents[cut : cut + 3], strict=True):
            print(f"  {document['labels']}, predicted {json.loads(line)['labels']}")


if __name__ == "__main__":
    main()
