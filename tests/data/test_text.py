"""Text features are those of scikit-learn, from any number of threads, and after loading."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import hstack
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import murmurhash3_32

import labelry.data.text as text_module
from labelry.data import text_kernels as kernels
from labelry.data.text import TextFeatures
from labelry.linalg.parallel import run

TEXTS = [
    "The cat sat on the mat, and the cat purred.",
    "A dog sat on the CAT; the cat left!",
    "Größe und Straße: 3 Ärzte — naïve café_bar",
    "größe der straße, 3 cafés",
    "",
    "x",
    "the the the mat x",
]


def generated(n_texts: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [
        " ".join(f"w{i}" for i in rng.zipf(1.4, rng.integers(0, 30)) % 500) for _ in range(n_texts)
    ]


def reference(**settings) -> TfidfVectorizer:
    defaults = {"sublinear_tf": True, "min_df": 2, "token_pattern": r"(?u)\b\w+\b"}
    return TfidfVectorizer(**(defaults | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"min_df": 1},
        {"ngram_range": (1, 2)},
        {"ngram_range": (2, 3), "min_df": 1},
        {"sublinear_tf": False},
        {"lowercase": False},
    ],
)
@pytest.mark.parametrize("texts", [TEXTS, generated(200)], ids=["sentences", "generated"])
def test_equals_tfidf_vectorizer(settings, texts):
    features, expected = TextFeatures(**settings), reference(**settings)
    X, E = features.fit_transform(texts), expected.fit_transform(texts)
    assert features.vocabulary_ == expected.get_feature_names_out().tolist()
    assert features.get_feature_names_out().tolist() == features.vocabulary_
    np.testing.assert_allclose(features.idf_, expected.idf_, rtol=1e-6)
    np.testing.assert_allclose(X.toarray(), E.toarray(), atol=1e-6)
    other = ["the mat w1 w2 w2 unknown", "Unknown words only", "W3 3"]
    np.testing.assert_allclose(
        features.transform(other).toarray(), expected.transform(other).toarray(), atol=1e-6
    )


# Letters whose lowercase is not one code point or depends on the others, blanks of all kinds,
# combining marks, digits and letters beyond 16 bits, a format character, lone surrogates.
SPECIAL = (
    "aAbZ_19 .-'İΣσςſKßéÉµ\u0301\u0345\u200d\u00ad\xa0\u2003\u3000\x1c\x85\n\0字𝐀𝟗𐐀😀\ud800\udfff"
)
ANY_TEXT = st.text(
    st.one_of(st.sampled_from(SPECIAL), st.characters(exclude_categories=())), max_size=30
)
ANY_TEXTS = st.lists(ANY_TEXT, min_size=1, max_size=5)


def terms_of(texts, kind, ngram_range, lowercase):
    """The terms of each text, as counts."""
    analyze = text_module._Analyzer(kind, ngram_range, lowercase)
    (text, starts, ends), bounds = analyze(texts)
    terms = [kernels.decode(text[a:b]) for a, b in zip(starts, ends, strict=True)]
    return [Counter(terms[a:b]) for a, b in pairwise(bounds)]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(
    ("kind", "ngram_range"),
    [
        ("word", (1, 1)),
        ("word", (1, 3)),
        ("word", (2, 2)),
        ("char_wb", (1, 3)),
        ("char_wb", (3, 5)),
        ("char_wb", (6, 40)),
    ],
)
@given(texts=ANY_TEXTS)
def test_terms_of_any_text_are_those_of_scikit_learn(kind, ngram_range, lowercase, texts):
    expected = CountVectorizer(
        analyzer=kind,
        ngram_range=ngram_range,
        lowercase=lowercase,
        token_pattern=r"(?u)\b\w+\b" if kind == "word" else None,
    ).build_analyzer()
    assert terms_of(texts, kind, ngram_range, lowercase) == [
        Counter(map(str, expected(t))) for t in texts
    ]


@given(ANY_TEXTS)
def test_any_texts_have_the_features_of_tfidf_vectorizer(texts):
    texts = [*texts, "a b", "A"]
    features, expected = TextFeatures(min_df=1), reference(min_df=1)
    X, E = features.fit_transform(texts), expected.fit_transform(texts)
    assert features.vocabulary_ == expected.get_feature_names_out().tolist()
    np.testing.assert_allclose(X.toarray(), E.toarray(), atol=1e-6)


def test_letters_are_those_of_regular_expressions():
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    words = kernels.letter_table(r"\w+", False)
    expected = [c.isalnum() or c == "_" for c in characters]
    assert (words != kernels._NO_LETTER).tolist() == expected
    assert re.findall(r"\w", "".join(characters)) == [
        c for c, is_letter in zip(characters, expected, strict=True) if is_letter
    ]
    blanks = kernels.letter_table(r"\S+", False) == kernels._NO_LETTER
    assert blanks.tolist() == [c.isspace() for c in characters]


def test_lowercase_of_each_character():
    lowered = kernels.letter_table(r"(?s).+", True)
    for code, low in enumerate(lowered.tolist()):
        assert chr(code) == "İ" or chr(low) == chr(code).lower()
    assert (lowered[lowered] == lowered).all()  # so lowercase texts may be looked up, too


def same_hash():
    """Two different terms with the same 64 bits of hash, found by the birthday paradox."""
    a, b = np.random.default_rng(0).integers(0, 1 << 32, (2, 400_000), np.uint64)
    state = ((kernels._BASIS ^ a) * kernels._PRIME ^ b) * kernels._PRIME
    order = np.argsort(state)
    high = state[order] >> np.uint64(32)
    i = np.flatnonzero(high[1:] == high[:-1])[0]
    # The third code takes away the difference in the lower half.
    codes = [(a[j], b[j], state[j] & np.uint64(0xFFFFFFFF)) for j in order[i : i + 2]]
    return np.array(codes, np.uint64).astype(np.uint32)


def test_terms_of_equal_hash_are_different_terms():
    first, second = same_hash()
    assert kernels._hash(first, 0, 3) == kernels._hash(second, 0, 3)
    assert (first != second).any()
    text = np.concatenate([first, second, first, second])
    starts = np.arange(0, 12, 3)
    numbers, *table = kernels.number_terms(text, starts, starts + 3)
    assert numbers.tolist() == [0, 1, 0, 1]
    assert kernels.find_terms(*table, text, starts, starts + 3).tolist() == [0, 1, 0, 1]
    _, *table = kernels.number_terms(first, starts[:1], starts[:1] + 3)
    assert kernels.find_terms(*table, text, starts, starts + 3).tolist() == [0, -1, 0, -1]


def packed(terms):
    """Terms in the form of the kernels."""
    text = kernels.encode("".join(terms)).copy()
    return text_module._packed(text, text_module._lengths(terms))


def test_numbers_of_many_terms_are_those_of_a_dictionary():
    words = [f"{i * i % 7919:x}" * (1 + i % 3) for i in range(20_000)]
    number: dict[str, int] = {}
    expected = [number.setdefault(word, len(number)) for word in words]
    terms = packed(words)
    numbers, *table = kernels.number_terms(*terms)
    assert numbers.tolist() == expected
    assert kernels.find_terms(*table, *terms).tolist() == expected
    assert kernels.find_terms(*table, *packed(["nope", "", words[7]])).tolist() == [-1, -1, 7]


@given(st.lists(ANY_TEXT, min_size=1, max_size=4), st.sampled_from([1, 7, 2**20, 2**31 - 1]))
def test_buckets_are_those_of_scikit_learn(texts, n_buckets):
    texts = [*texts, "x" * 100]
    for seed in (0, 1):
        hashes = [murmurhash3_32(t.encode("utf-8", "surrogatepass"), seed) for t in texts]
        buckets = kernels.hash_terms(*packed(texts), n_buckets, seed)
        assert buckets.tolist() == [abs(h) % n_buckets for h in hashes]


def test_result_is_canonical_float32():
    X = TextFeatures().fit_transform(TEXTS)
    assert X.dtype == np.float32
    assert X.indices.dtype == np.int32
    assert X.has_canonical_format
    norms = np.sqrt((X.toarray() ** 2).sum(axis=1))
    np.testing.assert_allclose(norms, [1, 1, 1, 1, 0, 1, 1], atol=1e-6)


def test_character_ngrams_weigh_as_much_as_words():
    features = TextFeatures(char_ngram_range=(2, 4))
    X = features.fit_transform(TEXTS)
    words = reference()
    chars = TfidfVectorizer(sublinear_tf=True, min_df=2, analyzer="char_wb", ngram_range=(2, 4))
    blocks = [words.fit_transform(TEXTS), chars.fit_transform(TEXTS)]
    np.testing.assert_allclose(X.toarray(), normalize(hstack(blocks)).toarray(), atol=1e-6)
    assert features.vocabulary_ == words.get_feature_names_out().tolist()
    assert features.char_vocabulary_ == chars.get_feature_names_out().tolist()
    names = features.get_feature_names_out().tolist()
    assert features.names_of([0, len(names) - 1]) == [names[0], names[-1]]
    assert len(set(names)) == len(names) == features.n_features_out_ == X.shape[1]
    assert "cat" in names
    assert "char:cat" in names


def test_max_features_keeps_the_most_frequent():
    texts = ["a a a b c", "b c d", "b d"]  # a: 3, b: 3, c: 2, d: 2
    assert TextFeatures(min_df=1, max_features=3).fit(texts).vocabulary_ == ["a", "b", "c"]
    assert TextFeatures(min_df=2, max_features=2).fit(texts).vocabulary_ == ["b", "c"]
    assert TextFeatures(min_df=1, max_features=9).fit(texts).vocabulary_ == ["a", "b", "c", "d"]


@pytest.mark.parametrize("n_buckets", [7, 2**10])
def test_hashing_equals_hashing_vectorizer(n_buckets):
    features = TextFeatures(hashing=n_buckets)
    hasher = HashingVectorizer(
        n_features=n_buckets, alternate_sign=False, norm=None, token_pattern=r"(?u)\b\w+\b"
    )
    expected = make_pipeline(hasher, TfidfTransformer(sublinear_tf=True)).fit(TEXTS)
    X = features.fit_transform(TEXTS)
    assert X.shape == (len(TEXTS), n_buckets)
    assert X.has_canonical_format
    np.testing.assert_allclose(X.toarray(), expected.transform(TEXTS).toarray(), atol=1e-6)
    assert features.vocabulary_ is None
    assert len(features.get_feature_names_out()) == n_buckets
    both = TextFeatures(hashing=n_buckets, char_ngram_range=(3, 3)).fit_transform(TEXTS)
    assert both.shape == (len(TEXTS), 2 * n_buckets)


SETTINGS = [
    {},
    {"char_ngram_range": (3, 4)},
    {"hashing": 64},
    {"hashing": 64, "char_ngram_range": (2, 3)},
]


def assert_same_bytes(A, B):
    assert A.shape == B.shape
    assert A.indptr.tobytes() == B.indptr.tobytes()
    assert A.indices.tobytes() == B.indices.tobytes()
    assert A.data.tobytes() == B.data.tobytes()


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("settings", SETTINGS)
def test_chunks_and_threads_do_not_change_the_result(settings, n_jobs, monkeypatch):
    texts = generated(100)
    whole = TextFeatures(**settings, n_jobs=1)
    X = whole.fit_transform(texts)
    assert_same_bytes(whole.transform(texts), X)
    monkeypatch.setattr(text_module, "_CHUNK_WORK", 2_000)
    threads = []

    def spy(function, tasks, n_jobs):
        threads.append(min(n_jobs, len(tasks)))
        return run(function, tasks, n_jobs)

    monkeypatch.setattr(text_module, "run", spy)
    cut = TextFeatures(**settings, n_jobs=n_jobs)
    assert_same_bytes(cut.fit_transform(texts), X)
    assert cut.vocabulary_ == whole.vocabulary_
    assert cut.idf_.tobytes() == whole.idf_.tobytes()
    assert_same_bytes(cut.transform(texts), X)
    assert set(threads) == {n_jobs}
    assert_same_bytes(cut.transform(texts, n_jobs=2), X)
    assert threads[-1] == 2


def test_max_features_do_not_depend_on_chunks(monkeypatch):
    texts = generated(100)
    whole = TextFeatures(max_features=20).fit(texts)
    expected = reference(max_features=20).fit(texts)
    assert whole.vocabulary_ == expected.get_feature_names_out().tolist()
    monkeypatch.setattr(text_module, "_CHUNK_WORK", 500)
    assert TextFeatures(max_features=20).fit(texts).vocabulary_ == whole.vocabulary_


@pytest.mark.parametrize("settings", SETTINGS)
def test_loaded_state_gives_the_same_bytes(settings):
    features = TextFeatures(**settings).fit(TEXTS)
    state, arrays = features.to_state()
    assert {name: a.dtype for name, a in arrays.items()} == {"idf": np.float32}
    arrays["idf"].flags.writeable = False  # as in a file that is mapped
    loaded = TextFeatures.from_state(json.loads(json.dumps(state)), arrays)
    assert loaded.get_params() == features.get_params()
    assert loaded.vocabulary_ == features.vocabulary_
    assert loaded.char_vocabulary_ == features.char_vocabulary_
    assert_same_bytes(loaded.transform(TEXTS), features.transform(TEXTS))


def test_state_that_does_not_fit_is_refused():
    state, arrays = TextFeatures().fit(TEXTS).to_state()
    with pytest.raises(ValueError, match="idf must have"):
        TextFeatures.from_state(state, {"idf": arrays["idf"][:-1]})
    state["vocabulary"][1] = state["vocabulary"][0]
    with pytest.raises(ValueError, match="a term more than once"):
        TextFeatures.from_state(state, arrays)


@given(ANY_TEXTS)
def test_any_text_alone_or_among_others_gives_the_same_row(texts):
    for features in (FITTED, HASHED):
        together = features.transform(texts)
        assert together.shape == (len(texts), features.n_features_out_)
        for i, text in enumerate(texts):
            assert_same_bytes(together[[i]], features.transform([text]))


FITTED = TextFeatures(min_df=1, char_ngram_range=(1, 2)).fit(TEXTS)
HASHED = TextFeatures(hashing=16).fit(TEXTS)


def test_lone_surrogates_are_characters_like_others():
    texts = ["a\ud800b a", "a\ud800b a"]
    X = TextFeatures(hashing=8, char_ngram_range=(2, 2)).fit_transform(texts)
    assert X[[0]].nnz > 0
    assert_same_bytes(X[[0]], X[[1]])


def test_no_texts_to_transform():
    assert TextFeatures().fit(TEXTS).transform([]).shape == (0, 9)


def test_arrays_and_generators_are_lists_of_texts():
    X = TextFeatures().fit_transform(TEXTS)
    assert_same_bytes(TextFeatures().fit_transform(np.array(TEXTS)), X)
    assert_same_bytes(TextFeatures().fit_transform(np.array(TEXTS, dtype=object)), X)
    assert_same_bytes(TextFeatures().fit_transform(text for text in TEXTS), X)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "texts must be a list of str, one for each row; got str"),
        (None, "got NoneType"),
        (["a", None, "b"], r"row 1 is None \(NoneType\)"),
        (["a", "b", b"c"], r"row 2 is b'c' \(bytes\)"),
        (np.array([["a"], ["b"]]), "row 0 of texts is a list of texts; join"),
    ],
)
def test_other_things_than_texts_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        TextFeatures().fit(texts)
    with pytest.raises(ValueError, match=message):
        FITTED.transform(texts)


def test_nothing_to_learn_is_refused():
    with pytest.raises(ValueError, match="texts is empty"):
        TextFeatures().fit([])
    with pytest.raises(ValueError, match=r"none of 3 terms .* min_df=2 .* smaller min_df"):
        TextFeatures().fit(["a b", "c"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ngram_range": (2, 1)}, "ngram_range must be"),
        ({"char_ngram_range": (0, 1)}, "char_ngram_range must be"),
        ({"min_df": 0}, "min_df must be"),
        ({"min_df": None}, "min_df must be"),
        ({"min_df": 0.1}, "min_df must be"),
        ({"max_features": 0}, "max_features must be"),
        ({"hashing": -1}, "hashing must be"),
        ({"hashing": 8, "max_features": 4}, "not both"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TextFeatures(**settings).fit(TEXTS)


def test_is_a_scikit_learn_transformer():
    features = TextFeatures(min_df=1, ngram_range=(1, 2))
    assert clone(features).get_params() == features.get_params()
    with pytest.raises(NotFittedError):
        features.transform(TEXTS)
    with pytest.raises(NotFittedError):
        features.names_of([0])
    pipeline = make_pipeline(features, TfidfTransformer(use_idf=False))
    X = features.fit_transform(TEXTS)
    np.testing.assert_allclose(pipeline.fit_transform(TEXTS).toarray(), X.toarray(), atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ngram_range": (1, 2), "max_features": 50},
        {"char_ngram_range": (2, 3), "min_df": 3},
        {"hashing": 100, "char_ngram_range": (3, 3)},
    ],
)
@pytest.mark.parametrize("block_rows", [1, 37, 1000])
def test_fitting_in_blocks_is_fitting_at_once(settings, block_rows):
    rng = np.random.default_rng(0)
    texts = [
        " ".join(f"Wort{j}" for j in rng.integers(0, 80, rng.integers(0, 9))) for _ in range(90)
    ]
    blocks = (texts[i : i + block_rows] for i in range(0, len(texts), block_rows))
    whole, parts = TextFeatures(**settings).fit(texts), TextFeatures(**settings).fit_blocks(blocks)
    assert parts.vocabulary_ == whole.vocabulary_
    assert parts.char_vocabulary_ == whole.char_vocabulary_
    np.testing.assert_array_equal(parts.idf_, whole.idf_)
    assert (parts.transform(texts) != whole.transform(texts)).nnz == 0


def test_fitting_in_blocks_needs_a_document():
    with pytest.raises(ValueError, match="texts is empty"):
        TextFeatures().fit_blocks([])
