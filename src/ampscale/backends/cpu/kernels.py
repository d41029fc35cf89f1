# mypy: ignore-errors
# ruff: noqa: ARG001, ARG005
# numba infers the types, and prescribes the arguments of intrinsics, even unused ones. In lambdas, c, b, s and a stand for
# context, builder, signature and arguments.
"""
Compiled kernels: one loop divides or multiplies, checks and squares each value. Only this module and `measuring` import numba.

Kernels take the addresses of contiguous values. float16 values are passed as uint16, bfloat16 values as int16. No fast-math flag
is set, except that the squares of a block may be added in any order: products, quotients and roundings follow IEEE 754. The check
compares bits as integers: without the sign, the bits of infinities and NaNs are larger than the bits of finite numbers.

Spec: BACKENDS-bit-identical, SCALING-round-once, OVERFLOW-both-sides, NORMS-accumulation-dtype.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.extending import intrinsic

if numba.version_info.short < (0, 61):
    raise ImportError(f"the kernels require numba 0.61 or later, got {numba.__version__}")
if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

AHEAD = 3072  # bytes between the values that are processed and those that are requested; 4096 was slower on an Intel Xeon
LINE = 64  # bytes of a cache line
CONTIGUOUS, ALIGNED, WRITEABLE = 0x3, 0x100, 0x400  # flags of NumPy's C API; CONTIGUOUS means C or Fortran order

HALF, SINGLE, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
BYTE, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
OF_DTYPE = {"float16": np.uint16(0), "bfloat16": np.int16(0), "float32": np.float32(0), "float64": np.float64(0)}

_triple, _, _features = cpu_target.target_context.codegen().magic_tuple()
# Without these instructions, LLVM would emit calls to library functions that are not loaded, and the process would crash.
CONVERTS_FLOAT16 = "+f16c" in _features.split(",") or _triple.startswith(("aarch64", "arm64"))


class _Cache(FunctionCache):
    """Cache on disk, in which a full disk or a damaged file costs time, but raises no error."""

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # noqa: BLE001 - unpickling a damaged file can raise any exception
            with suppress(OSError):
                self.flush()

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile *function* when it is first called, and cache the result on disk if a cache folder is writable."""
    dispatcher = njit(nogil=True, error_model="numpy")(function)  # divisions by zero are infinite or NaN
    with suppress(RuntimeError):  # neither the folder of this module nor the user's cache folder is writable
        dispatcher._cache = _Cache(function)
    return dispatcher


# An intrinsic returns its signature, and a function of context, builder, signature and arguments that generates LLVM code. Short
# functions are lambdas, in which these parameters are c, b, s and a.


@intrinsic
def widen(typingctx, x):
    """Convert a stored value to its compute dtype."""
    if x == types.uint16:
        return types.float32(x), lambda c, b, s, a: b.fpext(b.bitcast(a[0], HALF), SINGLE)
    if x == types.int16:
        return types.float32(x), lambda c, b, s, a: b.bitcast(b.shl(b.zext(a[0], I32), I32(16)), SINGLE)
    return x(x), lambda c, b, s, a: a[0]


@intrinsic
def narrow(typingctx, value, like):
    """Round *value* once, to nearest with ties to even, to the dtype of *like*."""

    def to_float16(context, builder, signature, arguments):
        return builder.bitcast(builder.fptrunc(arguments[0], HALF), I16)

    def to_bfloat16(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], I32)
        high = builder.lshr(bits, I32(16))
        rounded = builder.add(builder.add(bits, I32(0x7FFF)), builder.and_(high, I32(1)))
        return builder.trunc(builder.lshr(rounded, I32(16)), I16)  # a NaN stays a NaN: its last 16 bits are 0

    def cast(context, builder, signature, arguments):
        return context.cast(builder, arguments[0], signature.args[0], signature.return_type)

    return like(value, like), {types.uint16: to_float16, types.int16: to_bfloat16}.get(like, cast)


@intrinsic
def as_stored(typingctx, x):
    """Return *x*. A bfloat16 NaN is replaced by the default NaN of the same sign, as in ml_dtypes."""

    def with_default_nan(context, builder, signature, arguments):
        bits = arguments[0]
        is_nan = builder.icmp_unsigned(">", builder.and_(bits, I16(0x7FFF)), I16(0x7F80))
        return builder.select(is_nan, builder.or_(builder.and_(bits, I16(0x8000)), I16(0x7FC0)), bits)

    if x == types.int16:
        return x(x), with_default_nan
    return x(x), lambda c, b, s, a: a[0]


@intrinsic
def magnitude(typingctx, x):
    """Return the bits of *x* without the sign bit, as an unsigned integer."""
    bits = ir.IntType(x.bitwidth)
    unsigned = {16: types.uint16, 32: types.uint32, 64: types.uint64}[x.bitwidth]
    return unsigned(x), lambda c, b, s, a: b.and_(b.bitcast(a[0], bits), bits(2 ** (x.bitwidth - 1) - 1))


@intrinsic
def add_square(typingctx, total, value, like):
    """
    Add the square of *value*, rounded to the dtype of *value*, to *total*. LLVM may reorder these additions.

    *like* has the dtype in which the value is stored. The float64 square of a value stored in 16 bits is exact, so LLVM may also
    fuse the multiplication with the addition.
    """

    def rounded(context, builder, signature, arguments):
        square = builder.fmul(arguments[1], arguments[1])
        square = builder.fpext(square, DOUBLE) if value == types.float32 else square
        return builder.fadd(arguments[0], square, flags=("reassoc",))

    def exact(context, builder, signature, arguments):
        number = builder.fpext(arguments[1], DOUBLE)
        flags = ("reassoc", "contract")
        return builder.fadd(arguments[0], builder.fmul(number, number, flags=flags), flags=flags)

    is_exact = like in (types.uint16, types.int16) and value == types.float32
    return types.float64(types.float64, value, like), exact if is_exact else rounded


@intrinsic
def pointer(typingctx, address, index, like):
    """Return a pointer to element *index*, counted from 0, of the array at *address* with the dtype of *like*."""

    def element(context, builder, signature, arguments):
        start = builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))
        return builder.gep(start, [arguments[1]])

    return types.CPointer(like)(address, types.int64, like), element


@intrinsic
def word(typingctx, address):
    """Return the eight bytes at *address* as an int64."""
    return types.int64(types.int64), lambda c, b, s, a: b.load(b.inttoptr(a[0], I64.as_pointer()))


@intrinsic
def prefetch(typingctx, address):
    """Request the cache line at *address* from memory. Any address is allowed."""

    def request(context, builder, signature, arguments):
        line = builder.inttoptr(arguments[0], BYTE.as_pointer())
        form = ir.FunctionType(ir.VoidType(), [line.type, I32, I32, I32])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [line.type], form)
        builder.call(instruction, [line, I32(0), I32(3), I32(1)])  # to read, into all levels of the data cache
        return context.get_dummy_value()

    return types.none(types.int64), request


@njit(nogil=True, inline="always")
def prefetch_block(address, size, next_address, next_size, start, count, itemsize):
    """
    Request *count* values that lie `AHEAD` bytes after value *start* of an array, or of the next array if this one ends before.

    Processors request memory early by themselves, but too late if a loop has slow or many instructions per value. Without this
    function, on an Intel Xeon, divisions took 1.2 times as long, norms 1.2 to 1.4 times, and those of float16 values 2.4 times.
    The arguments are numbers because numba would count references to arrays, with atomic instructions.
    """
    first = start + AHEAD // itemsize
    if first >= size:
        address, size, first = next_address, next_size, first - size
    if first < size:
        for line in range(0, count * itemsize, LINE):
            prefetch(address + first * itemsize + line)


@njit(nogil=True, inline="always")
def result_of(x, like, factor, divisor):
    """Return *x* times *factor* or divided by *divisor*, rounded to the dtype of *like*; *x* itself if both are None."""
    if factor is None and divisor is None:
        return x
    value = widen(x)
    if factor is not None:
        value = value * factor
    if divisor is not None:
        value = value / divisor
    return narrow(value, like)


@njit(nogil=True, inline="always")
def _largest(source, target, like, factor, divisor, largest):
    """Write the results to *target*, and return the largest of their magnitudes and *largest*."""
    for i in range(source.size):
        result = result_of(source[i], like, factor, divisor)
        if factor is not None or divisor is not None:
            target[i] = result
        bits = magnitude(result)
        largest = bits if bits > largest else largest
    return largest


@njit(nogil=True, inline="always")
def _finish(target, infinity, largest, factor, divisor):
    """Return True if *largest*, the largest magnitude, is finite. Otherwise apply `as_stored` to any results in *target*."""
    if largest < infinity:
        return True
    if factor is not None or divisor is not None:
        for i in range(target.size):
            target[i] = as_stored(target[i])
    return False


@njit(nogil=True, inline="always")
def _square_sum(source, target, like, factor, divisor, square):
    """Write the results to *target*, and return the sum of their squares, each rounded to the dtype of *square*."""
    total = 0.0
    for i in range(source.size):
        result = result_of(source[i], like, factor, divisor)
        if factor is not None or divisor is not None:
            target[i] = result
        total = add_square(total, narrow(widen(result), square), like)
    return total


@njit(nogil=True, inline="always")
def _run_block(source, target, like, factor, divisor, square, largest):
    """Run `_square_sum` if *square* is a number, otherwise `_largest`. Return the largest magnitude so far, and the sum."""
    if square is not None:
        return largest, _square_sum(source, target, like, factor, divisor, square)
    return _largest(source, target, like, factor, divisor, largest), 0.0


@compiled
def run_spans(sources, targets, sizes, kind, like, factor, divisor, square, block, sums):
    """
    Process the values at *sources*, write the results to *targets*, and return True if all results are finite.

    Args:
        sources: Addresses of contiguous values: int64, shape (n,).
        targets: Addresses for the results: int64, shape (n,). Equal to *sources* if the operation is in place.
        sizes: Number of values at each address: int64, shape (n,).
        kind: Value of `OF_DTYPE` for the dtype of the sources.
        like: Value of `OF_DTYPE` for the dtype of the targets.
        factor: Number in the compute dtype by which values are multiplied, or None.
        divisor: Number in the compute dtype by which values are divided, or None. If both are None, nothing is written.
        square: Number of the dtype in which squares are taken, float32 or float64; None for no sums.
        block: Number of values that are processed at a time, whose squares are added in any order.
        sums: Receives the sum of squares of each array, within two units in the last place: float64, shape (n,).
    """
    infinity = magnitude(narrow(widen(like) + np.float32(np.inf), like))
    finite = True
    for k in range(sources.size):
        if sizes[k] == 0:
            continue
        next_source, next_size = (sources[k + 1], sizes[k + 1]) if k + 1 < sources.size else (0, 0)
        largest = magnitude(like)  # 0
        total, lost = 0.0, 0.0  # sum over the blocks, and the sum of its rounding errors
        for start in range(0, sizes[k], block):
            count = min(sizes[k] - start, block)
            out = carray(pointer(targets[k], start, like), count)
            part = carray(pointer(sources[k], start, kind), count)
            prefetch_block(sources[k], sizes[k], next_source, next_size, start, count, part.itemsize)
            if sources[k] == targets[k]:  # LLVM vectorizes an in-place loop only if source and target are one array
                largest, square_sum = _run_block(out, out, like, factor, divisor, square, largest)
            else:
                largest, square_sum = _run_block(part, out, like, factor, divisor, square, largest)
            old_total = total
            total += square_sum
            lost += square_sum - (total - old_total) if old_total > square_sum else old_total - (total - square_sum)
        target = carray(pointer(targets[k], 0, like), sizes[k])
        if square is not None:
            sums[k] = total + lost if np.isfinite(total) else total
            if not np.isfinite(total):  # the results may be finite, even though their squares overflow
                largest = _largest(target, target, like, None, None, largest)
        finite &= _finish(target, infinity, largest, factor, divisor)
    return finite


@compiled
def survey(addresses, sizes, itemsize):
    """
    Return the largest and the total size of contiguous arrays, and whether they are in the order of their addresses.

    Args:
        addresses: Addresses of contiguous values: int64, shape (n,).
        sizes: Number of values at each address: int64, shape (n,).
        itemsize: Bytes per value.

    Returns:
        The largest of *sizes*, or -1 if an array that is not empty has the address 0; their sum; and True if each array ends
        before the next one starts.
    """
    largest, total, end = 0, 0, 0
    are_in_order = True
    for k in range(sizes.size):
        if addresses[k] == 0 and sizes[k] > 0:
            return -1, 0, False
        are_in_order &= addresses[k] >= end
        end = addresses[k] + sizes[k] * itemsize
        largest = max(largest, sizes[k])
        total += sizes[k]
    return largest, total, are_in_order


@compiled
def read_arrays(sources, targets, header, types, writes, itemsize, memory):
    """
    Read the addresses and sizes of the values of NumPy arrays from the C struct `PyArrayObject_fields`.

    Args:
        sources: Addresses of Python objects: int64, shape (n,).
        targets: Addresses of the Python objects to which results are written: int64, shape (n,).
        header: Bytes of the fields that all Python objects have.
        types: Addresses of `numpy.ndarray`, of the dtype of the sources, and of the dtype of the targets.
        writes: True if the targets must be writable.
        itemsize: Bytes per value of the targets.
        memory: Receives the value addresses of sources and of targets, and the numbers of values: int64, shape (3, n).

    Returns:
        The size of the largest array, or -1 if an object is not an aligned, contiguous array of these types; the total size; and
        True if no target starts before the end of the previous target.
    """
    largest, total, end = 0, 0, 0
    are_in_order = True
    # Offsets of the fields: data 0, number of dimensions 8, shape 16, dtype 40, flags 48; the type precedes the fields.
    for k in range(sources.size):
        source, target = sources[k] + header, targets[k] + header
        if word(source - 8) != types[0] or word(target - 8) != types[0]:
            return -1, 0, False
        if word(source + 40) != types[1] or word(target + 40) != types[2]:
            return -1, 0, False
        flags = word(source + 48) & word(target + 48)
        if not flags & ALIGNED or not flags & CONTIGUOUS or (writes and not word(target + 48) & WRITEABLE):
            return -1, 0, False
        lengths, size = word(source + 16), 1
        for axis in range(word(source + 8) & 0xFFFF):
            size *= word(lengths + 8 * axis)
        memory[0, k], memory[1, k], memory[2, k] = word(source), word(target), size
        are_in_order &= word(target) >= end
        end = word(target) + size * itemsize
        largest = max(largest, size)
        total += size
    return largest, total, are_in_order
