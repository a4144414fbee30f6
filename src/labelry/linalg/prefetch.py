"""Fetch memory into the cache before it is needed.

A sparse pass reads rows of a dense matrix in an order that no hardware can predict, but the indices
are known long before. Fetching the rows of later nonzeros keeps more cache lines in transfer than
the processor does by itself. On `benchmarks/passes.py` it makes one thread about a third faster.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

AHEAD = 16  # nonzeros between the request for a row and its use; not tuned
LINE = 64  # bytes of a cache line


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
