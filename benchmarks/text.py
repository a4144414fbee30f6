"""Tf-idf of the same documents with labelry and with scikit-learn, side by side.

    python benchmarks/text.py --documents 50000

Checks that both give the same features, then prints seconds, the ratios, and the time that one
short text takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from labelry.data.text import TextFeatures

N_WORDS = 60_000
LETTERS = list("abcdefghijklmnopqrstuvwxyz")


def generate(n_documents: int) -> list[str]:
    """Documents of 40 to 60 words; the frequency of a word is that of its rank, 1 / rank."""
    rng = np.random.default_rng(0)
    letters = "".join(rng.choice(LETTERS, 10 * N_WORDS))
    lengths = rng.integers(2, 11, N_WORDS)
    words = [letters[10 * i : 10 * i + n] for i, n in enumerate(lengths.tolist())]
    words[::50] = [word.capitalize() + "é" for word in words[::50]]  # not only ASCII
    weights = 1 / np.arange(1, N_WORDS + 1)
    sizes = rng.integers(40, 61, n_documents)
    drawn = rng.choice(N_WORDS, sizes.sum(), p=weights / weights.sum())
    text = np.array(words, dtype=object)[drawn].tolist()
    return [" ".join(text[a:b]) for a, b in pairwise([0, *np.cumsum(sizes).tolist()])]


def timed(function: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """(result, seconds) of the best of `repeats` runs."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return result, best


def report(name: str, ours: float, theirs: float) -> None:
    print(f"{name:40} {ours:8.3f} s  {theirs / ours:6.1f}x scikit-learn's {theirs:.3f} s")


def check_equal(X: csr_array, expected: Any) -> None:
    np.testing.assert_array_equal(X.indptr, expected.indptr)
    np.testing.assert_array_equal(X.indices, expected.indices)
    np.testing.assert_allclose(X.data, expected.data, rtol=1e-5)


def compare(documents: list[str], repeats: int, **settings: Any) -> None:
    """Words or sequences of words, with one thread and with two."""
    theirs = TfidfVectorizer(
        sublinear_tf=True, min_df=2, token_pattern=r"(?u)\b\w+\b", dtype=np.float32, **settings
    )
    E, fit_seconds = timed(lambda: theirs.fit_transform(documents), 1)
    _, transform_seconds = timed(lambda: theirs.transform(documents), 1)
    E.sort_indices()
    for n_jobs in (1, 2):
        ours = TextFeatures(n_jobs=n_jobs, **settings)
        X, seconds = timed(lambda: ours.fit_transform(documents), repeats)  # noqa: B023
        report(f"fit_transform {settings or ''} n_jobs={n_jobs}", seconds, fit_seconds)
        Z, seconds = timed(lambda: ours.transform(documents), repeats)  # noqa: B023
        report(f"transform {settings or ''} n_jobs={n_jobs}", seconds, transform_seconds)
        assert ours.vocabulary_ == theirs.get_feature_names_out().tolist()
        check_equal(X, E)
        check_equal(Z, E)
    print("both give the same features")


def compare_characters(documents: list[str]) -> None:
    """Character n-grams, which scikit-learn takes long for."""
    same = {"sublinear_tf": True, "min_df": 2, "dtype": np.float32}
    words = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", **same)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **same)
    blocks, theirs = timed(lambda: [v.fit_transform(documents) for v in (words, characters)], 1)
    E = normalize(hstack(blocks, format="csr"))
    E.sort_indices()
    for n_jobs in (1, 2):
        ours = TextFeatures(char_ngram_range=(3, 5), n_jobs=n_jobs)
        X, seconds = timed(lambda: ours.fit_transform(documents), 3)  # noqa: B023
        report(f"words and characters (3, 5) n_jobs={n_jobs}", seconds, theirs)
        check_equal(X, E)
        assert ours.char_vocabulary_ == characters.get_feature_names_out().tolist()
    print("both give the same features")


def measure_latency(documents: list[str], n_calls: int) -> None:
    ours = TextFeatures().fit(documents)
    theirs = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"(?u)\b\w+\b")
    theirs.fit(documents)
    times = {}
    for name, features in (("labelry", ours), ("scikit-learn", theirs)):
        calls = [
            timed(lambda i=i: features.transform(documents[i : i + 1]), 1)[1]  # noqa: B023
            for i in range(n_calls)
        ]
        times[name] = 1000 * np.median(calls)
    print(
        f"one text of 40 to 60 words: {times['labelry']:.3f} ms (median), "
        f"{times['scikit-learn'] / times['labelry']:.1f}x scikit-learn's "
        f"{times['scikit-learn']:.3f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=50_000, help="how many (50,000)")
    parser.add_argument("--repeats", type=int, default=5, help="labelry: best of so many runs (5)")
    args = parser.parse_args()
    documents = generate(args.documents)
    print(f"{len(documents)} documents, {sum(map(len, documents)) / 1e6:.1f} million characters")
    _, seconds = timed(lambda: TextFeatures().fit_transform(["a b", "a b"]), 1)
    print(f"first call (compile or cache) {seconds:.2f} s")
    compare(documents, args.repeats)
    compare(documents, 2, ngram_range=(1, 2))
    compare_characters(documents[: len(documents) // 10])
    measure_latency(documents, 1000)


if __name__ == "__main__":
    main()
