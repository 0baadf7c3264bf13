"""Compiling the kernels of an operation with NVRTC: in memory, for one architecture, without a device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import CudaUnavailableError, KernelCompileError
from . import sources
from .signatures import checks

# Sums and products are rounded one by one, as on the CPU, whose results these kernels have to equal.
OPTIONS = (
    "-std=c++17",
    "--device-int128",
    "--device-as-default-execution-space",
    "--fmad=false",
    "--generate-line-info",
)

_nvrtc = threading.Lock()


@dataclass(frozen=True)
class CompiledKernels:
    """The compiled kernels of one operation.

    Attributes:
        image: a cubin, or PTX for ``compute_`` architectures.
        symbols: the name in ``image`` of each expression such as ``pick_uniform<int32_t>``.
        log: of the compiler; empty where it had nothing to say.
    """

    image: bytes
    symbols: dict[str, str]
    log: str = ""


def architecture(capability: tuple[int, int], supported: Sequence[int]) -> str:
    """Chooses what to compile for: the device's own architecture, or the newest one that the compiler knows and the
    driver can translate.

    Args:
        capability: of the device, such as (9, 0).
        supported: architectures that NVRTC knows, such as 90.
    """
    wanted = capability[0] * 10 + capability[1]
    older = [known for known in supported if known <= wanted]
    if not older:
        raise CudaUnavailableError(
            f"The device's compute capability is {capability[0]}.{capability[1]}, but the installed NVRTC compiles for "
            f"{min(supported) / 10} and above. Install a CuPy of an older CUDA: pip install 'lightning-gnnload[cuda12]'"
        )
    return f"sm_{wanted}" if wanted in older else f"compute_{max(older)}"


def options(arch: str) -> tuple[str, ...]:
    """Lists the compiler's options. What it makes depends on them, its version and the sources' fingerprint alone."""
    return (*OPTIONS, f"--gpu-architecture={arch}", f"--include-path={sources.folder()}")


def compile_kernels(op: str, arch: str, more_options: Sequence[str] = ()) -> CompiledKernels:
    """Compiles every instantiation of every kernel of ``kernels/<op>/<op>_cuda.cu``.

    Args:
        arch: such as ``sm_90``, or ``compute_90`` for PTX.
        more_options: of NVRTC.

    Raises:
        KernelCompileError: with the compiler's log.
        CudaUnavailableError: NVRTC cannot be loaded.
    """
    path, kernels = sources.source_path(op), sources.kernels(op)
    expressions = [kernel.expression(types) for kernel in kernels.values() for types in kernel.instantiations]
    text = f"{path.read_text()}\n{checks(kernels)}"
    return compile_text(text, path.name, expressions, (*options(arch), *more_options))


def compile_text(text: str, name: str, expressions: Sequence[str], given: Sequence[str]) -> CompiledKernels:
    """Compiles expressions of a source text, which defines them inside the namespace ``lg``.

    Raises:
        KernelCompileError: with the compiler's log.
    """
    nvrtc = loaded_nvrtc()
    with _nvrtc:
        program = nvrtc.createProgram(text, name, (), ())
        try:
            # NVRTC takes names before it compiles, and knows their symbols only until the program is destroyed.
            for expression in expressions:
                nvrtc.addNameExpression(program, f"lg::{expression}")
            nvrtc.compileProgram(program, tuple(given))
            symbols = {expression: nvrtc.getLoweredName(program, f"lg::{expression}") for expression in expressions}
            ptx = any(option.startswith("--gpu-architecture=compute_") for option in given)
            image = nvrtc.getPTX(program) if ptx else nvrtc.getCUBIN(program)
            return CompiledKernels(_as_bytes(image), symbols, nvrtc.getProgramLog(program).strip())
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program).strip()
            raise KernelCompileError(
                f"NVRTC {'.'.join(map(str, nvrtc.getVersion()))} cannot compile {name} ({error}):\n{log}\n"
                f"Options: {' '.join(given)}. Sources and compiler have to fit: install lightning-gnnload and its "
                "CUDA extra again."
            ) from error
        finally:
            nvrtc.destroyProgram(program)


def loaded_nvrtc():  # type: ignore[no-untyped-def]
    """Returns CuPy's binding of NVRTC, after a call that shows that it works.

    Raises:
        CudaUnavailableError: there is no CuPy, or it finds no NVRTC.
    """
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # what CuPy raises where a library is missing has changed from version to version
        raise CudaUnavailableError(
            f"Kernels are compiled by CuPy and NVRTC, which cannot be loaded ({error}). Install them: "
            "pip install 'lightning-gnnload[cuda13]', or [cuda12] for CUDA 12."
        ) from error
    return nvrtc


def _as_bytes(image: bytes | str) -> bytes:
    return image.encode() if isinstance(image, str) else bytes(image)
