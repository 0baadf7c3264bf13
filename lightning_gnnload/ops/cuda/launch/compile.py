"""Compiles the kernels of an operation with NVRTC: in memory, for one architecture, without a device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import CudaUnavailableError, KernelCompileError
from . import sources
from .signatures import checks

# --fmad=false: products are rounded before they are added, as on the CPU, whose results these kernels have to equal.
OPTIONS = (
    "-std=c++17",
    "--device-int128",
    "--device-as-default-execution-space",
    "--fmad=false",
    "--generate-line-info",
)

_nvrtc = threading.Lock()  # one program at a time


@dataclass(frozen=True)
class CompiledKernels:
    """The compiled kernels of one operation."""

    image: bytes  # a cubin, or PTX for ``compute_`` architectures
    symbols: dict[str, str]  # names in ``image``, by expression such as ``pick_uniform<int32_t>``
    log: str = ""  # of the compiler


def architecture(capability: tuple[int, int], supported: Sequence[int]) -> str:
    """Chooses what to compile for: the architecture of a device of this compute capability, such as (9, 0), or else the
    newest older one that NVRTC knows, such as 90, as PTX that the driver translates."""
    capability_number = capability[0] * 10 + capability[1]
    older = [number for number in supported if number <= capability_number]
    if not older:
        raise CudaUnavailableError(
            f"The device's compute capability is {capability[0]}.{capability[1]}, but the installed NVRTC compiles for "
            f"{min(supported) / 10} and above. Install a CuPy of an older CUDA: pip install 'lightning-gnnload[cuda12]'"
        )
    return f"sm_{capability_number}" if capability_number in older else f"compute_{max(older)}"


def options(arch: str) -> tuple[str, ...]:
    """Lists the compiler's options; its output depends on them, its version and the sources' fingerprint alone."""
    return (*OPTIONS, f"--gpu-architecture={arch}", f"--include-path={sources.folder()}")


def compile_kernels(op: str, arch: str, more_options: Sequence[str] = ()) -> CompiledKernels:
    """Compiles every instantiation of every kernel of ``kernels/<op>/<op>_cuda.cu`` for ``sm_90`` or such, or
    ``compute_90`` for PTX. Raises KernelCompileError with the compiler's log, CudaUnavailableError where NVRTC cannot
    be loaded."""
    path, kernels = sources.source_path(op), sources.kernels(op)
    expressions = [kernel.expression(types) for kernel in kernels.values() for types in kernel.instantiations]
    text = f"{path.read_text()}\n{checks(kernels)}"
    return compile_text(text, path.name, expressions, (*options(arch), *more_options))


def compile_text(text: str, name: str, expressions: Sequence[str], flags: Sequence[str]) -> CompiledKernels:
    """Compiles expressions of a source text that defines them in the namespace ``lg``. Raises KernelCompileError with
    the compiler's log."""
    nvrtc = loaded_nvrtc()
    with _nvrtc:
        program = nvrtc.createProgram(text, name, (), ())
        try:
            # NVRTC takes names before it compiles, and knows their symbols only until the program is destroyed.
            for expression in expressions:
                nvrtc.addNameExpression(program, f"lg::{expression}")
            nvrtc.compileProgram(program, tuple(flags))
            symbols = {expression: nvrtc.getLoweredName(program, f"lg::{expression}") for expression in expressions}
            ptx = any(option.startswith("--gpu-architecture=compute_") for option in flags)
            image = nvrtc.getPTX(program) if ptx else nvrtc.getCUBIN(program)
            return CompiledKernels(_as_bytes(image), symbols, nvrtc.getProgramLog(program).strip())
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program).strip()
            raise KernelCompileError(
                f"NVRTC {'.'.join(map(str, nvrtc.getVersion()))} cannot compile {name} ({error}):\n{log}\n"
                f"Options: {' '.join(flags)}. Sources and compiler have to fit: install lightning-gnnload and its "
                "CUDA extra again."
            ) from error
        finally:
            nvrtc.destroyProgram(program)


def loaded_nvrtc():  # type: ignore[no-untyped-def]
    """Returns CuPy's binding of NVRTC, after a call that shows that it works. Raises CudaUnavailableError."""
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
