"""Compiled loops over the bytes of sparse text: lines to CSR arrays, and back.

`parse_lines` is strict about what it accepts and says only *where* it stopped and in which part
of a line; the caller looks at the token again and words the error. No loop goes past a newline,
with which every text must end; loads of eight bytes may reach into the padding after it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# Where a line was wrong.
OK, BAD_LABEL, REPEATED_LABEL, BAD_FEATURE, BAD_VALUE, REPEATED_FEATURE = range(6)

# Bytes after a text that may be read, but are not looked at.
PADDING = 8

_POWERS = np.array([float(f"1e{i}") for i in range(80)])  # exact up to 1e22
_TOO_LARGE = (2.0 - 2.0**-24) * 2.0**127  # the least number that rounds to infinity in float32

_TENS = np.array([10**n for n in range(9)])
_ROOM = 9 * 10**18 // _TENS  # below it, n more digits fit in int64
_FULL = 9 * 10**17  # from here on, not even one

_TAB, _NEWLINE, _RETURN, _BLANK, _HASH = 9, 10, 13, 32, 35
_PLUS, _COMMA, _MINUS, _POINT, _ZERO, _COLON = 43, 44, 45, 46, 48, 58
_LETTER_E = 101  # also that of "E", with the bit of the case set

# Constants for eight bytes at a time. In numba, uint64 with a plain integer gives a float.
_EACH_ZERO = np.uint64(0x3030303030303030)
_EACH_118 = np.uint64(0x7676767676767676)
_EACH_HIGH = np.uint64(0x8080808080808080)
_EACH_ONE = np.uint64(0x0101010101010101)
_PAIRS = np.uint64(0x000000FF000000FF)
_HIGH_PAIRS = np.uint64(100 + (1_000_000 << 32))
_LOW_PAIRS = np.uint64(1 + (10_000 << 32))
_1, _3, _7, _8, _10, _16, _32, _56, _63 = np.array([1, 3, 7, 8, 10, 16, 32, 56, 63], np.uint64)


# The helpers below get the text as the address of its first byte. As an array, each call would
# count a reference, atomically, and each byte would check for an index below zero.


def _load(kind: Any) -> Any:
    """Make a function that loads a little-endian number of the given type at any byte."""

    @intrinsic
    def load(typing_context, text, pos):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            value = context.get_value_type(kind)
            address = builder.add(*arguments)
            loaded = builder.load(builder.inttoptr(address, value.as_pointer()), align=1)
            if sys.byteorder == "big" and kind.bitwidth > 8:
                loaded = builder.bswap(loaded)
            return loaded

        return kind(types.int64, types.int64), generate

    return load


_byte = _load(types.uint8)
_word = _load(types.uint64)


@njit(nogil=True, cache=True)
def _eight_digits(text, pos):  # type: ignore[no-untyped-def]
    """Read the digits among the next eight bytes up to the first other: (value, how many).

    All eight at once, as lanes of one integer: no branch to mispredict at each digit.
    """
    lanes = _word(text, pos) ^ _EACH_ZERO  # a digit becomes 0 to 9
    other = ((lanes + _EACH_118) | lanes) & _EACH_HIGH  # the high bit, from 10 on
    first_other = other & (~other + _1)
    n = ((((first_other - _1) & _EACH_HIGH) >> _7) * _EACH_ONE) >> _56
    # The digits to the end of the word, zeros before them; in two steps as n may be 0.
    lanes = (lanes << _1) << (_63 - (n << _3)) if n < _8 else lanes
    lanes = lanes * _10 + (lanes >> _8)  # pairs, then fours and eights
    value = (lanes & _PAIRS) * _HIGH_PAIRS + ((lanes >> _16) & _PAIRS) * _LOW_PAIRS
    return np.int64(value >> _32), np.int64(n)


@njit(nogil=True, cache=True)
def _append_digits(text, pos, value):  # type: ignore[no-untyped-def]
    """Read digits from `pos` on: (value with them appended, how many fitted, end)."""
    fitted = 0
    while True:
        digits, n = _eight_digits(text, pos)
        if value < _ROOM[n]:
            value = value * _TENS[n] + digits
            fitted += n
        else:
            for i in range(pos, pos + n):
                if value < _FULL:
                    value = value * 10 + (_byte(text, i) - _ZERO)
                    fitted += 1
        pos += n
        if n < 8:
            return value, fitted, pos


@njit(nogil=True, cache=True)
def count_marks(text):  # type: ignore[no-untyped-def]
    """Count newlines, commas and colons: bounds for the rows, labels and features of `text`."""
    newlines = commas = colons = 0
    for byte in text:
        newlines += byte == _NEWLINE
        commas += byte == _COMMA
        colons += byte == _COLON
    return newlines, commas, colons


@njit(nogil=True, cache=True)
def _is_end(text, pos, comments):  # type: ignore[no-untyped-def]
    """Return whether a token may end before `pos`."""
    byte = _byte(text, pos)
    if byte > _HASH:
        return False
    return (
        byte in (_BLANK, _NEWLINE, _TAB)
        or (byte == _RETURN and _byte(text, pos + 1) == _NEWLINE)
        or (comments and byte == _HASH)
    )


@njit(nogil=True, cache=True)
def _skip_blanks(text, pos):  # type: ignore[no-untyped-def]
    while _byte(text, pos) == _BLANK or _byte(text, pos) == _TAB:
        pos += 1
    return pos


@njit(nogil=True, cache=True)
def _has_labels(text, pos, comments):  # type: ignore[no-untyped-def]
    """Return whether the token at `pos` lists labels: it is not empty and has no colon."""
    if _is_end(text, pos, comments):
        return False
    while not _is_end(text, pos, comments):
        if _byte(text, pos) == _COLON:
            return False
        pos += 1
    return True


@njit(nogil=True, cache=True)
def _label(text, pos, signed):  # type: ignore[no-untyped-def]
    """Read a label at `pos` as (value, end); end == pos says that there is none.

    If `signed`, a sign and a fraction of zeros are accepted.
    """
    start = pos
    if signed and (_byte(text, pos) == _PLUS or _byte(text, pos) == _MINUS):
        pos += 1
    value, _, end = _append_digits(text, pos, np.int64(0))
    if end == pos:
        return value, start
    if signed and _byte(text, end) == _POINT:
        end += 1
        while _byte(text, end) == _ZERO:
            end += 1
    return (-value if _byte(text, start) == _MINUS else value), end


@njit(nogil=True, cache=True, error_model="numpy")
def _number(text, pos):  # type: ignore[no-untyped-def]
    """Read a decimal number at `pos` as (value, end); end == pos says that there is none.

    At most 15 digits with a power of ten up to 22 are rounded as Python's `float` rounds them:
    mantissa and power are exact in float64, so one division or product rounds once.
    """
    start = pos
    negative = _byte(text, pos) == _MINUS
    if negative or _byte(text, pos) == _PLUS:
        pos += 1
    mantissa, fitted, end = _append_digits(text, pos, np.int64(0))
    n_digits = end - pos
    exponent = n_digits - fitted
    if _byte(text, end) == _POINT:
        pos = end + 1
        mantissa, fitted, end = _append_digits(text, pos, mantissa)
        n_digits += end - pos
        exponent -= fitted
    if n_digits == 0:
        return 0.0, start
    if (_byte(text, end) | 32) == _LETTER_E:
        minus = _byte(text, end + 1) == _MINUS
        pos = end + 2 if minus or _byte(text, end + 1) == _PLUS else end + 1
        power, _, end = _append_digits(text, pos, np.int64(0))
        if end == pos:
            return 0.0, start
        exponent += -power if minus else power
    value = float(mantissa)
    if mantissa != 0 and exponent != 0:
        if exponent < 0:
            value = value / _POWERS[-exponent] if exponent > -80 else 0.0
        else:
            value = value * _POWERS[exponent] if exponent < 80 else np.inf
    return (-value if negative else value), end


@njit(nogil=True, cache=True)
def _sort_span(keys, values, low, high):  # type: ignore[no-untyped-def]
    """Sort ``keys[low:high]`` with their values (Shell sort); False if a key is repeated."""
    gap = high - low
    while gap > 1:
        gap = max(1, gap * 5 // 11)
        for i in range(low + gap, high):
            key, value = keys[i], values[i]
            j = i
            while j >= low + gap and keys[j - gap] > key:
                keys[j], values[j] = keys[j - gap], values[j - gap]
                j -= gap
            keys[j], values[j] = key, value
    for i in range(low + 1, high):  # noqa: SIM110 - compiled
        if keys[i] == keys[i - 1]:
            return False
    return True


@njit(nogil=True, cache=True)
def _read_labels(text, pos, comments, low, high, indices, data, n):  # type: ignore[no-untyped-def]
    """Append the labels of a line from `n` on: (n, end, OK), or (n, place, error)."""
    start, first = pos, n
    in_order = True
    more = _has_labels(text, pos, comments)
    while more:
        label, end = _label(text, pos, comments)
        more = _byte(text, end) == _COMMA
        if end == pos or not (low <= label <= high and (more or _is_end(text, end, comments))):
            return n, pos, BAD_LABEL
        in_order &= n == first or label > indices[n - 1]
        indices[n] = label
        data[n] = 1.0
        n += 1
        pos = end + 1 if more else end
    if not in_order and not _sort_span(indices, data, first, n):
        return n, start, REPEATED_LABEL
    return n, pos, OK


@njit(nogil=True, cache=True)
def _read_features(text, pos, comments, low, high, indices, data, n):  # type: ignore[no-untyped-def]
    """Append the features of a line from `n` on: (n, end, OK), or (n, place, error)."""
    start, first = pos, n
    in_order = True
    previous = np.int64(-1)
    pos = _skip_blanks(text, pos)
    while not _is_end(text, pos, comments):
        feature, _, end = _append_digits(text, pos, np.int64(0))
        if end == pos or _byte(text, end) != _COLON or not low <= feature <= high:
            return n, pos, BAD_FEATURE
        value, end_of_value = _number(text, end + 1)
        if (
            end_of_value == end + 1
            or not _is_end(text, end_of_value, comments)
            or not abs(value) < _TOO_LARGE
        ):
            return n, pos, BAD_VALUE
        in_order &= feature > previous
        previous = feature
        indices[n] = feature
        data[n] = value
        n += 1
        pos = _skip_blanks(text, end_of_value)
    if not in_order and not _sort_span(indices, data, first, n):
        return n, start, REPEATED_FEATURE
    return n, pos, OK


@njit(nogil=True, cache=True)
def parse_lines(  # type: ignore[no-untyped-def]
    text, comments, min_label, max_label, min_feature, max_feature, X, Y
):
    """Parse whole lines into the CSR parts `X` and `Y`, each (indptr, indices, data), rows sorted.

    `text` ends with a newline and, not counted, `PADDING` bytes. `count_marks` bounds the sizes of
    `X` and `Y`. With `comments` (svmlight) ``#`` starts a comment, lines without content are no
    rows, and a label may have a sign and a fraction of zeros. Otherwise each line is a row.

    Returns
    -------
    n_rows, n_lines : int
        Rows and lines before the first error.
    error, place : int
        The error in the next line, and where: the offending token, or the start of the labels or
        features that hold a repeated one.
    top_line, minus_line : int
        The first line with the largest feature, the first with a negative label; or -1.
    """
    x_indptr, x_indices, x_data = X
    y_indptr, y_indices, y_data = Y
    x_indptr[0] = y_indptr[0] = 0
    row = line = n_x = n_y = pos = 0
    end = text.size - PADDING
    address = np.int64(text.ctypes.data)
    top = top_line = minus_line = -1
    while pos < end:
        first_x, first_y = n_x, n_y
        pos = _skip_blanks(address, pos)
        n_y, pos, error = _read_labels(
            address, pos, comments, min_label, max_label, y_indices, y_data, n_y
        )
        if error == OK:
            n_x, pos, error = _read_features(
                address, pos, comments, min_feature, max_feature, x_indices, x_data, n_x
            )
        if error != OK:
            return row, line, error, pos, top_line, minus_line
        while _byte(address, pos) != _NEWLINE:  # a carriage return or a comment
            pos += 1
        pos += 1
        if n_x > first_x and x_indices[n_x - 1] > top:
            top, top_line = x_indices[n_x - 1], line
        if minus_line < 0 and n_y > first_y and y_indices[first_y] < 0:
            minus_line = line
        if not comments or n_x > first_x or n_y > first_y:
            row += 1
            x_indptr[row] = n_x
            y_indptr[row] = n_y
        line += 1
    return row, line, OK, pos, top_line, minus_line


@njit(nogil=True, cache=True)
def _write_integer(out, pos, value):  # type: ignore[no-untyped-def]
    """Write the digits of a non-negative integer; the position after them."""
    end = pos + 1
    rest = value // 10
    while rest > 0:
        end += 1
        rest //= 10
    for i in range(end - 1, pos - 1, -1):
        out[i] = _ZERO + value % 10
        value //= 10
    return end


@njit(nogil=True, cache=True, error_model="numpy")
def _shortest(value):  # type: ignore[no-untyped-def]
    """Find the fewest digits that read back as the positive float32 `value`.

    Returns (digits, power): the digits as an integer without trailing zeros, times 10 ** power.
    Nine digits always do; tried from one on, with the arithmetic of `_number`.
    """
    exact = np.float64(value)
    exponent = math.floor(math.log10(exact))
    digits, power = np.int64(0), 0
    for n_digits in range(11):
        power = exponent + 1 - n_digits
        if power >= 0:
            digits = np.int64(np.rint(exact / _POWERS[power]))
            again = digits * _POWERS[power]
        else:
            digits = np.int64(np.rint(exact * _POWERS[-power]))
            again = digits / _POWERS[-power]
        if np.float32(again) == value:
            break
    while digits % 10 == 0:
        digits //= 10
        power += 1
    return digits, power


@njit(nogil=True, cache=True)
def _write_number(out, pos, value):  # type: ignore[no-untyped-def]
    """Write a finite float32, at most 16 bytes; the position after it."""
    if np.signbit(value):
        out[pos] = _MINUS
        pos += 1
        value = -value
    if value == 0:
        out[pos] = _ZERO
        return pos + 1
    digits, power = _shortest(value)
    start = pos
    if 0 <= power <= 6:  # 1500
        for _ in range(power):
            digits *= 10
        return _write_integer(out, pos, digits)
    end = _write_integer(out, pos, digits)
    n_digits = end - start
    point = n_digits + power  # the value is 0.digits times 10 ** point
    if 0 < point < n_digits:  # 1.5
        for i in range(end, start + point, -1):
            out[i] = out[i - 1]
        out[start + point] = _POINT
        return end + 1
    if -4 < point <= 0:  # 0.0015
        shift = 2 - point
        for i in range(end - 1, start - 1, -1):
            out[i + shift] = out[i]
        out[start : start + shift] = _ZERO
        out[start + 1] = _POINT
        return end + shift
    out[end] = _LETTER_E  # 15e-9
    end += 1
    if power < 0:
        out[end] = _MINUS
        end += 1
    return _write_integer(out, end, abs(power))


@njit(nogil=True, cache=True)
def format_rows(out, labels, first_feature, X, Y, begin, stop):  # type: ignore[no-untyped-def]
    """Write rows `begin` to `stop` as lines into `out`; the number of bytes written.

    `labels` holds the number to write for each column of Y; the number of the first feature
    is `first_feature`. A label takes at most 12 bytes, a feature 28, a row 2.
    """
    x_indptr, x_indices, x_data = X
    y_indptr, y_indices = Y
    pos = 0
    for row in range(begin, stop):
        for i in range(y_indptr[row], y_indptr[row + 1]):
            if i > y_indptr[row]:
                out[pos] = _COMMA
                pos += 1
            label = np.int64(labels[y_indices[i]])
            if label < 0:
                out[pos] = _MINUS
                pos += 1
            pos = _write_integer(out, pos, abs(label))
        for i in range(x_indptr[row], x_indptr[row + 1]):
            out[pos] = _BLANK
            pos = _write_integer(out, pos + 1, np.int64(x_indices[i]) + first_feature)
            out[pos] = _COLON
            pos = _write_number(out, pos + 1, x_data[i])
        out[pos] = _NEWLINE
        pos += 1
    return pos
