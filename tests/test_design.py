"""DESIGN.md's picture against the imports of the code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import grimp
import pytest

_DESIGN = Path(__file__).parents[1] / "DESIGN.md"
#: The subgraphs of the picture, each with the package whose children it draws.
_PACKAGES = {"connector": "pykafka_wire", "wire": "pykafka_wire.wire"}

pytestmark = pytest.mark.unit


@dataclass(frozen=True, slots=True)
class Drawing:
    """One subgraph: which box stands for each package or module, and the arrows between boxes."""

    box_of: dict[str, str]
    arrows: set[tuple[str, str]]

    def has_path(self, start: str, end: str) -> bool:
        return any(first == start and (second == end or self.has_path(second, end)) for first, second in self.arrows)


def _drawing(name: str) -> Drawing:
    picture = re.search(rf'subgraph {name} \["[^"]+"\]\n(.*?)\n    end', _DESIGN.read_text(encoding="utf-8"), re.DOTALL)
    assert picture is not None, f"DESIGN.md draws no subgraph {name}"
    labels = dict(re.findall(r'(\w+)\["([^"]+)"\]', picture[1]))
    arrows: set[tuple[str, str]] = set()
    for line in re.sub(r'\["[^"]+"\]', "", picture[1]).splitlines():
        starts, _, ends = line.strip().partition(" --> ")
        arrows |= {(start, end) for start in starts.split(" & ") for end in ends.split(" & ") if end}
    alone = set(re.findall(r"^\s*(\w+)$", picture[1], re.MULTILINE))
    boxes = alone | {box for arrow in arrows for box in arrow}
    package = _PACKAGES[name]
    return Drawing({f"{package}.{part}": box for box in boxes for part in labels.get(box, box).split(", ")}, arrows)


def _imports(name: str, drawing: Drawing) -> set[tuple[str, str]]:
    """Which box imports which; the command that ``python -m pykafka_wire.ingest`` starts apart."""
    graph = grimp.build_graph("pykafka_wire")
    depth = _PACKAGES[name].count(".") + 2
    imports: set[tuple[str, str]] = set()
    for module in graph.modules - {"pykafka_wire.ingest.__main__"}:
        start = drawing.box_of.get(".".join(module.split(".")[:depth]))
        for imported in graph.find_modules_directly_imported_by(module):
            end = drawing.box_of.get(".".join(imported.split(".")[:depth]))
            if start and end and start != end:
                imports.add((start, end))
    return imports


@pytest.mark.parametrize("name", _PACKAGES)
def test_each_arrow_is_an_import_and_each_import_is_drawn(name: str) -> None:
    drawing = _drawing(name)
    imports = _imports(name, drawing)
    assert drawing.arrows - imports == set()
    assert {edge for edge in imports if not drawing.has_path(*edge)} == set()


@pytest.mark.parametrize("name", _PACKAGES)
def test_each_package_and_module_stands_in_a_box(name: str) -> None:
    children = grimp.build_graph("pykafka_wire").find_children(_PACKAGES[name])
    assert children - {"pykafka_wire.wire"} == _drawing(name).box_of.keys()


def test_each_name_in_the_map_is_a_module_or_a_package() -> None:
    root = _DESIGN.parent
    modules = [
        path.relative_to(root).with_suffix("") for side in ("wire", "connector") for path in (root / side).rglob("*.py")
    ]
    known = {part for path in modules for part in path.parts} | {"static"}
    text = _DESIGN.read_text(encoding="utf-8")
    section = text[text.index("wire/, from the bytes up:") : text.index("## The path of a record")]
    named = re.findall(r"`([a-z_][a-z0-9_/.]*)`", section)
    assert len(named) > 50
    unknown = {name for name in named for part in re.split(r"[/.]", name) if part and part not in known}
    assert unknown == {"read_topic"}


def test_no_two_classes_that_others_import_have_the_same_name() -> None:
    modules_of: dict[str, list[str]] = defaultdict(list)
    for side in ("wire", "connector"):
        for path in (_DESIGN.parent / side).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules_of[node.name].append(path.relative_to(_DESIGN.parent).as_posix())
    assert len(modules_of) > 500
    assert {name: modules for name, modules in modules_of.items() if len(modules) > 1} == {}
