"""Fr, Fp and Fp2 of BLS12-381 for numba: the arithmetic under the host's NTT, the synthesis and the key generation.

An element is a tuple of uint64 limbs, lowest first, in Montgomery form and always below the modulus; its length says
the field: 4 limbs Fr, 6 Fp, 12 Fp2 (c0, then c1; u^2 = -1). Arrays of elements are uint64, C-contiguous, one element
a row. The functions are LLVM text made here, since numba has no 64 x 64 -> 128 bit product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cuzkbench import bls12_381 as curve
from cuzkbench.numba_cache import compiled

Element = tuple[np.uint64, ...]
_intrinsic: Any = intrinsic  # a checker would take the typing function's signature for the intrinsic's
_WORD = ir.IntType(64)
_DOUBLE = ir.IntType(128)
_MODULUS = {256: curve.r, 384: curve.p}  # by width in bits
_NEG_INV = {256: curve.FR_NEG_INV_64, 384: curve.FP_NEG_INV_64}


def element(value: int, limbs: int) -> Element:
    """Raw limbs of a value, as compiled code takes them for constants."""
    return tuple(np.uint64(limb) for limb in curve.to_limbs(value, 64, limbs))


def fr(value: int) -> Element:
    """The Montgomery limbs of a scalar, reduced mod r."""
    return element(value * curve.FR_R % curve.r, 4)


FR_ZERO, FR_ONE = fr(0), fr(1)
_R2 = {4: element(curve.FR_R2, 4), 6: element(curve.FP_R2, 6)}
# of the coordinates of a group's points
ONE = {"g1": element(curve.FP_ONE, 6), "g2": element(curve.FP_ONE, 12)}
# exponents that invert (Fermat)
FR_INVERSE = element(curve.r - 2, 4)
INVERSE = {"g1": element(curve.p - 2, 6), "g2": element(curve.p**2 - 2, 12)}


def _parts(b: Any, value: Any, bits: int) -> list[Any]:
    """A wide integer cut into integers of `bits` bits, lowest first."""
    shifts = (ir.Constant(value.type, start) for start in range(0, value.type.width, bits))
    return [b.trunc(b.lshr(value, shift), ir.IntType(bits)) for shift in shifts]


def _joined(b: Any, parts: Sequence[Any]) -> Any:
    """The wide integer of equally wide parts, lowest first."""
    bits = parts[0].type.width
    wide = ir.IntType(bits * len(parts))
    value = b.zext(parts[0], wide)
    for index, part in enumerate(parts[1:], 1):
        value = b.or_(value, b.shl(b.zext(part, wide), ir.Constant(wide, bits * index)))
    return value


def _call(b: Any, name: str, x: Any, y: Any) -> Any:
    """add, sub or mul in the field that the operands' width says, as a function emitted on first use."""
    wide, symbol = x.type, f"cuzkbench_{name}_{x.type.width}"
    if wide.width == 768 and name != "mul":
        pairs = zip(_parts(b, x, 384), _parts(b, y, 384), strict=True)
        return _joined(b, [_call(b, name, *pair) for pair in pairs])
    if symbol not in b.module.globals:
        function = ir.Function(b.module, ir.FunctionType(wide, (wide, wide)), symbol)
        function.linkage = "linkonce_odr"
        if wide.width > 256:
            function.attributes.add("noinline")  # Fp: 72 products; inlined everywhere they take seconds to compile
        body = ir.IRBuilder(function.append_basic_block())
        body.ret(_EMIT[name](body, *function.args))
    return b.call(b.module.globals[symbol], (x, y))


def _reduce_once(b: Any, value: Any) -> Any:
    """value - modulus if that is not negative. value < 2 * modulus, which leaves at least one spare bit."""
    modulus = ir.Constant(value.type, _MODULUS[value.type.width])
    return b.select(b.icmp_unsigned(">=", value, modulus), b.sub(value, modulus), value)


def _add(b: Any, x: Any, y: Any) -> Any:
    return _reduce_once(b, b.add(x, y))


def _sub(b: Any, x: Any, y: Any) -> Any:
    difference = b.sub(x, y)
    modulus = ir.Constant(x.type, _MODULUS[x.type.width])
    return b.select(b.icmp_unsigned("<", x, y), b.add(difference, modulus), difference)


def _mul(b: Any, x: Any, y: Any) -> Any:
    """x * y / 2^width: word-by-word Montgomery (CIOS), 2 limbs^2 + limbs products; Fp2 by Karatsuba: three in Fp.

    The two carries of a row meet in the top word without overflow, as the modulus' top word is below 2^63 - 1.
    """
    if x.type.width == 768:
        (x0, x1), (y0, y1) = _parts(b, x, 384), _parts(b, y, 384)
        low, high = _call(b, "mul", x0, y0), _call(b, "mul", x1, y1)
        cross = _call(b, "mul", _call(b, "add", x0, x1), _call(b, "add", y0, y1))
        return _joined(b, [_call(b, "sub", low, high), _call(b, "sub", _call(b, "sub", cross, low), high)])

    def product(left: Any, right: Any, *addends: Any) -> list[Any]:
        total = b.mul(b.zext(left, _DOUBLE), b.zext(right, _DOUBLE))
        for addend in addends:  # at most two words: (2^64 - 1)^2 + 2 (2^64 - 1) < 2^128
            total = b.add(total, b.zext(addend, _DOUBLE))
        return _parts(b, total, 64)

    modulus = _parts(b, ir.Constant(x.type, _MODULUS[x.type.width]), 64)
    negated_inverse = ir.Constant(_WORD, _NEG_INV[x.type.width])
    left = _parts(b, x, 64)
    total: list[Any] = []
    for factor in _parts(b, y, 64):
        low, high = product(left[0], factor, *total[:1])
        quotient = b.mul(low, negated_inverse)
        _, carry = product(quotient, modulus[0], low)
        shifted = []
        for index in range(1, len(left)):
            low, high = product(left[index], factor, high, *total[index : index + 1])
            low, carry = product(quotient, modulus[index], low, carry)
            shifted.append(low)
        total = [*shifted, b.add(high, carry)]
    return _reduce_once(b, _joined(b, total))


_EMIT = {"add": _add, "sub": _sub, "mul": _mul}


def _operation(name: str) -> Any:
    """The numba intrinsic of one operation, for all three fields."""

    def operation(typing_context: Any, x: Any, y: Any) -> Any:
        if not isinstance(x, types.UniTuple) or x.dtype != types.uint64 or x != y or x.count not in (4, 6, 12):
            return None

        def build(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            left, right = (_joined(b, cgutils.unpack_tuple(b, value)) for value in arguments)
            return cgutils.pack_array(b, _parts(b, _call(b, name, left, right), 64))

        return x(x, x), build

    operation.__doc__ = f"Field {name} of two elements of one field."
    return _intrinsic(operation)


add, sub, mul = (_operation(name) for name in _EMIT)


def _row(context: Any, b: Any, array_type: Any, array: Any, index: Any, limbs: int) -> Any:
    data = context.make_array(array_type)(context, b, array).data
    offset = b.mul(index, ir.Constant(index.type, limbs))
    return b.bitcast(b.gep(data, [offset]), ir.ArrayType(_WORD, limbs).as_pointer())


@_intrinsic
def load(typing_context: Any, array: Any, index: Any, like: Any) -> Any:
    """Row `index` of an array of elements, as a tuple of the length of `like`. No bounds check."""
    if array.dtype != types.uint64 or array.layout != "C":
        return None

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _row(context, builder, signature.args[0], arguments[0], arguments[1], like.count)
        return builder.load(pointer, align=8)

    return like(array, types.intp, like), build


@_intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write an element to row `index` of an array of elements. No bounds check."""
    if array.dtype != types.uint64 or array.layout != "C" or not array.mutable:
        return None

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _row(context, builder, signature.args[0], arguments[0], arguments[1], value.count)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


@compiled
def power(base: Element, exponent: Element, one: Element) -> Element:
    """base^exponent; the exponent as raw limbs, lowest first."""
    result = one
    for index in range(len(exponent) * 64 - 1, -1, -1):
        result = mul(result, result)
        if exponent[index >> 6] >> np.uint64(index & 63) & np.uint64(1):
            result = mul(result, base)
    return result


@compiled
def multiply_rows(source: np.ndarray, target: np.ndarray, factor: Element) -> None:
    """target[i] = source[i] * factor; the arrays may be the same. Cost: one product a row."""
    for row in range(source.shape[0]):
        store(target, row, mul(load(source, row, factor), factor))


def rows(data: np.ndarray, limbs: int) -> np.ndarray:
    """A uint8 array as rows of elements, sharing its memory; raises ValueError where it is no whole number of them."""
    if data.dtype != np.uint8 or data.nbytes % (8 * limbs):
        raise ValueError(f"{data.nbytes} bytes of {data.dtype}: not a whole number of {8 * limbs}-byte elements")
    return data.view(np.uint64).reshape(-1, limbs)


def from_montgomery(data: np.ndarray, limbs: int) -> np.ndarray:
    """Canonical little-endian elements (uint64, one a row) of Montgomery bytes. limbs: 4 for Fr, 6 for Fp."""
    source = rows(data, limbs)
    target = np.empty_like(source)
    multiply_rows(source, target, element(1, limbs))
    return target


def to_montgomery(values: np.ndarray) -> np.ndarray:
    """Montgomery bytes (uint8, one dimension) of canonical elements (uint64, one a row)."""
    target = np.empty_like(values)
    multiply_rows(values, target, _R2[values.shape[1]])
    return target.reshape(-1).view(np.uint8)
