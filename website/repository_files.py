"""Files of the repository outside of docs/: pages for those that the documentation links to, and the links to them."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```", re.DOTALL)

#: The repository's own documents -> their pages.
PROJECT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "DESIGN.md": "design.md",
    "SECURITY.md": "security-policy.md",
}
_LANGUAGES = {".py": "python", ".yml": "yaml", ".json": "json", ".conf": "text", ".properties": "properties"}


def project_pages(root: Path) -> dict[str, str]:
    """DESIGN.md and the others as pages, with their links as seen from docs/. The site's first page is docs/index.md."""
    pages = {}
    for name, uri in PROJECT_PAGES.items():
        if name != "README.md":
            text = (root / name).read_text(encoding="utf-8")
            pages[uri] = _LINK.sub(lambda found: f"]({_from_docs(found[1])})", text)
    return pages


def with_readme(text: str, root: Path) -> str:
    """Return a page of docs/ with each ``<!-- README: Install -->`` replaced by README's section of that name, without its heading;
    without a name it is what README has before its first section.

    Raises:
        KeyError: README has no such section.
    """
    readme = (root / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    parts = ["", *re.split(r"^## (.*)$", readme, flags=re.MULTILINE)]
    sections = {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}

    def section(mark: re.Match[str]) -> str:
        return _LINK.sub(lambda found: f"]({_from_docs(found[1])})", sections[mark[1]])

    return re.sub(r"^<!-- README: ?(.*?) ?-->$", section, text, flags=re.MULTILINE)


def _from_docs(target: str) -> str:
    if re.match(r"\w+:|#", target):
        return target
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def source_pages(root: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """A page for each file and folder outside of docs/ that a text links to, by the text's path in docs/."""
    pages: dict[str, str] = {}
    for uri, text in texts.items():
        for target in _LINK.findall(_CODE.sub("", text)):
            path = _outside(target, uri, root)
            if path and path not in PROJECT_PAGES:
                _add(pages, path, root)
    return pages


def _add(pages: dict[str, str], path: str, root: Path) -> None:
    if page_of(path, root) in pages:
        return
    if (root / path).is_dir():
        inside = sorted(each for each in (root / path).iterdir() if each.is_file())
        lines = [f"- [{each.name}]({posixpath.basename(path)}/{each.name}.md){_summary(each)}" for each in inside]
        pages[page_of(path, root)] = f"# {path}/\n\n" + "\n".join(lines) + "\n"
        for each in inside:
            _add(pages, f"{path}/{each.name}", root)
        return
    language = _LANGUAGES.get(Path(path).suffix, "text")
    text = (root / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        pages[page_of(path, root)] = _notebook(path, text)
    else:
        pages[page_of(path, root)] = f"# {path}\n\n````{language}\n{text}````\n"


def _notebook(path: str, text: str) -> str:
    """The cells of a notebook, one after the other."""
    cells = [f"The notebook `{path}`, without outputs:"]
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        cells.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    return "\n\n".join([cells[1], cells[0], *cells[2:]]) + "\n"


def _summary(path: Path) -> str:
    if path.suffix != ".py":
        return ""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return f": {docstring.partition(chr(10))[0]}" if docstring else ""


def page_of(path: str, root: Path) -> str:
    """The page of a file or folder of the repository, in docs/."""
    return PROJECT_PAGES.get(path) or f"source/{path}.md"


def with_links_inside_the_site(text: str, uri: str, root: Path) -> str:
    """`text`, a page at `uri`, with links to files outside of docs/ replaced by links to their pages."""

    def replaced(found: re.Match[str]) -> str:
        path = _outside(found[1], uri, root)
        if path is None:
            return found[0]
        fragment = found[1].partition("#")[2]
        relative = posixpath.relpath(page_of(path, root), posixpath.dirname(uri) or ".")
        return f"]({relative}{'#' + fragment if fragment else ''})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    return "".join(part if i % 2 else _LINK.sub(replaced, part) for i, part in enumerate(parts))


def _outside(target: str, uri: str, root: Path) -> str | None:
    """The path in the repository of a link's target that exists outside of docs/; else None."""
    if re.match(r"\w+:|#", target):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(uri), target.partition("#")[0]))
    outside = not path.startswith(("docs/", "..")) and (root / path).exists()
    return path if outside else None
