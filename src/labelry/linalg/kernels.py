"""Compiled loops over rows, for the operations that scipy and BLAS are slow at.

Each kernel works on the span of rows that it is given and releases the GIL; the modules beside this
one cut the spans and run them on threads. The tests compare each kernel with the numpy expression
in the first line of its docstring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelry.arrays import F32, F64, I32, Bools, Ints
from labelry.linalg.lanes import AHEAD, LINE, prefetch

# Sums may be reordered, so that loops become vector instructions; NaN and infinity stay exact.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_TILE = 128  # rows whose products stay in cache between the two halves of a cross; not tuned


class Csr(NamedTuple):
    """The arrays of a CSR matrix, in the form that kernels take."""

    indptr: Ints
    indices: Ints
    data: F32


def csr_parts(A: csr_array) -> Csr:
    return Csr(A.indptr, A.indices, A.data)


@njit(nogil=True, cache=True)
def points_inside(indptr: Ints, indices: Ints, n_columns: int) -> bool:
    """Return whether indptr rises from 0 to ``len(indices)``, and all indices are columns."""
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices):
        return False
    for i in range(len(indptr) - 1):
        if indptr[i] > indptr[i + 1]:
            return False
    least, most = np.int64(0), np.int64(-1)  # without a branch, so that it vectorises
    for j in indices:
        least, most = min(least, np.int64(j)), max(most, np.int64(j))
    return bool(least >= 0 and most < n_columns)


@njit(nogil=True, cache=True)
def local_columns(indptr: Ints, indices: Ints, rows: I32, slot: I32) -> tuple[Ints, I32, I32]:
    """Return pointers and indices of some rows, with new numbers of columns, and the old numbers.

    `slot` (n_columns,) is scratch memory, and holds -1 before and after.
    """
    ptr = np.zeros(rows.size + 1, dtype=indptr.dtype)
    for t in range(rows.size):
        ptr[t + 1] = ptr[t] + (indptr[rows[t] + 1] - indptr[rows[t]])
    local = np.empty(ptr[-1], dtype=np.int32)
    columns = np.empty(min(ptr[-1], slot.size), dtype=np.int32)
    n_columns = np.int32(0)
    for t in range(rows.size):
        start = indptr[rows[t]]
        for p in range(ptr[t], ptr[t + 1]):
            j = indices[start + p - ptr[t]]
            if slot[j] < 0:
                slot[j] = n_columns
                columns[n_columns] = j
                n_columns += np.int32(1)
            local[p] = slot[j]
    columns = columns[:n_columns].copy()
    for j in columns:
        slot[j] = -1
    return ptr, local, columns


@njit(nogil=True, cache=True, inline="always")
def _fetch_ahead(indices: Ints, p: int, last: int, M: F32, col0: int, col1: int) -> None:
    """Fetch the part of a row of M that the nonzero `AHEAD` places after p will need."""
    if p + AHEAD < last:
        start = np.int64(indices[p + AHEAD]) * M.shape[1]
        for offset in range(4 * (start + col0), 4 * (start + col1), LINE):
            prefetch(M, offset)


@njit(nogil=True, cache=True, fastmath=_FAST)
def multiply_rows(
    A: Csr, M: F32, out: F32, row0: int, row1: int, col0: int, col1: int, shift: int
) -> None:
    """``out[row0 - shift : row1 - shift, cols] = A[row0:row1] @ M[:, cols]`` for A in CSR.

    Adds four rows of M at a time, so that a row of the result is loaded and stored less often.
    """
    indptr, indices, data = A
    last = indptr[row1]
    for i in range(row0, row1):
        z = out[i - shift, col0:col1]
        z[:] = 0.0
        p, end = indptr[i], indptr[i + 1]
        while p + 4 <= end:
            for q in range(p, p + 4):
                _fetch_ahead(indices, q, last, M, col0, col1)
            v0, v1, v2, v3 = data[p], data[p + 1], data[p + 2], data[p + 3]
            m0, m1 = M[indices[p], col0:col1], M[indices[p + 1], col0:col1]
            m2, m3 = M[indices[p + 2], col0:col1], M[indices[p + 3], col0:col1]
            for c in range(z.size):
                z[c] += (v0 * m0[c] + v1 * m1[c]) + (v2 * m2[c] + v3 * m3[c])
            p += 4
        while p < end:
            _fetch_ahead(indices, p, last, M, col0, col1)
            v, m = data[p], M[indices[p], col0:col1]
            for c in range(z.size):
                z[c] += v * m[c]
            p += 1


@njit(nogil=True, cache=True, fastmath=_FAST)
def scatter_rows(
    A: Csr, Z: F32, out: F32, row0: int, row1: int, col0: int, col1: int, shift: int
) -> None:
    """``out[:, cols] += A[row0:row1].T @ Z[row0 - shift : row1 - shift, cols]``, A in CSR."""
    indptr, indices, data = A
    last = indptr[row1]
    for i in range(row0, row1):
        z = Z[i - shift, col0:col1]
        for p in range(indptr[i], indptr[i + 1]):
            _fetch_ahead(indices, p, last, out, col0, col1)
            v, o = data[p], out[indices[p], col0:col1]
            for c in range(z.size):
                o[c] += v * z[c]


@njit(nogil=True, cache=True, fastmath=_FAST)
def cross_rows(
    A: Csr, B: Csr, weights: F32, M: F32, out: F32, row0: int, row1: int, col0: int, col1: int
) -> None:
    """``out[:, cols] += A[rows].T @ diag(weights[rows]) @ (B[rows] @ M[:, cols])``, both CSR.

    The product of a tile of rows with B stays in the cache. Empty `weights` stand for ones.
    """
    Z = np.empty((_TILE, M.shape[1]), dtype=np.float32)
    for tile in range(row0, row1, _TILE):
        end = min(tile + _TILE, row1)
        multiply_rows(B, M, Z, tile, end, col0, col1, tile)
        if weights.size:
            for i in range(tile, end):
                for c in range(col0, col1):
                    Z[i - tile, c] *= weights[i]
        scatter_rows(A, Z, out, tile, end, col0, col1, tile)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _block_max(s: F32, start: int, end: int) -> float:
    m = s[start]
    for j in range(start + 1, end):
        m = s[j] if s[j] > m else m
    return m


@njit(nogil=True, cache=True)
def keep_best(best: F32, ids: Ints, score: np.float32, number: int) -> None:
    """Put an entry into a list, best first, if it is among the best; ties: smaller number."""
    t = best.size
    while t > 0 and (score > best[t - 1] or (score == best[t - 1] and number < ids[t - 1])):
        if t < best.size:
            best[t], ids[t] = best[t - 1], ids[t - 1]
        t -= 1
    if t < best.size:
        best[t], ids[t] = score, number


@njit(nogil=True, cache=True)
def topk_rows(S: F32, labels: Ints, scores: F32, row0: int, row1: int) -> None:
    """``labels[i] = argsort(-S[i], stable)[:k]``, ``scores[i] = S[i, labels[i]]``.

    Looks at the largest of 64 scores first, because most stretches have nothing for the top k.
    Entries of minus infinity are no candidates; places without a candidate get label -1.
    """
    n_labels, k = S.shape[1], labels.shape[1]
    for i in range(row0, row1):
        s, best, ids = S[i], scores[i], labels[i]
        for t in range(k):
            best[t], ids[t] = -np.inf, -1
        for start in range(0, n_labels, 64):
            end = min(start + 64, n_labels)
            if _block_max(s, start, end) <= best[k - 1]:
                continue
            for j in range(start, end):
                v = s[j]
                if v > best[k - 1]:
                    t = k - 1  # numbers ascend: fewer comparisons than `keep_best` needs
                    while t > 0 and v > best[t - 1]:
                        best[t], ids[t] = best[t - 1], ids[t - 1]
                        t -= 1
                    best[t], ids[t] = v, j


@njit(nogil=True, cache=True, fastmath=_FAST)
def cg_curvature(
    P: F32, AP: F32, ridge: F32, mean: F32, shift: F32, dots: F64, row0: int, row1: int
) -> None:
    """``AP += ridge[:, None] * P - outer(mean, shift)``; ``dots[0] += (P * AP).sum(axis=0)``."""
    k = P.shape[1]
    part = np.empty(k, dtype=np.float32)
    for tile in range(row0, row1, 256):
        part[:] = 0.0
        for i in range(tile, min(tile + 256, row1)):
            p, ap, r, m = P[i], AP[i], ridge[i], mean[i]
            for c in range(k):
                a = ap[c] + r * p[c] - m * shift[c]
                ap[c] = a
                part[c] += p[c] * a
        for c in range(k):
            dots[0, c] += part[c]


@njit(nogil=True, cache=True, fastmath=_FAST)
def cg_step(
    Z: F32, R: F32, P: F32, AP: F32, alpha: F32, inverse: F32, dots: F64, row0: int, row1: int
) -> None:
    """``Z += alpha * P; R -= alpha * AP; dots += sums of R^2 and of R^2 * inverse[:, None]``."""
    k = P.shape[1]
    part_rr, part_rz = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.float32)
    for tile in range(row0, row1, 256):
        part_rr[:] = 0.0
        part_rz[:] = 0.0
        for i in range(tile, min(tile + 256, row1)):
            z, r, p, ap, w = Z[i], R[i], P[i], AP[i], inverse[i]
            for c in range(k):
                z[c] += alpha[c] * p[c]
                e = r[c] - alpha[c] * ap[c]
                r[c] = e
                part_rr[c] += e * e
                part_rz[c] += e * e * w
        for c in range(k):
            dots[0, c] += part_rr[c]
            dots[1, c] += part_rz[c]


@njit(nogil=True, cache=True, fastmath=_FAST)
def cg_direction(P: F32, R: F32, beta: F32, inverse: F32, row0: int, row1: int) -> None:
    """``P = R * inverse[:, None] + beta * P``."""
    for i in range(row0, row1):
        p, r, w = P[i], R[i], inverse[i]
        for c in range(p.size):
            p[c] = r[c] * w + beta[c] * p[c]


@njit(nogil=True, cache=True)
def add_gram(A: Csr, weights: F32, G: F64, col0: int, col1: int) -> None:
    """``G[col0:col1] += triu(A.T @ diag(weights) @ A)[col0:col1]`` for CSR A, indices sorted."""
    indptr, indices, data = A
    for i in range(indptr.size - 1):
        last = indptr[i + 1]
        for p in range(indptr[i], last):
            if col0 <= indices[p] < col1:
                row = G[indices[p]]
                v = np.float64(data[p]) * (weights[i] if weights.size else np.float32(1.0))
                for q in range(p, last):
                    row[indices[q]] += v * data[q]


@njit(nogil=True, cache=True)
def append_column(A: Csr, column: int, out: Csr) -> None:
    """Fill the arrays of ``hstack([A, ones])``; the ones get the number `column`."""
    indptr, indices, data = A
    out_indptr, out_indices, out_data = out
    out_indptr[0] = 0
    for i in range(indptr.size - 1):
        # Unsigned places: only then does LLVM make vector instructions of the loops.
        p0, p1, shift = np.uintp(indptr[i]), np.uintp(indptr[i + 1]), np.uintp(i)
        for p in range(p0, p1):
            out_indices[p + shift] = indices[p]
        for p in range(p0, p1):
            out_data[p + shift] = data[p]
        out_indices[p1 + shift], out_data[p1 + shift] = column, 1
        out_indptr[i + 1] = p1 + shift + np.uintp(1)


@njit(nogil=True, cache=True, fastmath=_FAST)
def unit_rows(indptr: Ints, data: F32, scaled: F32) -> None:
    """Fill the entries of a CSR matrix whose rows are scaled to unit length."""
    for i in range(indptr.size - 1):
        p0, p1 = np.uintp(indptr[i]), np.uintp(indptr[i + 1])
        total = 0.0
        for p in range(p0, p1):
            total += np.float64(data[p]) * np.float64(data[p])
        factor = 1.0 / np.sqrt(total) if total > 0.0 else 1.0  # may be too large for float32
        for p in range(p0, p1):
            scaled[p] = data[p] * factor


@njit(nogil=True, cache=True)
def main_entries(indptr: Ints, data: F32, least: float, share: float, keep: Bools) -> None:
    """Mark the entries of each row that are at least `least` of its length.

    If those have less than `share` of its squares, the bound is halved until they have.
    """
    for i in range(indptr.size - 1):
        row = data[indptr[i] : indptr[i + 1]]
        energy = 0.0
        for v in row:
            energy += np.float64(v) * np.float64(v)
        bound, kept = 2.0 * least * np.sqrt(energy), -1.0
        while kept < share * energy:
            bound, kept = 0.5 * bound, 0.0
            for v in row:
                if abs(v) >= bound:
                    kept += np.float64(v) * np.float64(v)
        for p in range(indptr[i], indptr[i + 1]):
            keep[p] = data[p] != 0 and abs(data[p]) >= bound
