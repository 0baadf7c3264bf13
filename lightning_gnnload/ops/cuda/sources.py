"""The CUDA sources: where they lie, and which kernels, parameters and instantiations they hold.

The ``.cu`` files are the one truth: what Python may launch, and with which arguments, is read from them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import GnnLoadError, KernelsMissingError

NUMBER_TYPES = ("int32_t", "uint32_t", "int64_t", "uint64_t", "float", "double")

_TAKEN = frozenset(("op", "kernel", "types", "blocks", "threads", "shared_bytes"))  # keywords of Device.launch itself

_INSTALLED = Path(__file__).parent / "kernels"
_DEVELOPED = Path(__file__).parents[3] / "kernels"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_INSTANTIATION = re.compile(r"^LG_INSTANTIATE\s*\(([^()]*)\)", re.MULTILINE)
_BOUNDS = r"(?:__launch_bounds__\s*\([^()]*\)\s*)?"
_KERNEL = re.compile(
    r"(?:\btemplate\s*<(?P<types>[^<>]*)>\s*)?"
    rf"{_BOUNDS}\b__global__\s+{_BOUNDS}void\s+{_BOUNDS}(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{{"
)
_PARAMETER = re.compile(r"(?P<type>.*?[\s*])\s*(?P<name>[A-Za-z_]\w*)", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """Of a kernel.

    Attributes:
        name: the keyword of a launch.
        ctype: one of NUMBER_TYPES, or a pointer such as ``const int64_t*``, without ``__restrict__``.
    """

    name: str
    ctype: str

    @property
    def is_pointer(self) -> bool:
        return self.ctype.endswith("*")

    @property
    def is_read_only(self) -> bool:
        """Whether it is a pointer to what the kernel does not change."""
        return self.is_pointer and self.pointee != self.ctype[:-1]

    @property
    def pointee(self) -> str:
        """What a pointer points to, without ``const``."""
        target = self.ctype[:-1]
        return target.removesuffix(" const") if "*" in target else target.removeprefix("const ")


@dataclass(frozen=True)
class KernelSource:
    """A ``__global__`` function.

    Attributes:
        op: folder of ``kernels/``.
        name: within the namespace ``lg``.
        parameters: in order, in terms of ``type_names``.
        instantiations: the types that may be launched; ``((),)`` of a kernel that is no template.
        type_names: parameters of the template, in order.
    """

    op: str
    name: str
    parameters: tuple[Parameter, ...]
    instantiations: tuple[tuple[str, ...], ...]
    type_names: tuple[str, ...] = ()

    def parameters_of(self, types: tuple[str, ...]) -> tuple[Parameter, ...]:
        """The parameters of an instantiation, its types in the place of the template's names.

        Raises:
            GnnLoadError: no such instantiation.
        """
        if types not in self.instantiations:
            known = ", ".join(self.expression(known) for known in self.instantiations)
            raise GnnLoadError(
                f"Kernel {self.op}/{self.expression(types)} is not instantiated; there are: {known}. Launch one of "
                f"them, or add a line LG_INSTANTIATE({self.expression(types)}) to {self.op}_cuda.cu."
            )
        given = dict(zip(self.type_names, types, strict=False))
        return tuple(
            Parameter(p.name, re.sub(r"\w+", lambda word: given.get(word[0], word[0]), p.ctype))
            for p in self.parameters
        )

    def expression(self, types: tuple[str, ...]) -> str:
        """Such as ``pick_uniform<int32_t>``: what LG_INSTANTIATE names, inside the namespace ``lg``."""
        return f"{self.name}<{', '.join(types)}>" if types else self.name


def folder() -> Path:
    """Where the sources and their headers lie: with the installed package, else in the repository.

    Raises:
        KernelsMissingError: nowhere.
    """
    for place in (_INSTALLED, _DEVELOPED):
        if (place / "common" / "cuda" / "kernel.h").is_file():
            return place
    raise KernelsMissingError(
        f"The CUDA sources are neither in {_INSTALLED} nor in {_DEVELOPED}, but kernels are compiled from them on "
        "first use. Install lightning-gnnload again."
    )


def ops() -> tuple[str, ...]:
    """Every operation that has CUDA kernels, sorted."""
    return tuple(sorted(path.parent.name for path in folder().glob("*/*_cuda.cu")))


def source_path(op: str) -> Path:
    """The file of an operation's kernels.

    Raises:
        GnnLoadError: it has none.
    """
    path = folder() / op / f"{op}_cuda.cu"
    if not path.is_file():
        raise GnnLoadError(f"Operation {op!r} has no CUDA kernels; these have: {', '.join(ops())}.")
    return path


@functools.cache
def included(op: str) -> tuple[Path, ...]:
    """The operation's ``.cu`` and all headers of ours that it includes, directly or not, sorted."""
    root = folder()
    found: set[Path] = set()
    waiting = [source_path(op)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [root / name for name in _INCLUDE.findall(_text(path)) if not name.startswith("emulate/")]
    return tuple(sorted(found))


@functools.cache
def fingerprint(op: str) -> str:
    """Hash of everything that the operation's kernels are compiled from: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in included(op):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(folder())} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]


@functools.cache
def kernels(op: str) -> dict[str, KernelSource]:
    """The operation's kernels by name.

    Raises:
        GnnLoadError: no such operation, or a source that breaks the rules of ``common/cuda/kernel.h``.
    """
    return parse(op, _text(source_path(op)))


def kernel(op: str, name: str) -> KernelSource:
    """One kernel.

    Raises:
        GnnLoadError: no such kernel.
    """
    known = kernels(op)
    if name not in known:
        raise GnnLoadError(f"{op}_cuda.cu has no kernel {name!r}; it has: {', '.join(sorted(known))}.")
    return known[name]


def parse(op: str, text: str) -> dict[str, KernelSource]:
    """The kernels in the text of a ``.cu`` file, by name.

    Raises:
        GnnLoadError: a parameter that is neither a pointer nor a number of 32 or 64 bits, a kernel without an
            instantiation, an instantiation without a kernel, or either of them twice.
    """
    text = _COMMENT.sub(" ", text)
    instantiated: dict[str, list[tuple[str, ...]]] = {}
    for written in _INSTANTIATION.findall(text):
        name, types = _instantiation(written)
        if types in instantiated.setdefault(name, []):
            raise GnnLoadError(f"{op}_cuda.cu: LG_INSTANTIATE({written.strip()}) is there twice. Remove one.")
        instantiated[name].append(types)
    found: dict[str, KernelSource] = {}
    for match in _KERNEL.finditer(text):
        name = match["name"]
        if name in found:
            raise GnnLoadError(f"{op}_cuda.cu: kernel {name!r} is there twice. Rename one.")
        type_names = tuple(part.split("=")[0].split()[-1] for part in _split(match["types"] or ""))
        types_of = tuple(instantiated.pop(name, ()))
        if not types_of or any(len(types) != len(type_names) for types in types_of):
            raise GnnLoadError(
                f"{op}_cuda.cu: kernel {name!r} needs lines LG_INSTANTIATE({name}...) with {len(type_names)} types "
                f"each, but has {list(types_of)}."
            )
        parameters = tuple(_parameter(op, name, part) for part in _split(match["parameters"]))
        found[name] = KernelSource(op, name, parameters, types_of, type_names)
        for types in types_of:
            _check_types(found[name], types)
    if instantiated:
        raise GnnLoadError(f"{op}_cuda.cu instantiates {sorted(instantiated)}, but defines no such kernel.")
    if len(found) != text.count("__global__"):
        raise GnnLoadError(
            f"{op}_cuda.cu says __global__ {text.count('__global__')} times, but {len(found)} kernels were understood: "
            f"{sorted(found)}. Write 'template <...> __global__ void name(parameters) {{'."
        )
    return found


def _parameter(op: str, kernel: str, text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise GnnLoadError(f"{op}_cuda.cu: parameter {text!r} of kernel {kernel!r} has no name or no type. Write both.")
    if match["name"] in _TAKEN:
        raise GnnLoadError(
            f"{op}_cuda.cu: parameter {match['name']!r} of kernel {kernel!r} is a keyword of every launch. Rename it."
        )
    return Parameter(match["name"], _normal(match["type"]))


def _check_types(kernel: KernelSource, types: tuple[str, ...]) -> None:
    for parameter in kernel.parameters_of(types):
        if not parameter.is_pointer and parameter.ctype not in NUMBER_TYPES:
            raise GnnLoadError(
                f"{kernel.op}_cuda.cu: parameter {parameter.name!r} of kernel {kernel.expression(types)} is of type "
                f"{parameter.ctype!r}, which is neither a pointer nor one of {', '.join(NUMBER_TYPES)}. Pass "
                "structures as their members, and flags as int32_t."
            )


def _normal(ctype: str) -> str:
    """``const  Index *__restrict__`` as ``const Index*``; a number's own const says nothing to the caller."""
    ctype = " ".join(ctype.replace("__restrict__", " ").replace("*", " * ").split()).replace(" *", "*")
    ctype = re.sub(r"\* const$", "*", ctype)
    return ctype if "*" in ctype else ctype.removeprefix("const ")


def _instantiation(written: str) -> tuple[str, tuple[str, ...]]:
    name, _, types = written.strip().partition("<")
    return name.strip(), tuple(_split(types.rstrip().removesuffix(">")))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelsMissingError(
            f"{path} cannot be read ({error.strerror}), but CUDA kernels are compiled from it. Install "
            "lightning-gnnload again."
        ) from error
