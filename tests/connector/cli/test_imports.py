"""What a command loads before it does anything: a user waits for it, and shells ask for it when they complete a line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import click
import pytest

from pykafka_wire.cli.app import commands
from pykafka_wire.local.cluster import LocalCluster
from tests.quick_start import JVM_OPTIONS

#: Each takes longer to load than most commands to do their work.
HEAVY = ("numpy", "pyarrow", "pyspark", "py4j")
PROGRAM = """
import contextlib, io, sys
from pykafka_wire.cli.app import application
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
    application(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded(*arguments: str, environment: Mapping[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return set(done.stdout.split())


def test_the_list_of_commands_loads_none_of_them() -> None:
    assert "click" in loaded("--help") and not loaded("--help") & {*HEAVY, "rich"}


@pytest.mark.parametrize("name", commands.list_commands(click.Context(commands)))
def test_a_commands_help_loads_no_data_library(name: str) -> None:
    assert not loaded(name, "--help") & set(HEAVY)


@pytest.fixture(scope="module")
def few_topics() -> Iterator[str]:
    """The address of a broker with few topics: responses of 16 KiB and more are read into NumPy's memory."""
    with LocalCluster(1, jvm_options=JVM_OPTIONS) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.broker
@pytest.mark.parametrize(
    "arguments",
    [
        ("topics",), ("groups",), ("lag", "g"), ("offsets", "t"), ("transactions",), ("marker", "id"), ("doctor",),
        # Records alone need such a library: there are none.
        ("tail", "no-such-topic"), ("produce", "no-such-topic", "x"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_asking_brokers_loads_no_library_of_data_or_screens(arguments: tuple[str, ...], few_topics: str) -> None:
    assert not loaded(*arguments, "-b", few_topics) & {*HEAVY, "rich"}


def test_completion_loads_one_command() -> None:
    asked = {"_PYKAFKA_WIRE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for words in ("pykafka-wire tail --fo", "pykafka-wire ingest --ver"):
        found = loaded(environment={**asked, "COMP_WORDS": words})
        assert "click" in found and not found & set(HEAVY), words
