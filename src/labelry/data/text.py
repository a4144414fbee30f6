"""Texts to tf-idf features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from labelry.data import text_kernels as kernels
from labelry.data.canonical import make_csr
from labelry.data.frames import checked_texts
from labelry.errors import ParameterError
from labelry.linalg.parallel import resolve_jobs, run
from labelry.parameters import Settings, param, settings

# Work is measured in characters times passes over them. A chunk takes about a fiftieth of a second.
_CHUNK_WORK = 1_000_000


def _range_problem(value: Sequence[Any]) -> str | None:
    """Return what a range of lengths of n-grams must be, unless it is so."""
    whole = len(value) == 2 and all(isinstance(number, (int, np.integer)) for number in value)
    return (
        None if whole and 1 <= value[0] <= value[1] < 2**31 else "(low, high) with 1 <= low <= high"
    )


@settings
class TextFeatures(TransformerMixin, BaseEstimator, Settings):
    """Tf-idf of the words of a text, and of its character n-grams if wanted.

    With words only, the features are those of scikit-learn's ``TfidfVectorizer``, words of one
    letter included: ``(1 + log tf) * (log((1 + n) / (1 + df)) + 1)``, rows scaled to length one.
    With character n-grams, words and n-grams are each scaled to length one and then together, so
    that the many n-grams do not drown the words. A text without a known word is a row of zeros.

    Attributes
    ----------
    vocabulary_ : list of str, or None with `hashing`
        The words in the order of their columns, sorted.
    char_vocabulary_ : list of str, or None
        The character n-grams, sorted; their columns follow those of the words.
    idf_ : ndarray (n_features,), float32
    n_features_out_ : int

    Examples
    --------
    >>> features = TextFeatures(min_df=1).fit(["a red cat", "a blue cat"])
    >>> features.vocabulary_
    ['a', 'blue', 'cat', 'red']
    >>> features.transform(["Red!"]).toarray()
    array([[0., 0., 0., 1.]], dtype=float32)
    """

    ngram_range: Sequence[int] = param(
        default=(1, 1),
        help="Shortest and longest sequence of words that is a feature. Larger: more features, "
        "slower.",
        check=_range_problem,
    )
    char_ngram_range: Sequence[int] | None = param(
        default=None,
        help="Also use the sequences of so many characters inside words; helps with misspelt and "
        "inflected words, and takes about twenty times as long.",
        check=_range_problem,
    )
    sublinear_tf: bool = param(default=True, help="Use ``1 + log tf`` in place of ``tf``.")
    min_df: int = param(
        default=2,
        help="Leave out words of fewer documents. Larger: fewer features. Not used with `hashing`.",
        least=1,
    )
    max_features: int | None = param(
        default=None,
        help="Keep only so many words (and so many n-grams), the most frequent ones.",
        least=1,
    )
    hashing: int | None = param(
        default=None,
        help="Number of hash buckets to use in place of a vocabulary: no words are stored, and "
        "words that share a bucket are one feature. Character n-grams get as many again.",
        least=1,
    )
    lowercase: bool = param(default=True, help="Words are the same in upper and lower case.")
    n_jobs: int | None = param(
        default=None,
        help="Number of threads for many texts; None is all cores. It does not change the result.",
    )

    def check_together(self) -> None:
        resolve_jobs(self.n_jobs)
        if self.hashing is not None and self.max_features is not None:
            raise ParameterError("max_features", "needs a vocabulary; give it or hashing, not both")

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn the vocabulary and the inverse document frequencies."""
        self.fit_transform(texts, y)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> csr_array:
        """Learn from texts and return their features, (n_texts, n_features) float32."""
        self.check_parameters()
        documents = checked_texts("texts", texts)
        if not documents:
            raise ValueError("texts is empty; fitting needs at least one document")
        chunks, n_jobs = self._cut(documents), resolve_jobs(self.n_jobs)
        tables: list[_Vocabulary | _Buckets] = []
        blocks = []  # of words, of n-grams: the rows of each chunk
        for seed, analyze in enumerate(self._analyzers()):
            numbered = run(_number_terms, [(analyze, chunk) for chunk in chunks], n_jobs)
            if self.hashing is None:
                counted = _merged([counted for _, counted in numbered])
                terms, _ = _choose_terms(counted, self.min_df, self.max_features)
                tables.append(_Vocabulary(terms))
            else:
                tables.append(_Buckets(self.hashing, seed))
            blocks.append(run(_find_columns, [(tables[-1], *chunk) for chunk in numbered], n_jobs))
        n_words, n_features = len(tables[0]), sum(map(len, tables))
        counts = run(_count, [(n_words, *rows) for rows in zip(*blocks, strict=True)], n_jobs)
        df = np.bincount(np.concatenate([C.indices for C in counts]), minlength=n_features)
        idf = np.log((1 + len(documents)) / (1 + df)) + 1
        self._set_fitted(tables, idf.astype(np.float32))
        return _stack(run(self._weigh, [(C,) for C in counts], n_jobs), n_features)

    def fit_blocks(self, blocks: Iterable[list[str]]) -> Self:
        """As `fit`, from blocks of texts that need not be in memory together.

        The result is that of `fit` on all of them. Memory is for about three times the distinct
        terms, those of fewer documents than `min_df` too.
        """
        self.check_parameters()
        analyzers, n_jobs, n_documents = self._analyzers(), resolve_jobs(self.n_jobs), 0
        tallies: list[_TermTally | _BucketTally] = [
            _TermTally(analyze, self.min_df, self.max_features)
            if self.hashing is None
            else _BucketTally(analyze, _Buckets(self.hashing, seed))
            for seed, analyze in enumerate(analyzers)
        ]
        for texts in blocks:
            documents = checked_texts("texts", texts)
            n_documents += len(documents)
            chunks = [(chunk,) for chunk in self._cut(documents)]
            for tally in tallies:
                tally.add(chunks, n_jobs)
        if not n_documents:
            raise ValueError("texts is empty; fitting needs at least one document")
        tables, df = zip(*(tally.finish() for tally in tallies), strict=True)
        idf = np.log((1 + n_documents) / (1 + np.concatenate(df))) + 1
        self._set_fitted(list(tables), idf.astype(np.float32))
        return self

    def transform(self, texts: Iterable[str], n_jobs: int | None = None) -> csr_array:
        """Features of texts, (n_texts, n_features) float32 with rows of length one (or zero).

        The number of threads is `n_jobs`, or that of the transformer if None.
        """
        check_is_fitted(self)
        chunks = self._cut(checked_texts("texts", texts))
        tasks = [(chunk, self._analyzers()) for chunk in chunks]
        parts = run(
            self._transform_chunk, tasks, resolve_jobs(self.n_jobs if n_jobs is None else n_jobs)
        )
        return _stack(parts, self.n_features_out_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name of each column; character n-grams are prefixed with ``char:``."""
        check_is_fitted(self)
        return np.array(self.names_of(range(self.n_features_out_)), dtype=object)

    def names_of(self, columns: Iterable[int]) -> list[str]:
        """Names of a few columns, as `get_feature_names_out` has them for all."""
        check_is_fitted(self)
        n_words = len(self._tables[0])
        return [
            self._tables[0].name(j) if j < n_words else f"char:{self._tables[1].name(j - n_words)}"
            for j in columns
        ]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """Return the fitted state as plain data: a dict for JSON, and arrays."""
        check_is_fitted(self)
        names = {"vocabulary": self.vocabulary_, "char_vocabulary": self.char_vocabulary_}
        return {"params": self.get_params()} | names, {"idf": self.idf_}

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, NDArray[np.float32]]) -> Self:
        """Make the transformer that `to_state` described; it gives bitwise the same features."""
        # JSON has no tuples.
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in state["params"].items()}
        features = cls().set_params(**params)
        features.check_parameters()
        names = ("vocabulary", "char_vocabulary")[: len(features._analyzers())]
        tables: list[_Vocabulary | _Buckets] = [
            _Vocabulary(state[name])
            if features.hashing is None
            else _Buckets(features.hashing, seed)
            for seed, name in enumerate(names)
        ]
        # A copy, as kernels would be compiled again for an array that is mapped from a file.
        idf, n_features = np.array(arrays["idf"], np.float32), sum(map(len, tables))
        if len(idf) != n_features:
            raise ValueError(f"idf must have {n_features} entries, one per term; got {len(idf)}")
        features._set_fitted(tables, idf)
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def _set_fitted(self, tables: list[_Vocabulary | _Buckets], idf: NDArray[np.float32]) -> None:
        vocabularies = [t.terms if isinstance(t, _Vocabulary) else None for t in tables]
        self.vocabulary_ = vocabularies[0]
        self.char_vocabulary_ = vocabularies[1] if len(tables) > 1 else None
        self.idf_ = idf
        self.n_features_out_ = len(idf)
        self._tables = tables

    def _analyzers(self) -> list[_Analyzer]:
        ranges = [("word", self.ngram_range), ("char_wb", self.char_ngram_range)]
        return [_Analyzer(kind, r, self.lowercase) for kind, r in ranges if r is not None]

    def _cut(self, documents: list[str]) -> list[list[str]]:
        """Cut documents into chunks of about the same work, at least one chunk."""
        passes = sum(analyze.passes for analyze in self._analyzers())
        if passes * sum(map(len, documents)) + len(documents) < _CHUNK_WORK:
            return [documents]
        sizes = passes * _lengths(documents)
        # A row costs something even when it is empty, hence the 1.
        cuts = np.cumsum(sizes + 1) // _CHUNK_WORK
        bounds = [0, *(np.flatnonzero(np.diff(cuts)) + 1).tolist(), len(documents)]
        return [documents[a:b] for a, b in pairwise(bounds)]

    def _transform_chunk(self, documents: list[str], analyzers: list[_Analyzer]) -> _Csr:
        rows = []
        for analyze, table in zip(analyzers, self._tables, strict=True):
            terms, bounds = analyze(documents)
            rows.append(_Rows(table.find(terms), bounds))
        return self._weigh(_count(len(self._tables[0]), *rows))

    def _weigh(self, counts: _Csr) -> _Csr:
        """Tf-idf of counts, in place; words and n-grams weigh the same."""
        kernels.weigh_rows(*counts, self.idf_, len(self._tables[0]), self.sublinear_tf)
        return counts


class _Terms(NamedTuple):
    """Term k is ``text[starts[k]:ends[k]]``."""

    text: NDArray[np.uint32]  # code points
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class _Rows(NamedTuple):
    """The columns of the terms of documents; -1: has none, so it is left out."""

    columns: NDArray[np.int32]
    bounds: NDArray[np.int64]  # the terms of document d are bounds[d] to bounds[d + 1] - 1


class _Counted(NamedTuple):
    """Distinct terms, and how often they are there."""

    terms: _Terms
    df: NDArray[np.int64]  # number of documents of each term
    tf: NDArray[np.int64]  # number of occurrences


class _Csr(NamedTuple):
    """The arrays of a sparse matrix."""

    data: NDArray[np.float32]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]


class _Analyzer:
    """Documents to terms, the same as those of scikit-learn's analyzers."""

    def __init__(self, kind: str, ngram_range: Sequence[int], lowercase: bool) -> None:
        words = kind == "word"
        self._pattern = r"\w+" if words else r"\S+"
        self._ngrams: Callable[..., Any] = kernels.word_ngrams if words else kernels.char_ngrams
        self._ngram_range = ngram_range
        self._lowercase = lowercase
        n_lengths = ngram_range[1] - ngram_range[0] + 1
        # Time per character, relative to single words (measured).
        self.passes = n_lengths if words else 6 * n_lengths

    def __call__(self, documents: list[str]) -> tuple[_Terms, NDArray[np.int64]]:
        """The terms of documents, and the bounds of the documents among them."""
        text = "".join(documents)
        if self._lowercase and ("İ" in text or "Σ" in text):  # more than a table can do
            documents = [document.lower() for document in documents]
            text = "".join(documents)
        letters = kernels.letter_table(self._pattern, self._lowercase)
        document_ends = np.cumsum(_lengths(documents))
        words, starts, bounds = kernels.split_words(kernels.encode(text), document_ends, letters)
        starts, ends, bounds = self._ngrams(starts, bounds, *self._ngram_range)
        return _Terms(words, starts, ends), bounds


class _Vocabulary:
    """Columns of terms by name."""

    def __init__(self, terms: list[str]) -> None:
        self.terms = terms
        text = kernels.encode("".join(terms)).copy()  # writable, as all texts of number_terms
        _, slots, bounds, text = kernels.number_terms(*_packed(text, _lengths(terms)))
        if len(bounds) - 1 < len(terms):
            raise ValueError("the vocabulary has a term more than once")
        self._table = slots, bounds, text

    def __len__(self) -> int:
        return len(self.terms)

    def name(self, column: int) -> str:
        return self.terms[column]

    def find(self, terms: _Terms) -> NDArray[np.int32]:
        """Find the column of each term; -1 for an unknown one."""
        return kernels.find_terms(*self._table, *terms)


class _Buckets:
    """Columns of terms by hash; for words the buckets of scikit-learn's HashingVectorizer."""

    def __init__(self, n_buckets: int, seed: int) -> None:
        self.n_buckets = n_buckets
        self.seed = seed

    def __len__(self) -> int:
        return self.n_buckets

    def name(self, column: int) -> str:
        return f"hash{column}"

    def find(self, terms: _Terms) -> NDArray[np.int32]:
        """Find the bucket of each term."""
        return kernels.hash_terms(*terms, self.n_buckets, self.seed)


def _lengths(texts: list[str]) -> NDArray[np.int64]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _packed(text: NDArray[np.uint32], lengths: NDArray[np.int64]) -> _Terms:
    """Terms that stand one after the other."""
    ends = np.cumsum(lengths)
    return _Terms(text, ends - lengths, ends)


def _number_terms(analyze: _Analyzer, documents: list[str]) -> tuple[_Rows, _Counted]:
    """Documents with a number for each term, and the distinct terms in the order of the numbers."""
    terms, bounds = analyze(documents)
    numbers, _, term_bounds, text = kernels.number_terms(*terms)
    lengths = np.diff(term_bounds)
    df = kernels.document_frequencies(numbers, bounds, len(lengths))
    tf = np.bincount(numbers, minlength=len(lengths))
    return _Rows(numbers, bounds), _Counted(_packed(text, lengths), df, tf)


def _merged(parts: list[_Counted]) -> _Counted:
    """The terms of all parts together."""
    text = np.concatenate([part.terms.text for part in parts])
    lengths = np.concatenate([part.terms.ends - part.terms.starts for part in parts])
    # A term has a number in each part that has it; here it gets one for all.
    numbers, _, bounds, text = kernels.number_terms(*_packed(text, lengths))
    counts = zip(*((part.df, part.tf) for part in parts), strict=True)
    df, tf = (np.bincount(numbers, np.concatenate(c)).astype(np.int64) for c in counts)
    return _Counted(_packed(text, np.diff(bounds)), df, tf)


def _choose_terms(
    counted: _Counted, min_df: int, max_features: int | None
) -> tuple[list[str], NDArray[np.int64]]:
    """Terms of at least `min_df` documents, or the most frequent of them, sorted; and their df."""
    (text, starts, ends), df, tf = counted
    kept = np.flatnonzero(df >= min_df)
    if not len(kept):
        raise ValueError(
            f"the vocabulary is empty: none of {len(df)} terms is in at least "
            f"min_df={min_df} documents; give more documents or a smaller min_df"
        )
    decoded, spans = kernels.decode(text), np.stack([starts[kept], ends[kept]], axis=1)
    terms = [decoded[a:b] for a, b in spans.tolist()]
    chosen = sorted(range(len(terms)), key=terms.__getitem__)
    if max_features is not None:  # of equally frequent ones the first in the alphabet
        rank = (-tf[kept]).tolist()
        chosen = sorted(sorted(chosen, key=rank.__getitem__)[:max_features], key=terms.__getitem__)
    return [terms[i] for i in chosen], df[kept[chosen]]


class _TermTally:
    """The terms of documents that come in blocks, until a vocabulary is chosen from them."""

    def __init__(self, analyze: _Analyzer, min_df: int, max_features: int | None) -> None:
        self._analyze = analyze
        self._choice = min_df, max_features
        self._parts: list[_Counted] = []

    def add(self, chunks: list[tuple[list[str]]], n_jobs: int) -> None:
        self._parts += run(self._count, chunks, n_jobs)
        first, *others = (len(part.df) for part in self._parts)
        if sum(others) > first:  # so that a term is merged a few times, not once for each block
            self._parts = [_merged(self._parts)]

    def _count(self, documents: list[str]) -> _Counted:
        return _number_terms(self._analyze, documents)[1]

    def finish(self) -> tuple[_Vocabulary, NDArray[np.int64]]:
        terms, df = _choose_terms(_merged(self._parts), *self._choice)
        return _Vocabulary(terms), df


class _BucketTally:
    """As `_TermTally`, for terms that share buckets."""

    def __init__(self, analyze: _Analyzer, buckets: _Buckets) -> None:
        self._analyze = analyze
        self._buckets = buckets
        self._df = np.zeros(len(buckets), dtype=np.int64)

    def add(self, chunks: list[tuple[list[str]]], n_jobs: int) -> None:
        self._df += sum(run(self._count, chunks, n_jobs))

    def _count(self, documents: list[str]) -> NDArray[np.int64]:
        terms, bounds = self._analyze(documents)
        counts = _count(len(self._buckets), _Rows(self._buckets.find(terms), bounds))
        return np.bincount(counts.indices, minlength=len(self._buckets))

    def finish(self) -> tuple[_Buckets, NDArray[np.int64]]:
        return self._buckets, self._df


def _find_columns(table: _Vocabulary | _Buckets, rows: _Rows, counted: _Counted) -> _Rows:
    return _Rows(table.find(counted.terms)[rows.columns], rows.bounds)


def _count(n_words: int, words: _Rows, ngrams: _Rows | None = None) -> _Csr:
    """Count how often each column is in each row; the columns of n-grams follow the words."""
    keys = _keys(*words)
    if ngrams is not None:
        columns = np.where(ngrams.columns < 0, -1, ngrams.columns + n_words)
        keys = np.concatenate([keys, _keys(columns, ngrams.bounds)])
    keys.sort()
    return _Csr(*kernels.count_keys(keys, len(words.bounds) - 1))


def _keys(columns: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row and column in one number that sorts as they do; -1 for column -1."""
    rows = np.arange(len(bounds) - 1) << 32
    return np.repeat(rows, np.diff(bounds)) | columns


def _stack(parts: list[_Csr], n_columns: int) -> csr_array:
    """Put the rows of all parts into one matrix."""
    data, indices, indptr = parts[0]
    if len(parts) > 1:
        data = np.concatenate([part.data for part in parts])
        indices = np.concatenate([part.indices for part in parts])
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(sizes)])
    return make_csr(data, indices, indptr, n_columns)
