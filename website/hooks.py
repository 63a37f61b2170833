"""MkDocs calls these functions while it builds the site (``hooks`` in mkdocs.yml).

They add the generated pages, and pages for the repository's files that the documentation links to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from pykafka_wire import __version__
from website import generated_pages, mermaid_library, repository_files, sequence_steps, tables

ROOT = Path(__file__).resolve().parents[1]
MERMAID = "assets/mermaid.min.js"
MERMAID_THEME = "assets/mermaid-theme.js"


def on_config(config: Any) -> Any:  # Any: MkDocs' configuration, a dictionary of its own
    """Each page's foot names the version that the site is of."""
    config.copyright = f"pykafka-wire {__version__}, Apache-2.0"
    return config


def on_files(files: Files, config: Any) -> Files:  # Any: MkDocs' configuration, a dictionary of its own
    """The files of docs/, the generated pages, pages of source text, and Mermaid's library."""
    pages = {**generated_pages.pages(), **repository_files.project_pages(ROOT)}
    written = {
        file.src_uri: Path(file.abs_src_path or "")
        for file in files
        if file.is_documentation_page() and file.src_uri not in pages
    }
    texts = {
        uri: repository_files.with_readme(path.read_text(encoding="utf-8"), ROOT) for uri, path in written.items()
    } | pages
    for uri, text in {**pages, **repository_files.source_pages(ROOT, texts)}.items():
        in_repository = files.get_file_from_path(uri)
        if in_repository is not None:  # says where to look without the site
            files.remove(in_repository)
        files.append(File.generated(config, uri, content=text))
    library = mermaid_library.library()
    if library:
        files.append(File.generated(config, MERMAID, abs_src_path=str(library)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files outside of docs/ lead to their pages in the site; sequence diagrams have their steps as a list, too; a page
    without sections needs no room for a list of them; the first page has parts of README."""
    markdown = repository_files.with_readme(markdown, ROOT)
    if not re.search(r"^##+ ", markdown, re.MULTILINE):
        page.meta.setdefault("hide", ["toc"])
    return sequence_steps.with_steps(repository_files.with_links_inside_the_site(markdown, page.file.src_uri, ROOT))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Cells know their column's heading: narrow screens show a row as a list."""
    return tables.labelled(html)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Names in headings and in the list of sections may break after an underscore. Pages with diagrams load Mermaid's library
    from the site; without it, the theme loads it from a CDN."""
    name = r"(?<=[\n>])(\s*[A-Z]+(?:_[A-Z]+)+\s*)(?=\n\s*</span>|<a class=.headerlink)"
    output = re.sub(name, lambda found: found[1].replace("_", "_<wbr>"), output)
    if 'class="mermaid"' not in output or not mermaid_library.library():
        return output
    urls = [get_relative_url(name, page.url) for name in (MERMAID, MERMAID_THEME)]
    scripts = "".join(f'<script src="{url}"></script>' for url in urls)
    return output.replace("</head>", f"{scripts}</head>", 1)
