"""The documentation's site, as far as it can be checked without building it: `make docs` builds it strictly."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from pykafka_wire.cli.app import commands
from pykafka_wire.errors import ConnectorError, DataLossError, Loss
from pykafka_wire.wire.error_codes import ERRORS
from pykafka_wire.wire.errors import NoBrokerAvailableError
from website import generated_pages, repository_files, sequence_steps, tables
from website.roles import plain

ROOT = Path(__file__).resolve().parents[1]


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.findall(r": ([\w-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    generated = {*generated_pages.pages(), *repository_files.project_pages(ROOT)}
    assert sorted(found) == sorted(pages | generated)


def test_the_errors_page_has_every_code_of_the_connector_the_client_and_kafka() -> None:
    page = generated_pages.errors_page()
    codes = {each.code for each in ConnectorError.__subclasses__()} | {NoBrokerAvailableError().label}
    assert DataLossError.code in codes
    for code in codes:
        assert f"### {code}\n" in page
    sections = re.split(r"^### ", page.partition("\n## Kafka's error codes")[0], flags=re.MULTILINE)[1:]
    assert [each.partition("\n")[0] for each in sections if "**What to do**" not in each] == []
    sources = [
        path.read_text(encoding="utf-8") for name in ("connector", "wire") for path in (ROOT / name).rglob("*.py")
    ]
    written = {code for text in sources for code in re.findall(r"\[(PYKAFKA_WIRE_[A-Z_]+)\]", text)}
    assert written <= {each.partition("\n")[0] for each in sections}
    assert "A worker's Python lacks pykafka-wire" in page
    for name in [*(info.name for info in ERRORS.values()), *(loss.name for loss in Loss)]:
        assert f"| `{name}` |" in page


def test_the_command_line_page_has_every_command() -> None:
    page = generated_pages.command_line_page()
    for name in ["pykafka-wire", *commands.list_commands(click.Context(commands))]:
        assert f"## {name}\n" in page
    assert "--fail-above" in page
    assert "--client-properties FILE" in page.partition("## cluster\n")[2]


def test_links_out_of_docs_lead_to_pages_of_the_site() -> None:
    text = "[a](../examples/demo.py) [b](../DESIGN.md#map) [c](read.md) ```\n[d](../examples/demo.py)\n```"
    assert repository_files.with_links_inside_the_site(text, "x.md", ROOT) == (
        "[a](source/examples/demo.py.md) [b](design.md#map) [c](read.md) ```\n[d](../examples/demo.py)\n```"
    )
    pages = repository_files.source_pages(ROOT, {"x.md": text})
    assert set(pages) == {"source/examples/demo.py.md"}
    notebook = "examples/first_steps.ipynb"
    page = repository_files.source_pages(ROOT, {"x.md": f"[n](../{notebook})"})[f"source/{notebook}.md"]
    assert page.startswith("# First steps")
    assert "```python\nimport os\n" in page


def test_the_first_page_sells_as_readme_does() -> None:
    written = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    page = repository_files.with_readme(written, ROOT)
    assert "<!-- README" not in page
    for shown in (
        "pykafka-wire ingest --bootstrap", "](page.png)", "pip install 'pykafka-wire", "](performance/overview.svg)",
        "| | spark-sql-kafka-0-10 | pykafka-wire |",
    ):  # fmt: skip
        assert shown in page
    assert "](docs/" not in page
    with pytest.raises(KeyError, match="no such"):
        repository_files.with_readme("<!-- README: no such -->", ROOT)


def test_roles_become_code() -> None:
    assert plain("see :class:`~pykafka_wire.wire.Consumer`, :data:`LATEST`") == "see `Consumer`, `LATEST`"
    assert plain("by :meth:`Consumer.poll <pykafka_wire.wire.consumer.Consumer.poll>`") == "by `Consumer.poll`"
    assert plain("as a context manager::\n\n    with x::y:") == "as a context manager:\n\n    with x::y:"


def test_workflows_make_targets_that_exist_and_all_that_run_long_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    used: set[str] = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r"run: make ([a-z-]+)$", text, re.MULTILINE))
        for job in yaml.safe_load(text)["jobs"].values():
            used |= set(job.get("strategy", {}).get("matrix", {}).get("target", []))
    assert {"test", "check", "docs", "chaos", "compat"} <= used <= targets
    recipes = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert {target for target, recipe in recipes if re.search(r'-m (long|"long or)', recipe)} - used == set()


def test_cells_know_their_columns_heading() -> None:
    head = "<thead><tr><th>a</th><th>b <code>c</code></th><th></th></tr></thead>"
    html = f"<table>{head}<tbody><tr><td><code>x.y</code></td><td>2</td><td>3</td></tr></tbody></table>"
    row = '<tr><td><code>x.<wbr>y</code></td><td data-label="b c">2</td><td>3</td></tr>'
    assert tables.labelled(html) == re.sub("<tr><td>.*</tr>", row, html)
    documented = html.replace("<tr><td>", '<tr class="doc-section-item"><td>')
    assert '<td data-label="b c">2</td>' in tables.labelled(documented)


def test_a_sequence_diagram_has_its_steps_as_a_list() -> None:
    page = "\n".join(
        [
            "```mermaid", "sequenceDiagram", "    autonumber", "    participant D as Spark's driver", "    participant K as Kafka",
            "    D->>K: where? <ListOffsets>", "    alt the marker names 6", "        K-->>D: 7", "    else it names 7",
            "        D->>D: nothing", "    end", "    Note over D,K: A crash here:<br/>again.", "```", "",
        ]
    )  # fmt: skip
    steps = re.findall(r"<p style=\"margin-left: (\d)em\">(.*)</p>", sequence_steps.with_steps(page))
    assert steps == [
        ("0", "1. <strong>Spark&#x27;s driver → Kafka</strong>: where? &lt;ListOffsets&gt;"),
        ("0", "If the marker names 6:"),
        ("1", "2. <strong>Kafka → Spark&#x27;s driver</strong>: 7"),
        ("0", "Or if it names 7:"),
        ("1", "3. <strong>Spark&#x27;s driver</strong>: nothing"),
        ("0", "<em>A crash here: again.</em>"),
    ]
    with pytest.raises(ValueError, match="activate D"):
        sequence_steps.with_steps(page.replace("autonumber", "activate D"))
