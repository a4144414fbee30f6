"""The three passes of Algorithm 1 over documents, without a matrix of d x d or n x K.

M2, the probability of two words of a document, is only applied to thin matrices. Eigenpairs
need two applications: the sketch is pass 1, and pass 2 makes the second one together with the third
moment, in the coordinates of the sketch. The few K x K rotations that give the whitened tensor
follow afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, Rng
from labelry.embeddings.moments.bounds import MomentStatistics
from labelry.embeddings.moments.tensor import symmetrize, transform
from labelry.linalg.matrices import Matrix, add_cross, product, scatter
from labelry.linalg.parallel import balanced_spans, run
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import column_signs, gram, orthonormalize
from labelry.progress import phase

Diagonal = Literal["kept", "removed"]

# Not tuned, any of them.
_TOLERANCE = 1e-5  # part of the largest eigenvalue of M2 below which others are numerically zero
_WORDS = 4096  # words whose dense products are in memory at a time
_ROWS = 4096  # documents whose dense products are in memory at a time


class Documents(NamedTuple):
    """Documents of binary words D (n, d), their labels Y (n, c), and the weight of each."""

    words: csr_array
    labels: csr_array
    lengths: F32  # nnz(x_i)
    pair_weights: F32  # of x_i x_i' in the second moment
    triple_weights: F32  # of x_i (x) x_i (x) x_i in the third

    def between(self, start: int, stop: int) -> Documents:
        """Return the documents from number `start` to before `stop`."""
        return Documents(*(field[start:stop] for field in self))

    def parts(self) -> Iterator[Documents]:
        """Yield the documents, some thousands at a time."""
        for start in range(0, self.words.shape[0], _ROWS):
            yield self.between(start, start + _ROWS)


def present_words(X: Matrix) -> csr_array:
    """Return 1 where a word is present (x > 0) and 0 elsewhere, as the paper models documents."""
    if not issparse(X):
        return csr_array(X > 0, dtype=np.float32)
    # Entries that are not positive stay as explicit zeros: the index arrays are shared.
    present = (X.data > 0).astype(np.float32)
    return csr_array((present, X.indices, X.indptr), shape=X.shape)


def documents(block: Block, normalize: bool) -> Documents:
    """Return the documents of a block.

    With `normalize` a document is scaled to unit length: with n words it counts n^-1 in the second
    moment and n^-3/2 in the third, so that long documents do not decide alone.
    """
    words = present_words(block.X)
    lengths = np.asarray(words.sum(axis=1), dtype=np.float32).ravel()
    scale = np.maximum(lengths, 1) ** -0.5 if normalize else np.ones_like(lengths)
    weights = np.float32(1) if block.weights is None else block.weights
    return Documents(
        words,
        csr_array(block.side("Y")),
        lengths,
        (weights * scale**2).astype(np.float32),
        (weights * scale**3).astype(np.float32),
    )


class Counts(NamedTuple):
    """Sums over all documents, as the moments weigh them."""

    words: F32  # (d,) documents of each word, by weight in the second moment
    word_triples: F32  # (d,) the same, by weight in the third
    labels: F32  # (c,) documents of each label
    pairs: float  # what makes M2 sum to one
    triples: float  # what makes M3 sum to one
    label_pairs: float  # what makes M2L sum to one


class Whitened(NamedTuple):
    """Eigenvalues (K,) of M2, W (d, K) with W'M2 W = I, M2 W (d, K), and M3(W, W, W)."""

    eigenvalues: F32
    W: F32
    unwhitening: F32  # M2 W = Omega Sigma^1/2, the pseudo-inverse of W'
    tensor: F32


class WordMoments:
    """Moments of the documents in `rows`, by passes over them.

    With the diagonal "removed", pairs and triples of a word with itself do not count.
    """

    def __init__(self, rows: Rows, *, diagonal: Diagonal, normalize: bool) -> None:
        self.rows = rows
        self.removed = diagonal == "removed"
        self.normalize = normalize

    def sketch(self, n_columns: int, n_power_passes: int, rng: Rng) -> F32:
        """Multiply M2 by a random matrix (pass 1, line 1); keep the counts in `self.counts`.

        Returns a basis (d, m) of the range. Its columns are near the eigenvectors, each scaled so
        that the coordinates of the documents have like sizes. The diagonal is kept here: without
        it, the large negative eigenvalues would take the places of the positive ones.
        """
        d, c = self.rows.n_features, self.rows.n_labels
        M = rng.standard_normal((d, min(n_columns, d)), dtype=np.float32)

        def add(
            block: Block, Z: F32, words: F32, triples: F32, labels: F32, totals: NDArray
        ) -> None:
            docs = documents(block, self.normalize)
            add_cross(docs.words, docs.words, docs.pair_weights, M, Z, self.rows.n_jobs)
            words += docs.words.T @ docs.pair_weights
            triples += docs.words.T @ docs.triple_weights
            labels += docs.labels.T @ np.ones(len(docs.lengths), dtype=np.float32)
            n = docs.lengths.astype(np.float64)
            pairs = docs.pair_weights * n * np.maximum(n - self.removed, 0)
            thirds = docs.triple_weights * n * np.maximum((n - self.removed), 0)
            thirds = thirds * np.maximum(n - 2 * self.removed, 0)
            totals += [pairs.sum(), thirds.sum(), pairs @ np.diff(docs.labels.indptr)]

        with phase("pass 1: pairs of words"):
            Z, words, triples, labels, totals = self.rows.reduce(
                add, M.shape, (d,), (d,), (c,), (3,)
            )
        self.counts = Counts(words, triples, labels, *(float(t) for t in totals))
        for _ in range(n_power_passes):
            with phase("power pass"):
                Z = self._gram_times(orthonormalize(Z))
        return _scaled_basis(Z)

    def _gram_times(self, M: F32) -> F32:
        """Return X'X M, in one pass."""

        def add(block: Block, Z: F32) -> None:
            docs = documents(block, self.normalize)
            add_cross(docs.words, docs.words, docs.pair_weights, M, Z, self.rows.n_jobs)

        return self.rows.reduce(add, M.shape)[0]

    def whiten(self, basis: F32, rank: int) -> Whitened:
        """Whiten the second and third moments in coordinates of the basis (pass 2, lines 2-4).

        Fewer than `rank` pairs come back when the numerical rank of M2 is smaller.
        """
        m, n_jobs = basis.shape[1], self.rows.n_jobs

        def add(block: Block, pairs: F32, word_triples: F32, T: F32) -> None:
            docs = documents(block, self.normalize)
            D = docs.words
            add_cross(D, D, docs.pair_weights, basis, pairs, n_jobs)
            if self.removed:
                add_cross(D, D, docs.triple_weights, basis, word_triples, n_jobs)
            spans = balanced_spans(D.indptr, n_jobs)
            tasks = [(docs.between(*span), basis) for span in spans]
            for own in run(_third_moment, tasks, n_jobs):
                T += own

        d = self.rows.n_features
        with phase("pass 2: triples of words"):
            pairs, word_triples, T = self.rows.reduce(
                add, (d, m), (d if self.removed else 0, m), (m, m, m)
            )
        symmetrize(T)
        if self.removed:
            pairs -= self.counts.words[:, None] * basis
            _remove_repeated_words(T, basis, word_triples, self.counts.word_triples)
        pairs /= np.float32(max(self.counts.pairs, 1e-30))
        eigenvalues, R = _whitening_rotation(basis, pairs, rank)
        T /= np.float32(max(self.counts.triples, 1e-30))
        W = basis @ R
        signs = column_signs(W)  # random starts are then the same points, however sums were split
        R = R * signs
        return Whitened(eigenvalues, W * signs, pairs @ R, transform(T, R))

    def labels(self, A: F32) -> F32:
        """Return M2L(A, A) for A = W U, (c, K), up to scale (pass 3, line 8, equation 21)."""
        n_jobs = self.rows.n_jobs

        def add(block: Block, Q: F32) -> None:
            for part in documents(block, self.normalize).parts():
                G = product(part.words, A, n_jobs) ** 2
                if self.removed:
                    G -= product(part.words, A**2, n_jobs)
                scatter(part.labels, G * part.pair_weights[:, None], Q, n_jobs)

        with phase("pass 3: labels"):
            return self.rows.reduce(add, (self.rows.n_labels, A.shape[1]))[0]

    def statistics(self, eigenvalues: F32) -> MomentStatistics:
        """Return what the bounds depend on; after `sketch`."""
        n = self.rows.n_rows
        pairs, triples, label_pairs = (float(total) / n for total in self.counts[3:])
        return MomentStatistics(eigenvalues, pairs, triples, label_pairs, n)


def _scaled_basis(Z: F32) -> F32:
    """Return the left singular vectors of Z, each over the square root of its singular value.

    In these coordinates float32 sums stay exact enough. In any other basis, the strong directions
    would round the weak ones away.
    """
    Q = orthonormalize(Z, tolerance=_TOLERANCE)
    if not Q.shape[1]:
        return Q
    U, s, _ = svd((Q.T @ Z).astype(np.float64), full_matrices=False)
    scale = np.sqrt(np.maximum(s / s[0], _TOLERANCE))
    return Q @ (U / scale).astype(np.float32)


def _whitening_rotation(basis: F32, pairs: F32, rank: int) -> tuple[F32, F32]:
    """Return the eigenvalues of M2 within the basis, and R (m, K) with W = basis R (lines 2-3).

    M2 v = nu v within the basis B is the pencil B'M2 B r = nu B'B r; eigh makes r'B'B r = 1.
    """
    if not basis.shape[1]:
        return np.zeros(0, dtype=np.float32), np.zeros((0, 0), dtype=np.float32)
    B = np.zeros((basis.shape[1],) * 2)
    for start in range(0, len(basis), _WORDS):
        part = slice(start, start + _WORDS)
        B += basis[part].T.astype(np.float64) @ pairs[part]
    values, R = eigh((B + B.T) / 2, gram(basis))
    values, R = values[::-1][:rank], R[:, ::-1][:, :rank]
    # Without the diagonal, M2 has negative eigenvalues: they cannot be whitened.
    K = int(np.count_nonzero(values > _TOLERANCE * max(values[0], 0)))
    values, R = values[:K], R[:, :K]
    return values.astype(np.float32), (R / np.sqrt(values)).astype(np.float32)


def _third_moment(docs: Documents, W: F32) -> F32:
    """Return sum_i weight_i h_i (x) h_i (x) h_i with h = x W.

    Only entries with the smallest index first are set, a third of the work: one GEMM for each
    first index and some thousand documents.
    """
    m = W.shape[1]
    T = np.zeros((m, m, m), dtype=np.float32)
    for part in docs.parts():
        H = product(part.words, W)
        for j in range(m):
            later = H[:, j:]
            T[j, j:, j:] += (later * (part.triple_weights * H[:, j])[:, None]).T @ later
    return T


def _remove_repeated_words(T: F32, W: F32, word_triples: F32, counts: F32) -> None:
    """Subtract from T, in place, the triples that have a word twice or three times.

    sum over distinct words a, b, c of w_a (x) w_b (x) w_c
        = h (x) h (x) h - sym3(sum_v w_v (x) w_v (x) h) + 2 sum_v w_v (x) w_v (x) w_v
    where h = sum_v w_v and sym3 adds the three places of the odd one out.
    """
    P = np.zeros_like(T)
    for start in range(0, len(W), _WORDS):
        part = slice(start, start + _WORDS)
        w = W[part]
        Z = np.float32(2 / 3) * counts[part, None] * w - word_triples[part]
        for c in range(T.shape[0]):
            P[c] += (w * Z[:, [c]]).T @ w
    T += P
    T += P.transpose(1, 0, 2)
    T += P.transpose(1, 2, 0)
