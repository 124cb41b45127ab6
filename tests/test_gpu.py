"""On a real GPU: proofs, memory, the truth of KERNEL rows, the device clock. `pytest -m gpu` on a machine with one."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from cuzkbench.device import cuda_missing
from cuzkbench.events import Memory
from cuzkbench.logs import read
from cuzkbench.plan import RunPlan
from cuzkbench.prover import memory
from cuzkbench.prover.scheduler import run_plan

MISSING = cuda_missing()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=f"no GPU: {MISSING}")]


def run(path: Path, **knobs: object):
    return read(run_plan(RunPlan(**({"device": "cuda", "seed": 7} | knobs)), path / "run.jsonl"))


@pytest.fixture(scope="module")
def device():
    from cuzkbench.device import open_device

    opened = open_device("cuda")
    yield opened
    opened.close()


@pytest.mark.parametrize("log2_size", [8, 10, 13, 16, 20])
@pytest.mark.parametrize("workers", [2, 4])
def test_every_proof_accepted_by_the_pairing_check(tmp_path: Path, log2_size: int, workers: int) -> None:
    log = run(tmp_path, log2_size=log2_size, workers=workers, partitions=5)
    assert log.trailer["proofs"] == {"made": 6, "verified": 6}
    assert (log.frame.loc[log.frame["phase"] == "VERIFY", "name"] == "accepted").all()


@pytest.mark.parametrize("policy", ["pageable", "registered", "staged"])
@pytest.mark.parametrize("lock", ["coarse", "device", "narrow"])
def test_every_policy_gives_accepted_proofs(tmp_path: Path, policy: str, lock: str) -> None:
    log = run(tmp_path, log2_size=14, memory=policy, lock=lock, partitions=3)
    assert log.trailer["proofs"] == {"made": 4, "verified": 4}
    kinds = set(log.frame.loc[log.frame["phase"] == "H2D", "memory"])
    assert kinds == {policy.upper()}


def test_device_memory_is_flat_over_200_proofs(tmp_path: Path) -> None:
    log = run(tmp_path, log2_size=12, partitions=200)
    assert log.trailer["proofs"]["verified"] == 201
    used = log.frame.loc[log.frame["name"] == "nvml.memory_bytes", "value"]
    assert len(used) >= 1 and used.max() - used.min() <= 8 << 20, used.describe()


def test_no_kernel_row_starts_before_its_delayed_upload_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event recorded before a stream's wait would hide the upload inside the kernel, and show 100 %."""
    plain = memory.Pinned.upload

    def delayed(self, scope, target, source, name) -> None:
        if name == "witness":
            self.device.spin(self.stream, 0.2)
        plain(self, scope, target, source, name)

    monkeypatch.setattr(memory.Pinned, "upload", delayed)
    rows = run(tmp_path, log2_size=14, partitions=3, workers=1).frame  # a second one would share the spin
    for partition, part in rows[~rows["warmup"]].groupby("partition"):
        if partition < 0:
            continue
        uploads, kernels = part[part["phase"] == "H2D"], part[part["phase"] == "KERNEL"]
        witness = uploads[uploads["name"] == "witness"]
        others = uploads[uploads["name"] != "witness"]
        assert witness["start_ns"].min() - others["end_ns"].max() >= 190_000_000
        assert kernels["start_ns"].min() >= uploads["end_ns"].max()
        assert (kernels["end_ns"] - kernels["start_ns"]).max() < 150_000_000


def test_device_events_fall_between_their_host_brackets(device) -> None:
    stream, slack = device.stream(), 20_000
    for _ in range(50):
        before = time.perf_counter_ns()
        event = stream.record()
        event.synchronize()
        after = time.perf_counter_ns()
        assert before - slack <= event.time_ns() <= after + slack
        time.sleep(0.02)
    assert device.clock_fit()["bound_ns"] < slack


def test_uploaded_bytes_come_back(device) -> None:
    rng, stream = np.random.default_rng(5), device.stream()
    for nbytes in (1, 4097, 3 << 20):
        for kind in (Memory.PAGEABLE, Memory.PINNED):
            source, back = device.host_buffer(nbytes, kind), device.host_buffer(nbytes, Memory.PINNED)
            source.array[:] = rng.integers(0, 256, nbytes, np.uint8)
            there = device.buffer(nbytes)
            device.upload(stream, there, source.array, kind)
            device.download(stream, back.array, there)
            stream.synchronize()
            assert (back.array == source.array).all()
            device.free(there)
            device.free_host_buffer(back)
            device.free_host_buffer(source)


@pytest.mark.parametrize("log2_size", [8, 11, 14])
def test_transforms_and_sums_agree_with_the_host_device(device, log2_size: int) -> None:
    from cuzkbench.device import host_math

    rng, stream, n = np.random.default_rng(log2_size), device.stream(), 1 << log2_size
    scalars = np.frombuffer(rng.bytes(32 * n), np.uint8).copy()
    scalars[31::32] &= 0x3F
    there = device.buffer(32 * n)
    for inverse in (False, True):
        for coset in (False, True):
            expected, got = scalars.copy(), np.empty_like(scalars)
            host_math.ntt(expected, log2_size, inverse=inverse, coset=coset)
            device.upload(stream, there, scalars, Memory.PAGEABLE)
            device.ntt(stream, there, log2_size, inverse=inverse, coset=coset)
            device.download(stream, got, there)
            stream.synchronize()
            assert (got == expected).all(), (inverse, coset)
    for group in ("g1", "g2"):
        points = device.fixed_base(group, scalars)
        assert (points == _multiples(group, scalars)).all()
        bases = device.buffer(points.nbytes)
        device.upload(stream, bases, points, Memory.PAGEABLE)
        device.upload(stream, there, scalars, Memory.PAGEABLE)
        result = device.buffer(device.msm_bytes(group, n))
        host = device.host_buffer(result.nbytes, Memory.PINNED)
        device.msm(stream, group, bases, there, n, result)
        device.download(stream, host.array, result)
        stream.synchronize()
        expected_sum = host_math.msm(group, host_math.points(group, points), scalars, n)
        assert device.finish_msm(group, n, host.array) == bytes(expected_sum)


def _multiples(group: str, scalars: np.ndarray) -> np.ndarray:
    from cuzkbench.prover.fixed_base import multiples

    return multiples(group, scalars)


def test_more_memory_than_there_is_names_the_bytes(device) -> None:
    with pytest.raises(MemoryError, match="GiB of device memory needed"):
        device.buffer(1 << 42)


def test_timed_kernels_say_so_and_make_no_proofs(tmp_path: Path) -> None:
    log = run(tmp_path, log2_size=18, partitions=3, kernels="timed:0.05")
    assert log.trailer["proofs"] is None
    assert "timed kernels, no proofs" in log.header["labels"]
    kernels = log.frame[(log.frame["phase"] == "KERNEL") & ~log.frame["warmup"]]
    assert ((kernels["end_ns"] - kernels["start_ns"]) >= 49_000_000).all()
