"""What a run's workers do with a partition: real Groth16 proofs, or timed stand-ins with production's proportions."""

from __future__ import annotations

import hashlib
import mmap
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.bls12_381 import FR_BYTES, G1_BYTES, G2_BYTES
from cuzkbench.device import RunDevice
from cuzkbench.device.base import DeviceBuffer, HostBuffer, Stream
from cuzkbench.events import Memory
from cuzkbench.plan import RunPlan
from cuzkbench.progress import Progress
from cuzkbench.prover import groth16, keys
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.synthesis import public_inputs, synthesise

TIMED_LABEL = "timed kernels, no proofs"
TIMED_PREP, TIMED_FINISH = 0.4 / 1.75, 0.3 / 1.75  # of the kernel time: production's CPU stages beside its kernels


@dataclass(frozen=True)
class Slot:
    """One worker's device memory: a partition's vectors, the kernels over them, and where their results come back."""

    memory: DeviceBuffer
    kernels: list[tuple[str, Callable[[Stream], None]]]
    results: dict[str, tuple[DeviceBuffer, HostBuffer]]


class Work(Protocol):
    """One kind of work. `nbytes` a partition on host and device, `vectors` in it by name, `key_bytes` on both."""

    nbytes: int
    key_bytes: int
    vectors: dict[str, slice]
    proofs: bool
    labels: tuple[str, ...]
    seed: int | None

    def load(self, device: RunDevice, progress: Progress) -> None:
        """Make or load what all partitions share; the device may help."""

    def key_on(self, device: RunDevice) -> Any:
        """Put it onto a device."""

    def slot(self, device: RunDevice, key: Any) -> Slot:
        """Allocate what one worker needs there."""

    def synthesise(self, partition: int, out: np.ndarray, threads: int) -> None:
        """Fill a host buffer of nbytes."""

    def prepare(self, partition: int, buffer: np.ndarray) -> Any:
        """The worker's CPU work before the upload; the result goes to `finish` and `verify`."""

    def finish(self, device: RunDevice, slot: Slot, prepared: Any) -> bytes | None:
        """The worker's CPU work after the download: the proof."""

    def verify(self, prepared: Any, proof: bytes) -> bool:
        """Whether the proof holds."""


class Groth16:
    """Real proofs of one circuit, another witness for each partition. `seed` is the plan's, or drawn."""

    proofs = True
    labels: tuple[str, ...] = ()
    seed: int | None

    def __init__(self, plan: RunPlan) -> None:
        self.circuit = Circuit.of(plan)
        self.seed = self._seed = secrets.randbits(63) if plan.seed is None else plan.seed
        self._blinding_seed, self._key_seed = plan.seed, plan.key_seed
        self.nbytes = self.circuit.partition_bytes
        self.vectors = {{"w": "witness"}.get(name, name): part for name, part in self.circuit.slices().items()}
        n, m, b = self.circuit.constraints, self.circuit.variables, self.circuit.b_variables
        self.key_bytes = (n + 2 * m + b) * G1_BYTES + b * G2_BYTES

    def load(self, device: RunDevice, progress: Progress) -> None:
        """The key pair, from the cache or made."""
        self._proving, self._verifying = keys.load(self.circuit, self._key_seed, progress, device.fixed_base)

    def key_on(self, device: RunDevice) -> Any:
        """The five queries in device memory."""
        return device.load_key(self._proving)

    def slot(self, device: RunDevice, key: Any) -> Slot:
        """A partition's vectors, and a device and a pinned buffer for each sum."""
        memory, results = device.buffer(self.nbytes), {}
        for name, (group, count) in groth16.msms(self.circuit).items():
            nbytes = device.msm_bytes(group, count)
            results[name] = (device.buffer(nbytes), device.host_buffer(nbytes, Memory.PINNED))
        sums = {name: there for name, (there, _) in results.items()}
        return Slot(memory, groth16.kernels(device, key, self.circuit, memory, sums), results)

    def synthesise(self, partition: int, out: np.ndarray, threads: int) -> None:
        """Witness, a, b and c."""
        synthesise(self.circuit, self._seed, partition, out, threads)

    def prepare(self, partition: int, buffer: np.ndarray) -> tuple[list[int], int, int]:
        """Public inputs and the blinding scalars r and s."""
        return public_inputs(self.circuit, buffer), self._blinding(partition, "r"), self._blinding(partition, "s")

    def finish(self, device: RunDevice, slot: Slot, prepared: tuple[list[int], int, int]) -> bytes:
        """192 bytes from the five sums."""
        sums = {
            name: device.finish_msm(group, count, slot.results[name][1].array)
            for name, (group, count) in groth16.msms(self.circuit).items()
        }
        _, r, s = prepared
        return groth16.assemble(self._proving, sums, r, s).to_bytes()

    def verify(self, prepared: tuple[list[int], int, int], proof: bytes) -> bool:
        """The pairing check against the verifying key."""
        return groth16.verify(self._verifying, prepared[0], proof)

    def _blinding(self, partition: int, name: str) -> int:
        """From the operating system, or from the plan's seed (512 bits, so that no scalar is likelier by 2^-256)."""
        if self._blinding_seed is None:
            return secrets.randbelow(curve.r)
        text = f"cuzkbench blinding {self._blinding_seed} {partition} {name}"
        return int.from_bytes(hashlib.sha512(text.encode()).digest(), "little") % curve.r


class Timed:
    """No proofs: real copies of a, b and c, a spin kernel of fixed length, CPU stages that sleep in proportion."""

    proofs = False
    labels: tuple[str, ...] = (TIMED_LABEL,)
    seed: int | None = None
    key_bytes = 0

    def __init__(self, log2_size: int, seconds: float) -> None:
        self.seconds = seconds
        vector = FR_BYTES << log2_size
        self.nbytes = 3 * vector
        self.vectors = {name: slice(index * vector, (index + 1) * vector) for index, name in enumerate("abc")}

    def load(self, device: RunDevice, progress: Progress) -> None:
        """Nothing is shared."""

    def key_on(self, device: RunDevice) -> None:
        """Nothing."""

    def slot(self, device: RunDevice, key: None) -> Slot:
        """The vectors; a few bytes of them come back as the result."""
        memory, nbytes = device.buffer(self.nbytes), G2_BYTES
        back = {"result": (memory.view(0, nbytes), device.host_buffer(nbytes, Memory.PINNED))}
        return Slot(memory, [("spin", lambda stream: device.spin(stream, self.seconds))], back)

    def synthesise(self, partition: int, out: np.ndarray, threads: int) -> None:
        """A byte a page: the content does not matter, but no copy may read the system's shared page of zeros."""
        out[:: mmap.PAGESIZE] = partition & 255

    def prepare(self, partition: int, buffer: np.ndarray) -> None:
        """Production's share of the kernel time."""
        time.sleep(TIMED_PREP * self.seconds)

    def finish(self, device: RunDevice, slot: Slot, prepared: None) -> None:
        """Production's share of the kernel time."""
        time.sleep(TIMED_FINISH * self.seconds)

    def verify(self, prepared: None, proof: bytes) -> bool:
        """There are no proofs; raises ValueError."""
        raise ValueError("timed kernels make no proofs")


def work_of(plan: RunPlan) -> Work:
    """What a resolved plan asks for; raises ValueError of the circuit."""
    if plan.timed_seconds is None:
        return Groth16(plan)
    assert plan.log2_size is not None
    return Timed(plan.log2_size, plan.timed_seconds)
