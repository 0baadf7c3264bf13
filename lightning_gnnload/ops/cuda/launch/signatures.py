"""Reads what kernels take from the text of the CUDA sources.

The ``.cu`` files and their headers are the only description: what Python may launch, and how its arguments lie in
memory, is read from them, and :func:`checks` lets the compiler confirm what was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....errors import GnnLoadError

# C++ is read by regular expressions here. That is enough, since common/cuda/kernel.h allows but one form of kernels and
# their structures, and safe, since what is misread fails to compile with checks(), and a kernel that is overlooked
# leaves its LG_INSTANTIATE without one. A real parser (libclang) would be a dependency of every machine with a GPU.
NUMBER_BYTES = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "float": 4, "double": 8}
_POINTER_BYTES = 8

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INSTANTIATION = re.compile(r"^LG_INSTANTIATE\s*\(([^()]*)\)", re.MULTILINE)
_BOUNDS = r"(?:__launch_bounds__\s*\([^()]*\)\s*)?"
_KERNEL = re.compile(
    r"(?:\btemplate\s*<(?P<types>[^<>]*)>\s*)?"
    rf"{_BOUNDS}\b__global__\s+{_BOUNDS}void\s+{_BOUNDS}(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{{"
)
_PARAMETER = re.compile(r"(?P<type>.*?[\s*])\s*(?P<name>[A-Za-z_]\w*)", re.DOTALL)
# Members come first (a rule of kernel.h), so they end at the last semicolon before a brace or parenthesis.
_STRUCTURE = re.compile(r"(?:\btemplate\s*<(?P<types>[^<>]*)>\s*)?\bstruct\s+(?P<name>\w+)\s*\{(?P<members>[^{}()]*;)")


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel, or one member of a structure."""

    name: str  # keyword of a launch, or attribute of the object that is passed for the structure
    ctype: str  # one of NUMBER_BYTES, a pointer such as ``const int64_t*``, or a structure
    members: tuple[KernelParameter, ...] = ()  # of a structure, in order

    @property
    def is_pointer(self) -> bool:
        return self.ctype.endswith("*")

    @property
    def is_read_only(self) -> bool:
        """Whether it is a pointer to memory that the kernel does not change."""
        return self.is_pointer and self.pointee != self.ctype[:-1]

    @property
    def pointee(self) -> str:
        """The type that a pointer points to, without ``const``."""
        target = self.ctype[:-1]
        return target.removesuffix(" const") if "*" in target else target.removeprefix("const ")

    @property
    def alignment(self) -> int:
        """In bytes, like :attr:`size` and :meth:`offsets`, by the rules that the compilers of host and device share."""
        if self.members:
            return max(member.alignment for member in self.members)
        return _POINTER_BYTES if self.is_pointer else NUMBER_BYTES[self.ctype]

    @property
    def size(self) -> int:
        if not self.members:
            return self.alignment
        return _aligned(self.offsets()[-1] + self.members[-1].size, self.alignment)

    def offsets(self) -> list[int]:
        """Returns where each member begins."""
        return offsets_of(self.members)

    def leaves(self, path: str = "", at: int = 0) -> Iterator[tuple[str, KernelParameter, int]]:
        """Yields the numbers and pointers in it: the path of attributes to each, such as ``.known.stamps``, and its
        offset, if the whole begins at ``at``."""
        if not self.members:
            yield path, self, at
        for member, offset in zip(self.members, self.offsets(), strict=True):
            yield from member.leaves(f"{path}.{member.name}", at + offset)


@dataclass(frozen=True)
class Structure:
    """A ``struct`` of pointers, numbers and other structures, which kernels take by value."""

    members: tuple[KernelParameter, ...]  # in order, in terms of ``type_names``; a part, where some are not understood
    type_names: tuple[str, ...] = ()  # parameters of the template


@dataclass(frozen=True)
class KernelSource:
    """The declaration of a ``__global__`` function."""

    op: str  # folder of ``kernels/``
    name: str  # in the namespace ``lg``
    parameters: tuple[KernelParameter, ...]  # in order, in terms of ``type_names``
    instantiations: tuple[tuple[str, ...], ...]  # that may be launched; ((),) where it is no template
    type_names: tuple[str, ...]  # parameters of the template
    structures: Mapping[str, Structure]  # by name

    def parameters_of(self, types: tuple[str, ...]) -> tuple[KernelParameter, ...]:
        """Returns the parameters of an instantiation, with its types in place of the template's names. Raises
        GnnLoadError where there is no such instantiation, or a parameter is no pointer, number or structure of them."""
        if types not in self.instantiations:
            launchable = ", ".join(map(self.expression, self.instantiations))
            raise GnnLoadError(
                f"Kernel {self.op}/{self.expression(types)} is not instantiated; there are: {launchable}. Launch one "
                f"of them, or add a line LG_INSTANTIATE({self.expression(types)}) to {self.op}_cuda.cu."
            )
        type_values = dict(zip(self.type_names, types, strict=False))
        return tuple(self._resolved(parameter, type_values, self.expression(types)) for parameter in self.parameters)

    def expression(self, types: tuple[str, ...]) -> str:
        """Returns the name in LG_INSTANTIATE, in the namespace ``lg``, such as ``pick_uniform<int32_t>``."""
        return f"{self.name}<{', '.join(types)}>" if types else self.name

    def _resolved(self, parameter: KernelParameter, type_values: Mapping[str, str], where: str) -> KernelParameter:
        ctype = re.sub(r"\w+", lambda word: type_values.get(word[0], word[0]), parameter.ctype)
        name, types = _instantiation(ctype)
        if ctype.endswith("*") or ctype in NUMBER_BYTES:
            return KernelParameter(parameter.name, ctype)
        structure = self.structures.get(name)
        if structure is None or len(types) != len(structure.type_names) or not structure.members:
            raise GnnLoadError(
                f"{self.op}_cuda.cu: {parameter.name!r} of kernel {where} is of type {ctype!r}, which is no pointer, "
                f"none of {', '.join(NUMBER_BYTES)}, and no structure of them. Pass flags as int32_t, and begin a "
                "structure with its members."
            )
        member_types = dict(zip(structure.type_names, types, strict=True))
        return KernelParameter(
            parameter.name, ctype, tuple(self._resolved(member, member_types, where) for member in structure.members)
        )


def offsets_of(parameters: tuple[KernelParameter, ...]) -> list[int]:
    """Returns where each parameter begins, one behind the other."""
    offsets, end = [], 0
    for parameter in parameters:
        offsets.append(_aligned(end, parameter.alignment))
        end = offsets[-1] + parameter.size
    return offsets


def parse(op: str, text: str, declarations: str = "") -> dict[str, KernelSource]:
    """Finds the kernels in the text of a ``.cu`` file, by name; ``declarations`` have their structures, besides the
    text. Raises GnnLoadError for a parameter that cannot be passed, a kernel without an instantiation, or an
    instantiation without a kernel."""
    text = _COMMENT.sub(" ", text)
    structures = {
        match["name"]: Structure(tuple(_members(match["members"])), _type_names(match["types"]))
        for match in _STRUCTURE.finditer(text + _COMMENT.sub(" ", declarations))
    }
    instantiated: dict[str, list[tuple[str, ...]]] = {}
    for written in _INSTANTIATION.findall(text):
        name, types = _instantiation(written)
        instantiated.setdefault(name, []).append(types)
    sources: dict[str, KernelSource] = {}
    for match in _KERNEL.finditer(text):
        name, type_names = match["name"], _type_names(match["types"])
        types_of = tuple(instantiated.pop(name, ()))
        if not types_of or any(len(types) != len(type_names) for types in types_of):
            raise GnnLoadError(
                f"{op}_cuda.cu: kernel {name!r} needs lines LG_INSTANTIATE({name}...) with {len(type_names)} types "
                f"each, but has {list(types_of)}."
            )
        parameters = tuple(_parameter(op, name, part) for part in _split(match["parameters"]))
        sources[name] = KernelSource(op, name, parameters, types_of, type_names, structures)
        # Resolved once here, so that a type which cannot be passed is refused before any launch.
        for types in types_of:
            sources[name].parameters_of(types)
    if instantiated:
        raise GnnLoadError(
            f"{op}_cuda.cu instantiates {sorted(instantiated)}, but defines no such kernel. Write 'template <...> "
            "__global__ void name(parameters) {'."
        )
    return sources


def checks(sources: Mapping[str, KernelSource]) -> str:
    """Writes C++ that compiles behind the sources if kernels and their structures are in memory as was read here.

    NVRTC has no ``offsetof``, so offsets are checked where the host's compiler takes the same sources.
    """
    # Dicts as ordered sets: kernels share structures.
    members: dict[str, None] = {}
    offsets: dict[str, None] = {}
    signatures = []
    for kernel in sources.values():
        for types in kernel.instantiations:
            parameters = kernel.parameters_of(types)
            for structure in _structures(parameters):
                struct = structure.ctype
                members[f"static_assert(sizeof({struct}) == {structure.size});"] = None
                for member, offset in zip(structure.members, structure.offsets(), strict=True):
                    members[f"static_assert(are_same<decltype({struct}::{member.name}), {member.ctype}>);"] = None
                    offsets[f"static_assert(__builtin_offsetof({struct}, {member.name}) == {offset});"] = None
            read = f"void (*)({', '.join(parameter.ctype for parameter in parameters)})"
            signatures.append(f"static_assert(are_same<decltype(&{kernel.expression(types)}), {read}>);")
    return "\n".join(
        (
            "namespace lg {",
            "template <class A, class B> constexpr bool are_same = false;",
            "template <class A> constexpr bool are_same<A, A> = true;",
            *members,
            *signatures,
            "#ifdef LG_EMULATE",
            *offsets,
            "#endif",
            "}",
            "",
        )
    )


def _structures(parameters: tuple[KernelParameter, ...]) -> Iterator[KernelParameter]:
    for parameter in parameters:
        if parameter.members:
            yield from _structures(parameter.members)
            yield parameter


def _members(text: str) -> Iterator[KernelParameter]:
    """Yields a structure's members, up to the first declaration that is not understood, which then fails in
    :func:`checks`."""
    for declaration in _split(text, ";"):
        first, *further = _split(declaration.partition("=")[0])
        match = _PARAMETER.fullmatch(first)
        if match is None or match["type"].split()[0] in ("static", "using") or not all(map(str.isidentifier, further)):
            return
        for name in (match["name"], *further):
            yield KernelParameter(name, _normal(match["type"]))


def _parameter(op: str, kernel: str, text: str) -> KernelParameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise GnnLoadError(f"{op}_cuda.cu: parameter {text!r} of kernel {kernel!r} has no name or no type. Write both.")
    return KernelParameter(match["name"], _normal(match["type"]))


def _type_names(template: str | None) -> tuple[str, ...]:
    return tuple(part.split("=")[0].split()[-1] for part in _split(template or ""))


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _normal(ctype: str) -> str:
    """Writes ``const Index *__restrict__`` as ``const Index*``; a number's own const means nothing to the caller."""
    ctype = " ".join(ctype.replace("__restrict__", " ").replace("*", " * ").split()).replace(" *", "*")
    ctype = re.sub(r"\* const$", "*", ctype)
    return ctype if "*" in ctype else ctype.removeprefix("const ")


def _instantiation(written: str) -> tuple[str, tuple[str, ...]]:
    name, _, types = written.strip().partition("<")
    return name.strip(), tuple(_split(types.rstrip().removesuffix(">")))


def _split(text: str, at: str = ",") -> list[str]:
    return [part.strip() for part in text.split(at) if part.strip()]
