"""All commands, and the process's exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

import click

from pykafka_wire import __version__
from pykafka_wire.cli.connection import connection_options
from pykafka_wire.cli.output import FAILED, INTERRUPTED, REFUSED, UNREACHABLE, USAGE, exit_code, show_error
from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import TransportError, WireError


class _Command(NamedTuple):
    """A command. It is defined in the module of the same name, which is loaded when the command runs.

    Attributes:
        summary: the text in the list of commands.
        is_experimental: whether the command may change in a minor version (docs/public-api.md).
    """

    summary: str
    is_experimental: bool = False


_COMMANDS: Final = {
    "checkpoint": _Command("Show the micro-batches and offsets in a query's checkpoint."),
    "cluster": _Command("Run a real Kafka on this machine until Ctrl-C."),
    "commit": _Command("Commit offsets to a group."),
    "demo": _Command("Run a demo: an ingest of growing topics from a local Kafka.", is_experimental=True),
    "doctor": _Command("Find the cause of a failed connection."),
    "groups": _Command("List the consumer groups."),
    "ingest": _Command("Land topics in tables: one query, one Delta or Iceberg table for each topic."),
    "jars": _Command(
        "Download Java and the jars that Delta tables need.",
        is_experimental=True,
    ),
    "lag": _Command("Show a group's lag."),
    "marker": _Command("Show the last micro-batch of an exactly-once query."),
    "offsets": _Command("Show the first and the next offsets of a topic."),
    "produce": _Command("Write records to a topic."),
    "prove": _Command("Prove that a table holds each record of its topics exactly once."),
    "query": _Command("Run SQL on the tables of an ingest, with DuckDB or Spark.", is_experimental=True),
    "redrive": _Command("Write dead letters back to their topics, exactly once."),
    "reset": _Command("Move a group's offsets, by offset or time."),
    "schema": _Command("Infer the type of a topic's JSON values.", is_experimental=True),
    "tail": _Command("Print a topic's last records."),
    "top": _Command("Show lag, rates and time to catch up of queries and groups.", is_experimental=True),
    "topics": _Command("List, describe, create, alter or delete topics."),
    "transactions": _Command("Find and abort hanging transactions."),
    "walkthrough": _Command("Show Kafka's protocol step by step.", is_experimental=True),
}
_EXPERIMENTAL: Final = "Experimental: this command may change or go in a minor version."

_EPILOG = f"""Commands marked as experimental may change or go in a minor version. All others are stable.

\b
Exit codes:
  0    done, no problem found
  {FAILED}    the cluster refused the request, or a check failed
  {USAGE}    the command line or a setting is wrong
  {UNREACHABLE}    no broker responded
  {REFUSED}    authentication or authorisation failed
  {INTERRUPTED}  interrupted
"""


class _Commands(click.Group):
    """Loads a command's module when the command runs: ``--help`` needs none of them, and importing NumPy takes half a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"pykafka_wire.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        if _COMMANDS[cmd_name].is_experimental:
            command.epilog = _EXPERIMENTAL
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            marks = {True: " (experimental)", False: ""}
            formatter.write_dl(
                [
                    (name, command.summary.removesuffix(".") + marks[command.is_experimental])
                    for name, command in _COMMANDS.items()
                ]
            )


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EPILOG,
)
@click.version_option(__version__, prog_name="pykafka-wire")
@connection_options
def commands() -> None:
    """Turn Kafka topics into tables, query the tables, and inspect clusters.

    Give brokers and settings as in Kafka's own tools: --bootstrap, -X kafka.NAME=VALUE, --config client.properties.
    """
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        click.get_current_context().color = False


def application(arguments: list[str] | None = None) -> None:
    """Run a command line and end the process."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # click's standalone mode is off, since it uses the same exit code for all errors.
        code: Any = commands.main(args=arguments, prog_name="pykafka-wire", standalone_mode=False)
        sys.exit(code or 0)
    except click.ClickException as error:
        _fail(error, error.format_message(), error.exit_code, given)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `… | head`
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (WireError, ConnectorError) as error:
        hint = "Run pykafka-wire doctor with the same options: it checks every step of the connection."
        _fail(error, str(error), exit_code(error), given, hint if isinstance(error, TransportError) else "")
    except Exception as error:
        if not type(error).__module__.startswith("pyspark.errors"):
            raise
        from pykafka_wire.ingest.spark.errors import sentence_of

        _fail(error, sentence_of(error), FAILED, given)


def _fail(error: Exception, text: str, code: int, given: Sequence[str], hint: str = "") -> NoReturn:
    show_error(text, code, error=error, is_json="--json" in given, hint=hint)
    sys.exit(code)


def commands_table() -> str:
    """Return all commands as Markdown for docs/command-line.md."""
    from pykafka_wire.wire.settings.documentation import mark_experimental  # not needed by --help

    lines = ["| command | what it does |", "|---|---|"]
    for name, command in _COMMANDS.items():
        lines.append(f"| `{name}` | {mark_experimental(command.summary, command.is_experimental)} |")
    return "\n".join(lines) + "\n"
