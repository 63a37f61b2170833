"""The hook that checks commit messages, run as git runs it; docstrings begin as commits do."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

_HOOK = Path(__file__).parents[1] / ".githooks" / "commit-msg"

#: A function's parameters, its result, and the first line of its docstring.
_DOCSTRING = re.compile(
    r'^ *(?:async )?def \w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?: -> [^\n]*)?:(?: *#[^\n]*)?\n +r?"""(.*)',
    re.MULTILINE,
)

pytestmark = pytest.mark.unit


def _run(tmp_path: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message + "\n", encoding="utf-8")
    return subprocess.run([sys.executable, _HOOK, file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "wire: reject batches with a negative length",
        "cli, local: process each line\n\nThe body says why.",
        "wire/records: embed the schema",
        "Merge branch 'main'",
    ],
)
def test_an_area_and_an_imperative_pass(tmp_path: Path, message: str) -> None:
    assert _run(tmp_path, message).returncode == 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("reject batches", "an area"),
        ("wire: rejects batches", "'rejects'"),
        ("wire: what a response means", "'what'"),
        ("wire: rejected batches are counted", "'rejected'"),
        ("wire: Reject batches", "'Reject'"),
    ],
)
def test_other_subjects_are_refused_with_an_example(tmp_path: Path, message: str, reason: str) -> None:
    run = _run(tmp_path, message)
    assert run.returncode == 1
    assert reason in run.stderr
    assert "area: imperative" in run.stderr


def test_a_docstring_of_a_function_begins_with_a_verb_as_a_commit_does() -> None:
    mistake_in = runpy.run_path(str(_HOOK))["mistake_in"]
    first_lines = [
        (path, match[1])
        for side in ("connector", "wire")
        for path in (_HOOK.parents[1] / side).rglob("*.py")
        for match in _DOCSTRING.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(first_lines) > 2_500
    wrong = [f"{path}: {text}" for path, text in first_lines if mistake_in(f"area: {text[:1].lower()}{text[1:]}")]
    assert wrong == []
