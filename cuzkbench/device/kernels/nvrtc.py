"""NVIDIA's run-time compiler through ctypes: sources to machine code for one architecture, without a GPU or CuPy.

The library comes from the PyPI package nvidia-cuda-nvrtc or an installed CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from functools import lru_cache
from pathlib import Path

from cuzkbench.device.kernels.constants import header
from cuzkbench.events import DeviceError

DIRECTORY = Path(__file__).parent
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ntt": ("ntt.cu", ()),
    "pointwise": ("pointwise.cu", ()),
    "msm_g1": ("msm.cu", ("POINT_G1",)),
    "msm_g2": ("msm.cu", ("POINT_G2",)),
    "fixed_base_g1": ("fixed_base.cu", ("POINT_G1",)),
    "fixed_base_g2": ("fixed_base.cu", ("POINT_G2",)),
}
"""Compiled modules: source file and macros."""


def sources() -> dict[str, str]:
    """Every kernel source by file name, the generated constants included."""
    files = sorted([*DIRECTORY.glob("*.cu"), *DIRECTORY.glob("*.cuh")])
    return {**{file.name: file.read_text() for file in files}, "constants.cuh": header()}


def options(module: str, architecture: str) -> list[str]:
    """The compiler's options for a module and an architecture such as sm_90."""
    return [f"--gpu-architecture={architecture}", "--std=c++17", *(f"--define-macro={m}" for m in MODULES[module][1])]


@lru_cache
def library() -> ctypes.CDLL:
    """The loaded library; raises DeviceError saying where it was looked for."""
    places: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        places += sorted(map(str, Path(root).glob("*/lib/libnvrtc.so.*")), reverse=True)
    found = ctypes.util.find_library("nvrtc")
    places += [found] if found else []
    places += sorted(map(str, Path("/usr/local/cuda/lib64").glob("libnvrtc.so*")), reverse=True)
    errors = []
    for place in places:
        if "builtins" in place:
            continue
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            errors.append(str(error))
    raise DeviceError(
        "loading NVRTC",
        "libnvrtc.so",
        "; ".join(errors) or "not found: install nvidia-cuda-nvrtc or a CUDA toolkit",
    )


def version() -> str:
    """Version of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check("nvrtcVersion", "", library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _check(call: str, shape: str, status: int, log: str = "") -> None:
    if status:
        text = library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise DeviceError(call, shape, f"{text(status).decode()}\n{log}".rstrip())


def compile_module(module: str, architecture: str) -> bytes:
    """Machine code (cubin) of one of MODULES; raises DeviceError with the compiler's log."""
    nvrtc, texts, shape = library(), sources(), f"{module} for {architecture}"
    main = MODULES[module][0]
    names = [name for name in texts if name.endswith(".cuh")]
    headers = (ctypes.c_char_p * len(names))(*(texts[name].encode() for name in names))
    header_names = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    flags = options(module, architecture)
    program = ctypes.c_void_p()
    _check(
        "nvrtcCreateProgram",
        shape,
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), texts[main].encode(), main.encode(), len(names), headers, header_names
        ),
    )
    try:
        status = nvrtc.nvrtcCompileProgram(
            program, len(flags), (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        )
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        _check("nvrtcCompileProgram", shape, status, log.value.decode())
        _check("nvrtcGetCUBINSize", shape, nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check("nvrtcGetCUBIN", shape, nvrtc.nvrtcGetCUBIN(program, code))
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
