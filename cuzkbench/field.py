"""Fr, Fp and Fp2 of BLS12-381 for numba: the arithmetic under the host's NTT, the synthesis and the key generation.

An element is a tuple of uint64 limbs, lowest first, in Montgomery form and always below the modulus; its length says
the field: 4 limbs Fr, 6 Fp, 12 Fp2 (c0, then c1; u^2 = -1). Arrays of elements are uint64, C-contiguous, one element
a row. The functions are LLVM text made here, since numba has no 64 x 64 -> 128 bit product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cuzkbench import bls12_381 as curve
from cuzkbench.numba_cache import compiled

Element = tuple[np.uint64, ...]
_WORD = ir.IntType(64)
_DOUBLE = ir.IntType(128)
_MODULUS = {4: curve.r, 6: curve.p}
_NEG_INV = {4: curve.FR_NEG_INV_64, 6: curve.FP_NEG_INV_64}


def element(value: int, limbs: int) -> Element:
    """Raw limbs of a value, as compiled code takes them for constants."""
    return tuple(np.uint64(limb) for limb in curve.to_limbs(value, 64, limbs))


FR_ZERO, FR_ONE, FR_R2, FR_RAW_ONE = (element(value, 4) for value in (0, curve.FR_ONE, curve.FR_R2, 1))
FP_ZERO, FP_ONE, FP_R2, FP_RAW_ONE = (element(value, 6) for value in (0, curve.FP_ONE, curve.FP_R2, 1))
FP2_ZERO, FP2_ONE = element(0, 12), element(curve.FP_ONE, 12)
FP_INVERSE_EXPONENT = element(curve.p - 2, 6)
FR_INVERSE_EXPONENT = element(curve.r - 2, 4)


def _function(builder: Any, name: str, limbs: int, emit: Any) -> ir.Function:
    """The function of this name in the module that is being built, emitted on first use."""
    module, wide = builder.module, ir.IntType(64 * limbs)
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(wide, (wide, wide)), name)
    function.linkage = "linkonce_odr"
    if limbs > 4:
        function.attributes.add("noinline")  # Fp: 72 products; inlined everywhere they would take seconds to compile
    body = ir.IRBuilder(function.append_basic_block())
    body.ret(emit(body, *function.args, limbs))
    return function


def _reduce_once(b: Any, value: Any, limbs: int) -> Any:
    """value - modulus if that is not negative. value < 2 * modulus < 2^(64 limbs)."""
    modulus = ir.Constant(value.type, _MODULUS[limbs])
    return b.select(b.icmp_unsigned(">=", value, modulus), b.sub(value, modulus), value)


def _emit_add(b: Any, x: Any, y: Any, limbs: int) -> Any:
    return _reduce_once(b, b.add(x, y), limbs)  # both moduli leave at least one spare bit


def _emit_sub(b: Any, x: Any, y: Any, limbs: int) -> Any:
    difference = b.sub(x, y)
    modulus = ir.Constant(x.type, _MODULUS[limbs])
    return b.select(b.icmp_unsigned("<", x, y), b.add(difference, modulus), difference)


def _emit_mul(b: Any, x: Any, y: Any, limbs: int) -> Any:
    """x * y / 2^(64 limbs): word-by-word Montgomery (CIOS). 2 limbs^2 + limbs products.

    The two carries of a row meet in the top word without overflow, as the modulus' top word is below 2^63 - 1.
    """

    def word(value: Any, index: int) -> Any:
        return b.trunc(b.lshr(value, ir.Constant(value.type, 64 * index)), _WORD)

    def product(left: Any, right: Any, *addends: Any) -> tuple[Any, Any]:
        total = b.mul(b.zext(left, _DOUBLE), b.zext(right, _DOUBLE))
        for addend in addends:  # at most two words: (2^64 - 1)^2 + 2 (2^64 - 1) < 2^128
            total = b.add(total, b.zext(addend, _DOUBLE))
        return b.trunc(total, _WORD), b.trunc(b.lshr(total, ir.Constant(_DOUBLE, 64)), _WORD)

    modulus = [ir.Constant(_WORD, limb) for limb in curve.to_limbs(_MODULUS[limbs], 64, limbs)]
    left = [word(x, index) for index in range(limbs)]
    total: list[Any] = []
    for row in range(limbs):
        factor = word(y, row)
        low, high = product(left[0], factor, *total[:1])
        quotient = b.mul(low, ir.Constant(_WORD, _NEG_INV[limbs]))
        _, carry = product(quotient, modulus[0], low)
        shifted = []
        for index in range(1, limbs):
            low, high = product(left[index], factor, high, *total[index : index + 1])
            low, carry = product(quotient, modulus[index], low, carry)
            shifted.append(low)
        total = [*shifted, b.add(high, carry)]
    wide = b.zext(total[0], x.type)
    for index in range(1, limbs):
        wide = b.or_(wide, b.shl(b.zext(total[index], x.type), ir.Constant(x.type, 64 * index)))
    return _reduce_once(b, wide, limbs)


def _emit_mul2(b: Any, x: Any, y: Any, limbs: int) -> Any:
    """Fp2 by Karatsuba: three products in Fp."""
    add, sub, mul = (_function(b, f"cuzkbench_{name}_6", 6, emit) for name, emit in _EMIT.items())
    x0, x1, y0, y1 = *_halves(b, x), *_halves(b, y)
    low, high = b.call(mul, (x0, y0)), b.call(mul, (x1, y1))
    cross = b.call(mul, (b.call(add, (x0, x1)), b.call(add, (y0, y1))))
    return _join(b, b.call(sub, (low, high)), b.call(sub, (b.call(sub, (cross, low)), high)))


def _halves(b: Any, value: Any) -> tuple[Any, Any]:
    half = ir.IntType(384)
    return b.trunc(value, half), b.trunc(b.lshr(value, ir.Constant(value.type, 384)), half)


def _join(b: Any, low: Any, high: Any) -> Any:
    wide = ir.IntType(768)
    return b.or_(b.zext(low, wide), b.shl(b.zext(high, wide), ir.Constant(wide, 384)))


_EMIT = {"add": _emit_add, "sub": _emit_sub, "mul": _emit_mul}


def _operation(name: str) -> Any:
    """The numba intrinsic of one operation, for all three fields."""

    def operation(typing_context: Any, x: Any, y: Any) -> Any:
        if not isinstance(x, types.UniTuple) or x.dtype != types.uint64 or x != y or x.count not in (4, 6, 12):
            return None
        limbs = x.count

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, right = (_wide(builder, value, limbs) for value in arguments)
            if limbs != 12:
                emitted = _function(builder, f"cuzkbench_{name}_{limbs}", limbs, _EMIT[name])
                return _tuple(builder, builder.call(emitted, (left, right)), limbs)
            if name == "mul":
                emitted = _function(builder, "cuzkbench_mul_12", 12, _emit_mul2)
                return _tuple(builder, builder.call(emitted, (left, right)), 12)
            emitted = _function(builder, f"cuzkbench_{name}_6", 6, _EMIT[name])
            pairs = zip(_halves(builder, left), _halves(builder, right), strict=True)
            return _tuple(builder, _join(builder, *(builder.call(emitted, pair) for pair in pairs)), 12)

        return x(x, x), build

    operation.__doc__ = f"Field {name} of two elements of one field."
    return intrinsic(operation)


def _wide(b: Any, aggregate: Any, limbs: int) -> Any:
    wide = ir.IntType(64 * limbs)
    value = b.zext(b.extract_value(aggregate, 0), wide)
    for index in range(1, limbs):
        part = b.zext(b.extract_value(aggregate, index), wide)
        value = b.or_(value, b.shl(part, ir.Constant(wide, 64 * index)))
    return value


def _tuple(b: Any, value: Any, limbs: int) -> Any:
    aggregate = ir.Constant(ir.ArrayType(_WORD, limbs), ir.Undefined)
    for index in range(limbs):
        limb = b.trunc(b.lshr(value, ir.Constant(value.type, 64 * index)), _WORD)
        aggregate = b.insert_value(aggregate, limb, index)
    return aggregate


add, sub, mul = (_operation(name) for name in _EMIT)


def _row(context: Any, b: Any, array_type: Any, array: Any, index: Any, limbs: int) -> Any:
    data = context.make_array(array_type)(context, b, array).data
    offset = b.mul(index, ir.Constant(index.type, limbs))
    return b.bitcast(b.gep(data, [offset]), ir.ArrayType(_WORD, limbs).as_pointer())


def _load(typing_context: Any, array: Any, index: Any, like: Any) -> Any:
    """Row `index` of an array of elements, as a tuple of the length of `like`. No bounds check."""
    if array.dtype != types.uint64 or array.layout != "C":
        return None

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _row(context, builder, signature.args[0], arguments[0], arguments[1], like.count)
        return builder.load(pointer, align=8)

    return like(array, types.intp, like), build


load: Any = intrinsic(_load)  # Any: a checker would take the typing function's signature for the intrinsic's


def _store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write an element to row `index` of an array of elements. No bounds check."""
    if array.dtype != types.uint64 or array.layout != "C" or not array.mutable:
        return None

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _row(context, builder, signature.args[0], arguments[0], arguments[1], value.count)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


store: Any = intrinsic(_store)


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
    multiply_rows(values, target, FR_R2 if values.shape[1] == 4 else FP_R2)
    return target.reshape(-1).view(np.uint8)
