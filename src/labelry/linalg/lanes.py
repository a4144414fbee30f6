"""Cache lines: sixteen floats at a time, and lines that are fetched before they are needed.

LLVM unrolls a loop of sixteen steps before it sees that they are one vector operation, and leaves
sixteen scalar operations. Here the vector operation is written out; it is three to four times as
fast as that loop.

A sparse pass reads rows of a dense matrix in an order that no hardware can predict, but the indices
are known long before. Fetching the rows of later nonzeros keeps more cache lines in transfer than
the processor does by itself. On `benchmarks/passes.py` it makes one thread about a third faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from labelry.arrays import F32

LINE = 64  # bytes of a cache line
LANES = 16  # float32 numbers of a cache line
AHEAD = 16  # nonzeros between the request for a row and its use; not tuned


@njit(nogil=True, cache=True)
def lane_zeros(n: int) -> F32:
    """Return zeros (n, LANES) whose rows are aligned: each is one cache line, not parts of two."""
    raw = np.zeros((n + 1) * LANES, dtype=np.float32)
    first = (-np.int64(raw.ctypes.data) % LINE) // raw.itemsize
    return raw[first : first + n * LANES].reshape(n, LANES)


def _add_scaled(context: Any, target: Any, at: Any, v: Any, source: Any, start: Any) -> Any:
    """Compute ``target[at : at + 16] += v * source[start : start + 16]``, both float32 in C order.

    Arrays of more dimensions count as flat. Nothing is checked.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

        def address(array: int, offset: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, args[array]).data
            return builder.bitcast(builder.gep(data, [args[offset]]), vector.as_pointer())

        into, other = address(0, 1), address(3, 4)
        first = builder.insert_element(undefined, args[2], ir.IntType(32)(0))
        factor = builder.shuffle_vector(first, undefined, zeros)
        product = builder.fmul(factor, builder.load(other, align=4), flags=("contract",))
        total = builder.fadd(builder.load(into, align=4), product, flags=("contract",))
        builder.store(total, into, align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, types.float32, source, types.intp), codegen


add_scaled: Any = intrinsic(_add_scaled)


def _prefetch(typing_context: Any, array: Any, offset: Any) -> Any:
    """``prefetch(array, offset)``: fetch the cache line `offset` bytes into a C-ordered array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(data, byte), [args[1]])
        i32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        )
        # For reading, into the second level, of data (not instructions).
        builder.call(function, [address, i32(0), i32(2), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


prefetch: Any = intrinsic(_prefetch)
