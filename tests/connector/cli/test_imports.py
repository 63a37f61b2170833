"""What a command loads before it does anything: a user waits for it, and shells ask for it when they complete a line."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click
import pytest

from pykafka_wire.cli.app import commands

#: Each takes longer to load than most commands to do their work.
HEAVY = ("numpy", "pyarrow", "pyspark", "py4j")
PROGRAM = """
import contextlib, io, sys
from pykafka_wire.cli.app import application
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    application(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_list_of_commands_loads_none_of_them() -> None:
    assert "click" in loaded("--help") and not loaded("--help") & {*HEAVY, "rich"}


@pytest.mark.parametrize("name", commands.list_commands(click.Context(commands)))
def test_a_commands_help_loads_no_data_library(name: str) -> None:
    assert not loaded(name, "--help") & set(HEAVY)


@pytest.mark.broker
@pytest.mark.parametrize(
    "arguments", [("topics",), ("groups",), ("lag", "g"), ("offsets", "t"), ("transactions",), ("marker", "id")]
)
def test_asking_brokers_loads_no_library_of_data_or_screens(arguments: tuple[str, ...], kafka: Any) -> None:
    """Of a cluster with few topics: larger responses are read into NumPy's memory."""
    assert not loaded(*arguments, "-b", kafka.bootstrap_servers) & {*HEAVY, "rich"}
