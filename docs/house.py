"""Draws the layers and lists the classes of the package, both from its sources: ``make house``.

``docs/house.svg`` shows which layer imports which. The glossary in ``docs/words.md`` lists every class that stands in
two files or more, with the first sentence of its docstring. ``tests/docs/test_house.py`` fails when either is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lightning_gnnload"
PICTURE = ROOT / "docs" / "house.svg"
GLOSSARY = ROOT / "docs" / "words.md"
BEGIN, END = "<!-- classes: begin, written by make house -->", "<!-- classes: end -->"


@dataclass
class Room:
    """A layer, or a wing of plugin: a place in the picture, counted in columns, and what it is for."""

    name: str
    about: str
    row: int
    first: int
    columns: int
    files: list[Path] = field(default_factory=list)

    @property
    def size(self) -> str:
        lines = sum(len(path.read_text().splitlines()) for path in self.files)
        return f"{len(self.files)} file{'s' * (len(self.files) != 1)}, {lines / 1000:.1f} k lines"


# From the top down. A layer may import those below it; .importlinter enforces it.
WINGS = [
    Room("commands", "gnnload fit, predict, build, infer, plan, doctor ...", 0, 0, 2),
    Room("planning", "measures a run before it begins", 0, 2, 2),
    Room("device_report", "what a GPU does, beside an H200", 0, 4, 2),
    Room("strategy", "FactoredStrategy: roles, ranks, launching", 1, 0, 4),
    Room("monitor", "where the time of a step goes", 1, 4, 2),
    Room("gradients", "late gradients, idle samplers that train", 2, 0, 2),
    Room("module", "GraphDataModule: data, caches, parts, devices", 2, 2, 4),
    Room("job", "the settings that all ranks share", 3, 0, 2),
    Room("handover", "what ranks are handed: a secret, a store", 3, 2, 2),
    Room("accelerate", "faster steps on CPUs", 3, 4, 2),
    Room("compat", "every private name of Lightning, once", 4, 0, 6),
]
LAYERS = [
    Room("pyg", "PyG's loaders and data modules, by one import", 0, 0, 2),
    Room("dgl", "DGL's loader and samplers, by one import", 0, 2, 2),
    Room("ray", "ranks of Ray Train", 0, 4, 1),
    Room("models", "models, by name", 0, 5, 1),
    Room("plugin", "what a Lightning user sees", 1, 0, 6),
    Room("owners", "parts served to other machines", 2, 0, 6),
    Room("pipeline", "loader, queue, processes", 3, 0, 1),
    Room("cache", "feature rows kept near", 3, 1, 1),
    Room("partition", "who owns which node", 3, 2, 1),
    Room("conform", "tests for any sampler", 3, 3, 1),
    Room("inference", "all nodes, layer by layer", 3, 4, 1),
    Room("nn", "layers for faster steps", 3, 5, 1),
    Room("sample", "sampling algorithms, on CPUs and GPUs", 4, 0, 2),
    Room("adapters", "mini-batches as DGL or PyG wants them", 4, 2, 2),
    Room("ingest", "tables into graph folders", 4, 4, 2),
    Room("datasets", "graphs that a name stands for: OGB, Debian, folders of others", 5, 0, 6),
    Room("storage", "graphs, rows and parts as folders: written whole or not at all, mapped, checked", 6, 0, 6),
    Room("data", "values: graphs, features, seeds, orders, mini-batches", 7, 0, 6),
    Room("host", "what Linux gives: memory files, locks, sockets, processes", 8, 0, 6),
    Room("ops", "checked entry points to the kernels", 9, 0, 4),
    Room("settings", "checks of arguments", 9, 4, 1),
    Room("drawing", "figures", 9, 5, 1),
    Room("kernels", "C++ and CUDA, which know no torch", 10, 0, 2),
    Room("errors", "every error that a user can meet", 10, 2, 3),
    Room("lazy", "imports on first use", 10, 5, 1),
]

Edges = set[tuple[str, str]]


def modules() -> dict[str, Path]:
    """Lists the package's files by dotted name. A stub that lists a package's names has that package's; what loads them
    then keeps its ``__init__``."""
    stubs = [*PACKAGE.rglob("__init__.pyi")]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    loads = {path.with_suffix(".py") for path in stubs}
    known = {name if path in loads else name.removesuffix(".__init__"): path for path, name in names.items()}
    return dict(sorted(known.items())) | {".".join(path.relative_to(ROOT).parent.parts): path for path in stubs}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(name: str, path: Path, known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields each module of the package that a file imports, and the name it takes; "" for the module itself."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # ``from package import name`` takes a module or something in one: which, the files tell.
                inner = f"{source}.{alias.name}"
                yield (inner, "") if inner in known else (source, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def room_of(name: str) -> tuple[str, str]:
    """Returns the layer and, in plugin, the wing of a module; "" where it has none."""
    _, layer, wing, *_ = [*name.split("."), "", ""]
    return layer, wing if layer == "plugin" else ""


def edges() -> tuple[Edges, Edges]:
    """Finds who imports whom, among layers and among the wings of plugin. The package's ``__init__`` only forwards."""
    known = modules()
    layers, wings = {("ops", "kernels")}, set()  # compiled code imports nothing that can be read here
    for name, path in known.items():
        for source, _ in imports(name, path, known):
            if source in known:
                (layer, wing), (other, other_wing) = room_of(name), room_of(source)
                if layer and other and layer != other:
                    layers.add((layer, other))
                elif layer == other == "plugin" and wing and other_wing and wing != other_wing:
                    wings.add((wing, other_wing))
    return layers, wings


def upward(rooms: list[Room], found: Edges) -> Edges:
    """Returns the imports of a room that is not below."""
    row = {room.name: room.row for room in rooms}
    # Rooms of one row know nothing of each other, so an import between them is a fault as well.
    return {(one, other) for one, other in found if row[one] >= row[other]}


def essential(found: Edges) -> Edges:
    """Leaves out the edges that follow from a chain of others."""

    def reaches(start: str, goal: str, banned: tuple[str, str]) -> bool:
        seen, left = {start}, [start]
        while left:
            here = left.pop()
            further = {other for one, other in found if one == here and (one, other) != banned} - seen
            if goal in further:
                return True
            seen |= further
            left += further
        return False

    return {edge for edge in found if not reaches(*edge, banned=edge)}


# The picture.

WIDTH, MARGIN, GAP, ARROW, HEIGHT, HEADING = 1000, 24, 14, 34, 58, 62
FILL = {"plugin": "#eef3fb", "wing": "#ffffff", "layer": "#f7f4ec"}


class Picture:
    """An SVG picture, drawn row by row."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, size: int = 13, weight: str = "normal", color: str = "#222") -> None:
        self.parts.append(
            f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" fill="{color}" '
            f'text-anchor="middle">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self.parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="7" fill="{fill}" '
            f'stroke="#5b6b82"/>'
        )

    def arrow(self, x: float, top: float, bottom: float, *, is_up: bool) -> None:
        color, (begin, end) = ("#c62828", (bottom, top)) if is_up else ("#5b6b82", (top, bottom))
        tip = 7 if is_up else -7
        self.parts.append(
            f'<path d="M{x:.0f} {begin:.0f} V{end + tip:.0f}" stroke="{color}" stroke-width="{3 if is_up else 1.5}"/>'
            f'<path d="M{x - 5:.0f} {end + tip:.0f} h10 l-5 {-tip} z" fill="{color}"/>'
        )

    def rooms(
        self, rooms: list[Room], found: Edges, x: float, y: float, width: float, heights: dict[int, float]
    ) -> float:
        """Draws boxes in rows, and the arrows between them; returns where the last row ends."""
        # The columns of the widest rooms in LAYERS and WINGS.
        unit = width / 6
        tops = {}
        for row in sorted({room.row for room in rooms}):
            tops[row] = y
            y += heights.get(row, HEIGHT) + ARROW
        spans = {}
        for room in rooms:
            left, top = x + room.first * unit + GAP / 2, tops[room.row]
            right, bottom = x + (room.first + room.columns) * unit - GAP / 2, top + heights.get(room.row, HEIGHT)
            spans[room.name] = (left, right, top, bottom)
            kind = "wing" if rooms is WINGS else "plugin" if room.name == "plugin" else "layer"
            self.box(left, top, right - left, bottom - top, FILL[kind])
            center = (left + right) / 2
            self.text(center, top + 19, room.name, 15, "bold")
            self.text(center, top + 35, room.about, 11 if room.columns == 1 else 13)
            self.text(center, top + 51, room.size, 11, color="#777")
        bad = upward(rooms, found)
        for one, other in sorted(essential(found - bad) | bad):
            upper, lower = (spans[name] for name in ((other, one) if (one, other) in bad else (one, other)))
            left, right = max(upper[0], lower[0]), min(upper[1], lower[1])
            shift = 18 if (one, other) in bad else 0
            self.arrow((left + right) / 2 + shift, upper[3], lower[2], is_up=(one, other) in bad)
        return y - ARROW


def furnish(rooms: list[Room], home: Path) -> None:
    """Finds the files of each room. What the picture has no place for is named, so that it gets one."""
    for room in rooms:
        if room.name == "kernels":
            room.files = [
                path for path in sorted((ROOT / "kernels").rglob("*")) if path.suffix in (".cpp", ".cu", ".h")
            ]
        else:
            room.files = sorted([*home.glob(f"{room.name}.py"), *(home / room.name).rglob("*.py")])
    there = {path.stem for path in home.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    if homeless := there - {room.name for room in rooms} - {"__init__"}:
        raise SystemExit(f"docs/house.py has no place for {', '.join(sorted(homeless))} of {home.name}/: add a Room.")


def draw() -> str:
    layers, wings = edges()
    furnish(WINGS, PACKAGE / "plugin")
    furnish(LAYERS, PACKAGE)
    picture = Picture()
    num_rows = len({room.row for room in WINGS})
    hall = HEADING + num_rows * (HEIGHT + ARROW) - ARROW + GAP
    picture.text(WIDTH / 2, 26, "lightning_gnnload: each layer imports those below it", 17, "bold")
    picture.text(
        WIDTH / 2, 46, "An arrow is an import. Those that follow from others are left out; red is upward, a fault.", 12
    )
    above = next(room.row for room in LAYERS if room.name == "plugin")
    end = picture.rooms(LAYERS, layers, MARGIN, 60, WIDTH - 2 * MARGIN, {above: hall})
    top = 60 + above * (HEIGHT + ARROW) + HEADING
    picture.rooms(WINGS, wings, MARGIN + GAP, top, WIDTH - 2 * MARGIN - 2 * GAP, {})
    stated = "\n".join(described(layers, wings))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end + 16:.0f}" font-family="sans-serif">\n'
        f"<desc>\n{escape(stated)}\n</desc>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(picture.parts) + "\n</svg>\n"
    )


def described(layers: Edges, wings: Edges) -> list[str]:
    """Lists all imports between rooms, a line each: what the picture must show, whatever its boxes' sizes."""
    return sorted(
        [f"{one} -> {other}" for one, other in layers] + [f"plugin: {one} -> {other}" for one, other in wings]
    )


def drawn() -> list[str]:
    """Reads the imports that the picture in docs/ shows."""
    found = re.search(r"<desc>\n(.*?)\n</desc>", PICTURE.read_text(), re.DOTALL)
    return found[1].replace("&gt;", ">").splitlines() if found else []


# The glossary.


@dataclass(frozen=True)
class Entry:
    """A class that a reader meets in two files or more."""

    layer: str
    name: str
    file: str
    sentence: str

    @property
    def line(self) -> str:
        return f"| `{self.name}` | {self.sentence} | {self.file} |"


def entries() -> list[Entry]:
    """Lists public classes that are named in two files of the package or more: their own, and one that imports them."""
    known = modules()
    named = defaultdict(set)
    for name, path in known.items():
        for source, what in imports(name, path, known):
            named[source, what].add(name)
        # ``from package import module``, then ``module.Class``
        taken = [source for source, what in imports(name, path, known) if source in known and not what]
        aliases = {source.rpartition(".")[2]: source for source in taken}
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                named[aliases[node.value.id], node.attr].add(name)
    found = []
    for name, path in known.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and named[name, node.name] - {name}:
                file = str(path.relative_to(PACKAGE))
                found.append(Entry(room_of(name)[0], node.name, file, first_sentence(ast.get_docstring(node) or "")))
    return found


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring, as Markdown."""
    text = " ".join(docstring.split("\n\n")[0].split())
    # Only before a capital, a name in code or a role, so that abbreviations end no sentence.
    text = re.split(r"(?<=[.!?])\s+(?=[A-Z`:])", text)[0]
    text = re.sub(r":\w+:`~?[\w.]*?(\w+)`", r"`\1`", text)
    return re.sub(r":$", ".", text).replace("``", "`").replace("|", r"\|")


def listed() -> str:
    """Writes the tables of the classes of each layer, from the top down."""
    found = entries()
    sections = []
    for layer in [room.name for room in LAYERS]:
        lines = [entry.line for entry in sorted(found, key=lambda entry: entry.name.lower()) if entry.layer == layer]
        if lines:
            sections.append(
                "\n".join([f"### {layer}", "", "| class | what it is | file |", "| --- | --- | --- |", *lines])
            )
    return "\n\n".join(sections)


def glossary(text: str) -> str:
    """Returns the text of ``docs/words.md`` with the classes of today."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{listed()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    PICTURE.write_text(draw())
    GLOSSARY.write_text(glossary(GLOSSARY.read_text()))
    print(f"{PICTURE.relative_to(ROOT)} and {GLOSSARY.relative_to(ROOT)} are written.", file=sys.stderr)


if __name__ == "__main__":
    main()
