"""The secrets of an insecure setup and what they make of a circuit: one scalar for every point of its keys.

Lagrange values at tau by one batched inversion, then the columns of A, B and C at tau from the coordinate lists.
"""

from __future__ import annotations

import hashlib

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.device.host_math import reversed_powers
from cuzkbench.field import FR_INVERSE, FR_ONE, FR_ZERO, Element, add, fr, load, mul, power, store, sub
from cuzkbench.numba_cache import compiled
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.matrices import accumulate, coefficients, entries

_NAMES = ("tau", "alpha", "beta", "gamma", "delta")


@compiled
def _lagrange(values: np.ndarray, tau: Element, root: Element, factor: Element) -> None:
    """values[j] = factor * w^j / (tau - w^j) with one inversion (Montgomery's trick): the Lagrange basis at tau.

    factor = (tau^n - 1) / n. Cost: 5 products a value.
    """
    point, running = FR_ONE, FR_ONE
    for index in range(values.shape[0]):
        store(values, index, running)
        running = mul(running, sub(tau, point))
        point = mul(point, root)
    inverse = power(running, FR_INVERSE, FR_ONE)
    back = power(root, FR_INVERSE, FR_ONE)
    for index in range(values.shape[0] - 1, -1, -1):
        point = mul(point, back)
        store(values, index, mul(mul(point, factor), mul(inverse, load(values, index, FR_ONE))))
        inverse = mul(inverse, sub(tau, point))


@compiled
def _combine(
    target: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: Element, beta: Element, factor: Element
) -> None:
    """target[i] = (beta a_i + alpha b_i + c_i) * factor."""
    for index in range(target.shape[0]):
        total = add(mul(beta, load(a, index, FR_ZERO)), mul(alpha, load(b, index, FR_ZERO)))
        store(target, index, mul(add(total, load(c, index, FR_ZERO)), factor))


def _secrets(seed: int, size: int) -> tuple[int, ...]:
    """tau, alpha, beta, gamma, delta; tau outside the domain."""
    counter = 0
    while True:
        texts = (f"cuzkbench insecure setup {seed} {name} {counter}" for name in _NAMES)
        values = tuple(int.from_bytes(hashlib.sha512(text.encode()).digest(), "little") % curve.r for text in texts)
        if all(values) and pow(values[0], size, curve.r) != 1:
            return values
        counter += 1


def key_scalars(circuit: Circuit, seed: int) -> dict[str, tuple[str, np.ndarray]]:
    """Group and scalars (one a row, Montgomery limbs) of every array of the two keys, by name.

    `singles_g1` is alpha, beta, delta; `singles_g2` is beta, gamma, delta. Cost: 1.3 µs a constraint.
    """
    size, first_private = circuit.constraints, 1 + circuit.public_inputs
    tau, alpha, beta, gamma, delta = _secrets(seed, size)
    vanishing = pow(tau, size, curve.r) - 1
    lagrange = np.empty((size, 4), np.uint64)
    _lagrange(lagrange, fr(tau), fr(curve.root_of_unity(circuit.log2_size)), fr(vanishing * pow(size, -1, curve.r)))
    sums = np.zeros((3, circuit.variables, 4), np.uint64)
    for _, _, matrices in entries(circuit):
        for target, (row, column, factor) in zip(sums, matrices, strict=True):
            accumulate(target, column, lagrange, row, factor, coefficients())
    del lagrange

    def combined(part: slice, divisor: int) -> np.ndarray:
        a, b, c = sums[:, part]
        target = np.empty_like(a)
        _combine(target, a, b, c, fr(alpha), fr(beta), fr(pow(divisor, -1, curve.r)))
        return target

    def singles(*values: int) -> np.ndarray:
        return np.array([fr(value) for value in values], np.uint64)

    shift = vanishing * pow(delta, -1, curve.r)
    return {
        "h": ("g1", reversed_powers(tau, shift, circuit.log2_size)),
        "l": ("g1", combined(slice(first_private, None), delta)),
        "a": ("g1", sums[0]),
        "b_g1": ("g1", sums[1, : circuit.b_variables]),
        "b_g2": ("g2", sums[1, : circuit.b_variables]),
        "ic": ("g1", combined(slice(first_private), gamma)),
        "singles_g1": ("g1", singles(alpha, beta, delta)),
        "singles_g2": ("g2", singles(beta, gamma, delta)),
    }
