"""The documents point to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykafka_wire import errors
from website import generated_pages

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/*.md")])
#: Pages that the site has in place of short ones, with their text there.
GENERATED = {ROOT / "docs" / uri: text for uri, text in generated_pages.pages().items()}


def anchor(heading: str) -> str:
    """As a forge makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"\w+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (document.parent / name) if name else document
        assert path.exists(), f"{document.name}: {target}"
        if fragment:
            text = GENERATED.get(path) or path.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert fragment in map(anchor, headings), f"{document.name}: {target}"


@pytest.mark.parametrize("page", ["README", "docs/first-ingest", "docs/ingest", "docs/ingest-settings", "docs/page"])
def test_the_pages_that_are_read_most_are_short(page: str) -> None:
    """Details belong to pages for those who look for them."""
    assert len((ROOT / f"{page}.md").read_text(encoding="utf-8").split()) < 1500


def test_the_operations_guide_has_every_code_and_every_data_loss() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    codes = {
        each.code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.ConnectorError) and each is not errors.ConnectorError
    }
    assert codes >= {"PYKAFKA_WIRE_OPTION", "PYKAFKA_WIRE_DATA_LOSS"}
    for name in [*codes, *(loss.name for loss in errors.Loss)]:
        assert f"`{name}`" in text
