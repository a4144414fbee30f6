"""Texts as code points, and compiled loops from there to terms and to rows of features.

A text here is an array of code points in which words are set apart by single blanks, so that a
term is always a span of it: a word, a sequence of words, or characters of a word with the blanks
around it. Terms are compared by their code points; a hash only says where to look.

A table of terms is three arrays: the slots of an open-addressing hash table; the bounds of the
terms; and a text in which term t is ``terms[bounds[t] : bounds[t + 1]]``. A slot holds the upper
bits of a term's hash and the term's number below them, or -1, so that to look at a slot is mostly
enough to go on.
"""

from __future__ import annotations

import math
import re
import sys
from functools import cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

_UTF32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"
_BLANK, _NO_LETTER = np.uint32(32), np.uint32(0xFFFFFFFF)

_NUMBER_BITS = 31
_NUMBER = (1 << _NUMBER_BITS) - 1

# In the innermost loops an index is unsigned, so that none is checked for being below zero. In
# numba, uint64 with a plain integer gives a float, hence these.
_0, _1, _32, _33 = np.array([0, 1, 32, 33], np.uint64)
_BASIS, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # of FNV-1a


def encode(text: str) -> NDArray[np.uint32]:
    """The code points of a text; lone surrogates are as good as others."""
    return np.frombuffer(text.encode(_UTF32, "surrogatepass"), np.uint32)


def decode(codes: NDArray[np.uint32]) -> str:
    """The text of which these are the code points."""
    return codes.tobytes().decode(_UTF32, "surrogatepass")


@cache
def letter_table(pattern: str, lowercase: bool) -> NDArray[np.uint32]:
    """For each code point what it is in a word, or `_NO_LETTER` if `pattern` does not match it.

    "İ" and "Σ" must not be looked up in lowercase: that of the one is two code points, that of the
    other depends on the letters around it.
    """
    text = decode(np.arange(sys.maxunicode + 1, dtype=np.uint32))
    if lowercase:
        text = text.replace("İ", "i").lower()
    table = encode(text).copy()
    inside = np.zeros(len(table), np.bool_)
    for match in re.finditer(pattern, text):
        inside[match.start() : match.end()] = True
    table[~inside] = _NO_LETTER
    return table


@njit(nogil=True, cache=True)
def split_words(codes, ends, letters):  # type: ignore[no-untyped-def]
    """Find the words of documents, the runs of letters: (text, starts, bounds).

    `codes` has the documents one after the other, `ends` says where each ends, and `letters` what
    each code point is in a word, or `_NO_LETTER`. The text has a blank, then each word and a blank:
    word i is ``text[starts[i] : starts[i + 1] - 1]``. The words of document d are ``bounds[d]`` to
    ``bounds[d + 1] - 1``.
    """
    text = np.empty(len(codes) + len(ends) + 1, np.uint32)
    starts = np.empty((len(codes) + len(ends)) // 2 + 1, np.int64)
    bounds = np.zeros(len(ends) + 1, np.int64)
    text[0] = _BLANK
    size = start = _1
    starts[0] = 1
    n_words = first = 0
    for d in range(len(ends)):
        for code in codes[first : ends[d]]:
            letter = letters[code]
            if letter != _NO_LETTER:
                text[size] = letter
                size += _1
            elif size > start:
                text[size] = _BLANK
                n_words += 1
                starts[n_words] = size = start = size + _1
        if size > start:  # a document ends with a word
            text[size] = _BLANK
            n_words += 1
            starts[n_words] = size = start = size + _1
        first = ends[d]
        bounds[d + 1] = n_words
    return text[:size], starts[: n_words + 1], bounds


@njit(nogil=True, cache=True)
def word_ngrams(starts, bounds, low, high):  # type: ignore[no-untyped-def]
    """Spans of `low` to `high` words of a document: (starts, ends, bounds of documents)."""
    grams = np.zeros_like(bounds)
    for d in range(len(bounds) - 1):
        n_words = bounds[d + 1] - bounds[d]
        grams[d + 1] = grams[d]
        for n in range(low, min(high, n_words) + 1):
            grams[d + 1] += n_words - n + 1
    gram_starts, gram_ends = np.empty(grams[-1], np.int64), np.empty(grams[-1], np.int64)
    k = 0
    for d in range(len(bounds) - 1):
        for n in range(low, min(high, bounds[d + 1] - bounds[d]) + 1):
            for i in range(bounds[d], bounds[d + 1] - n + 1):
                gram_starts[k] = starts[i]
                gram_ends[k] = starts[i + n] - 1
                k += 1
    return gram_starts, gram_ends, grams


@njit(nogil=True, cache=True)
def char_ngrams(starts, bounds, low, high):  # type: ignore[no-untyped-def]
    """Spans of `low` to `high` characters of a word and the blanks around it.

    A word with its blanks that is not longer than n is one span, and only for the first such n.
    """
    grams = np.zeros_like(bounds)
    for d in range(len(bounds) - 1):
        grams[d + 1] = grams[d]
        for i in range(bounds[d], bounds[d + 1]):
            length = starts[i + 1] - starts[i] + 1
            for n in range(low, max(low, min(high, length)) + 1):
                grams[d + 1] += max(1, length - n + 1)
    gram_starts, gram_ends = np.empty(grams[-1], np.int64), np.empty(grams[-1], np.int64)
    k = 0
    for i in range(bounds[-1]):
        first, end = starts[i] - 1, starts[i + 1]
        for n in range(low, max(low, min(high, end - first)) + 1):
            for start in range(first, max(first + 1, end - n + 1)):
                gram_starts[k] = start
                gram_ends[k] = min(start + n, end)
                k += 1
    return gram_starts, gram_ends, grams


@njit(nogil=True, cache=True)
def _hash(text, start, end):  # type: ignore[no-untyped-def]
    value = _BASIS
    for code in text[start:end]:
        value = (value ^ np.uint64(code)) * _PRIME
    return value ^ (value >> _32)  # the upper bits are mixed best, the lower choose the slot


@njit(nogil=True, cache=True)
def _entry(hashed, term):  # type: ignore[no-untyped-def]
    return np.int64(hashed >> _33) << _NUMBER_BITS | term


@njit(nogil=True, cache=True)
def _find_slot(slots, bounds, terms, hashed, text, start, end):  # type: ignore[no-untyped-def]
    """Find the slot of the term ``text[start:end]``, or the free one for it."""
    mask, tag = np.uint64(len(slots) - 1), np.int64(hashed >> _33)
    start, length = np.uint64(start), np.uint64(end - start)
    slot = hashed & mask
    while slots[slot] >= 0:
        if slots[slot] >> _NUMBER_BITS == tag:
            term = np.uint64(slots[slot] & _NUMBER)
            first = np.uint64(bounds[term])
            if np.uint64(bounds[term + _1]) - first == length:
                i = _0
                while i < length and terms[first + i] == text[start + i]:
                    i += _1
                if i == length:
                    return slot
        slot = (slot + _1) & mask
    return slot


@njit(nogil=True, cache=True)
def _longer(array):  # type: ignore[no-untyped-def]
    """Copy to an array of twice the length; a loop, as np.concatenate takes seconds to compile."""
    longer = np.empty(2 * len(array), array.dtype)
    for i in range(len(array)):
        longer[i] = array[i]
    return longer


@njit(nogil=True, cache=True)
def _more_slots(slots, bounds, n_terms, terms):  # type: ignore[no-untyped-def]
    """Make twice as many slots for the same terms."""
    more = np.full(2 * len(slots), -1, np.int64)
    mask = np.uint64(len(more) - 1)
    for term in range(n_terms):
        hashed = _hash(terms, bounds[term], bounds[term + 1])
        slot = hashed & mask
        while more[slot] >= 0:
            slot = (slot + _1) & mask
        more[slot] = _entry(hashed, term)
    return more


@njit(nogil=True, cache=True)
def number_terms(text, starts, ends):  # type: ignore[no-untyped-def]
    """Number the terms ``text[starts[k]:ends[k]]`` in the order in which they first appear.

    Returns the number of each, int32, and the table of the distinct terms: slots, bounds, terms.
    """
    numbers = np.empty(len(starts), np.int32)
    slots = np.full(512, -1, np.int64)
    bounds = np.zeros(512, np.int64)
    terms = np.empty(2048, np.uint32)
    n = 0
    for k in range(len(starts)):
        hashed = _hash(text, starts[k], ends[k])
        slot = _find_slot(slots, bounds, terms, hashed, text, starts[k], ends[k])
        if slots[slot] >= 0:
            numbers[k] = slots[slot] & _NUMBER
            continue
        numbers[k] = n
        slots[slot] = _entry(hashed, n)
        bounds[n + 1] = bounds[n] + ends[k] - starts[k]
        while bounds[n + 1] > len(terms):
            terms = _longer(terms)
        for i in range(starts[k], ends[k]):
            terms[bounds[n] + i - starts[k]] = text[i]
        n += 1
        if 2 * n == len(slots):
            slots = _more_slots(slots, bounds, n, terms)
            bounds = _longer(bounds)
    return numbers, slots, bounds[: n + 1].copy(), terms[: bounds[n]].copy()


@njit(nogil=True, cache=True)
def find_terms(slots, bounds, terms, text, starts, ends):  # type: ignore[no-untyped-def]
    """Find the number of each term ``text[starts[k]:ends[k]]`` in a table; -1: not in it."""
    numbers = np.empty(len(starts), np.int32)
    for k in range(len(starts)):
        hashed = _hash(text, starts[k], ends[k])
        slot = _find_slot(slots, bounds, terms, hashed, text, starts[k], ends[k])
        numbers[k] = slots[slot] & _NUMBER if slots[slot] >= 0 else -1
    return numbers


@njit(nogil=True, cache=True)
def document_frequencies(numbers, bounds, n_terms):  # type: ignore[no-untyped-def]
    """Count the documents in which each term is."""
    frequencies = np.zeros(n_terms, np.int64)
    last = np.full(n_terms, -1, np.int64)  # document in which the term was seen last
    for d in range(len(bounds) - 1):
        for k in range(bounds[d], bounds[d + 1]):
            if last[numbers[k]] != d:
                last[numbers[k]] = d
                frequencies[numbers[k]] += 1
    return frequencies


@njit(nogil=True, cache=True)
def _utf8(text, start, end, out):  # type: ignore[no-untyped-def]
    """Write ``text[start:end]`` as UTF-8 to `out`: the number of bytes."""
    size = np.int64(0)
    for character in text[start:end]:
        code = np.int64(character)
        n_more = (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
        # The first byte starts with as many ones as there are bytes, if more than one.
        out[size] = code if n_more == 0 else (0xF80 >> n_more) & 0xFF | code >> 6 * n_more
        for j in range(1, n_more + 1):
            out[size + j] = 0x80 | code >> 6 * (n_more - j) & 0x3F
        size += n_more + 1
    return size


@njit(nogil=True, cache=True)
def _murmur(data, size, seed):  # type: ignore[no-untyped-def]
    """MurmurHash3 (x86, 32 bits) of the first `size` bytes, as a signed number."""
    low32 = 0xFFFFFFFF
    value = np.int64(seed)
    for start in range(0, size, 4):
        n_bytes = min(4, size - start)
        block = np.int64(0)
        for j in range(n_bytes):
            block |= np.int64(data[start + j]) << 8 * j
        block = block * 0xCC9E2D51 & low32
        block = (block << 15 | block >> 17) & low32
        value ^= block * 0x1B873593 & low32
        if n_bytes == 4:
            value = (value << 13 | value >> 19) & low32
            value = value * 5 + 0xE6546B64 & low32
    value ^= size
    value = (value ^ value >> 16) * 0x85EBCA6B & low32
    value = (value ^ value >> 13) * 0xC2B2AE35 & low32
    value ^= value >> 16
    return value - (value >> 31 << 32)


@njit(nogil=True, cache=True)
def hash_terms(text, starts, ends, n_buckets, seed):  # type: ignore[no-untyped-def]
    """Find the bucket of each term ``text[starts[k]:ends[k]]``, as HashingVectorizer does."""
    buckets = np.empty(len(starts), np.int32)
    data = np.empty(64, np.uint8)
    for k in range(len(starts)):
        if 4 * (ends[k] - starts[k]) > len(data):
            data = np.empty(8 * (ends[k] - starts[k]), np.uint8)
        size = _utf8(text, starts[k], ends[k], data)
        buckets[k] = abs(_murmur(data, size, seed)) % n_buckets
    return buckets


@njit(nogil=True, cache=True)
def count_keys(keys, n_rows):  # type: ignore[no-untyped-def]
    """Count equal keys among sorted ones: (data, indices, indptr), those of CSR.

    A key is the row and, in the lower 32 bits, the column; keys below 0 are left out.
    """
    data = np.empty(len(keys), np.float32)
    indices = np.empty(len(keys), np.int32)
    indptr = np.zeros(n_rows + 1, np.int64)
    n, last = 0, -1
    for key in keys:
        if key < 0:
            continue
        if key == last:
            data[n - 1] += 1
        else:
            data[n] = 1
            indices[n] = key & 0x7FFFFFFF
            indptr[(key >> 32) + 1] += 1
            n += 1
            last = key
    for row in range(n_rows):
        indptr[row + 1] += indptr[row]
    return data[:n].copy(), indices[:n].copy(), indptr


@njit(nogil=True, cache=True)
def weigh_rows(data, indices, indptr, idf, n_words, sublinear):  # type: ignore[no-untyped-def]
    """Turn counts into tf-idf in place; rows, and in them words and n-grams, get length one.

    The columns of words come before `n_words`, those of character n-grams after it.
    """
    for row in range(len(indptr) - 1):
        start, end = indptr[row], indptr[row + 1]
        middle = start
        while middle < end and indices[middle] < n_words:
            middle += 1
        for first, last in ((start, middle), (middle, end)):
            square = 0.0
            for k in range(first, last):
                tf = 1 + math.log(data[k]) if sublinear and data[k] > 1 else data[k]
                data[k] = tf * idf[indices[k]]
                square += np.float64(data[k]) ** 2
            length = math.sqrt(square) if square > 0 else 1.0
            if start < middle < end:  # of two parts of length one
                length *= math.sqrt(2.0)
            for k in range(first, last):
                data[k] /= length
