"""The shape of one partition's constraint system: how many rows and variables of each kind, and where each lies.

Rows, in this order (A * B = C; `matrices.py` writes them out, `synthesis.py` computes them directly):

- 4 a round of the hash chains, t = x + constant: t*t = t2, t2*t = t3, t3*t = t4, t4*t = the next state (x^5, as MiMC
  and Poseidon use); independent chains of CHAIN_ROUNDS rounds, the last one shorter;
- selectors s: s * (1 - s) = 0;
- bits, each the AND of a selector with the negated bit before it: (1 - before) * s = bit. So few selectors occur in B
  and many bits do not. Adding `before` to B changes nothing, as (1 - before) * before = 0: that is how more of them
  come into B when a higher density is asked for;
- 1 * public = the sum of some chains' last states; public * 0 = 0, which bellman adds too, here with every variable
  that no other row has in A.

Variables: 1, the public inputs, then those that occur in B (states, selectors, dense bits, swapped powers), then the
others (bits, powers, last states).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from cuzkbench.bls12_381 import FR_BYTES
from cuzkbench.plan import LOG2_MAX, LOG2_MIN, RunPlan

CHAIN_ROUNDS = 64
TOLERANCE = 0.02
"""How far a share may be from what was asked for."""
_VERSION = 1


class Shape(NamedTuple):
    """Counts of everything, all int; compiled code takes it as it is."""

    constraints: int
    publics: int
    rounds: int
    chains: int
    selectors: int
    bits: int
    dense: int  # the first bits that occur in B as well as in A
    swapped: int  # the first powers (t2, t3, t4 of each round) that occur in B instead of in A
    states_at: int  # index of the first variable of each kind; the publics begin at 1
    selectors_at: int
    dense_at: int
    swapped_at: int
    bits_at: int
    powers_at: int
    last_at: int
    variables: int


@dataclass(frozen=True)
class Circuit:
    """One partition's circuit. Raises ValueError where the shares asked for cannot be met within 2 points."""

    log2_size: int
    boolean_share: float = 0.75  # of the witness values, those that are 0 or 1
    b_density: float = 0.25  # of the variables, those that occur in B
    public_inputs: int = 16

    def __post_init__(self) -> None:
        if not LOG2_MIN <= self.log2_size <= LOG2_MAX:
            raise ValueError(f"log2_size {self.log2_size}: from {LOG2_MIN} to {LOG2_MAX}")
        most = (self.constraints - 4) // 2
        if not 1 <= self.public_inputs <= most:
            raise ValueError(f"public_inputs {self.public_inputs}: from 1 to {most} in 2^{self.log2_size} constraints")
        _ = self.shape

    @classmethod
    def of(cls, plan: RunPlan) -> Circuit:
        """The circuit of a resolved plan; raises ValueError where log2_size is still open."""
        if plan.log2_size is None:
            raise ValueError("log2_size None: resolve the plan for a device first")
        return cls(plan.log2_size, plan.boolean_share, plan.b_density, plan.public_inputs)

    @property
    def constraints(self) -> int:
        """Rows, which is the size of the NTT domain."""
        return 1 << self.log2_size

    @property
    def variables(self) -> int:
        """The constant 1, the public inputs and the private variables."""
        return self.shape.variables

    @property
    def b_variables(self) -> int:
        """Length of the prefix of the variables that holds all that occur in B, 1 and the public inputs included."""
        return self.shape.bits_at

    @property
    def partition_bytes(self) -> int:
        """Size of one partition's host buffer: a, b, c and the witness."""
        return FR_BYTES * (3 * self.constraints + self.variables)

    def slices(self) -> dict[str, slice]:
        """Where a, b, c and the witness w lie in a partition's buffer, in bytes."""
        edges = [FR_BYTES * self.constraints * index for index in range(4)] + [self.partition_bytes]
        return {name: slice(edges[index], edges[index + 1]) for index, name in enumerate("abcw")}

    def fingerprint(self) -> str:
        """Hash of all that a key depends on: equal for circuits with the same rows."""
        text = f"cuzkbench circuit {_VERSION} {CHAIN_ROUNDS} {tuple(self.shape)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def shape(self) -> Shape:
        """The counts that come nearest to the shares asked for."""
        most = (self.constraints - 2 * self.public_inputs) // 4

        def share(rounds: int) -> float:
            *_, selectors, bits, variables = self._counts(rounds)
            return (1 + selectors + bits) / variables

        above = bisect_left(range(1, most), -self.boolean_share, key=lambda rounds: -share(rounds)) + 1
        rounds = min((max(1, above - 1), above), key=lambda rounds: abs(share(rounds) - self.boolean_share))
        self._check("boolean_share", self.boolean_share, share(rounds), share(most), share(1))

        chains, selectors, bits, variables = self._counts(rounds)
        least, spare = 1 + self.public_inputs + rounds + selectors, max(0, bits - 1)
        extra = min(max(0, round(self.b_density * variables) - least), spare + 3 * rounds)
        dense = min(extra, spare)
        lowest, highest = least / variables, (least + spare + 3 * rounds) / variables
        self._check("b_density", self.b_density, (least + extra) / variables, lowest, highest)

        swapped = extra - dense
        sizes = (1 + self.public_inputs, rounds, selectors, dense, swapped, bits - dense, 3 * rounds - swapped, chains)
        starts = accumulate(sizes)
        return Shape(self.constraints, self.public_inputs, rounds, chains, selectors, bits, dense, swapped, *starts)

    def _counts(self, rounds: int) -> tuple[int, int, int, int]:
        """Chains, selectors, bits and variables of a circuit with that many hash rounds."""
        chains = -(-rounds // CHAIN_ROUNDS)
        left = self.constraints - 4 * rounds - 2 * self.public_inputs
        selectors = min(left, 64, max(1, left // 32))
        return chains, selectors, left - selectors, 1 + self.constraints - self.public_inputs + chains

    def _check(self, name: str, asked: float, reached: float, low: float, high: float) -> None:
        if abs(asked - reached) > TOLERANCE:
            raise ValueError(
                f"{name} {asked:g}: 2^{self.log2_size} constraints with {self.public_inputs} public inputs"
                f"{f' and boolean_share {self.boolean_share:g}' if name == 'b_density' else ''}"
                f" reach {low:.3f} to {high:.3f}"
            )
