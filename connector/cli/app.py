"""All commands, and the process's exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from pykafka_wire import __version__
from pykafka_wire.cli.checkpoints import checkpoint
from pykafka_wire.cli.cluster import cluster
from pykafka_wire.cli.connection import command, connection_options, output, settings
from pykafka_wire.cli.doctor import doctor
from pykafka_wire.cli.exactly_once import marker
from pykafka_wire.cli.groups import commit, groups, reset
from pykafka_wire.cli.ingest import ingest
from pykafka_wire.cli.lag import lag
from pykafka_wire.cli.offsets import offsets
from pykafka_wire.cli.output import FAILED, INTERRUPTED, REFUSED, UNREACHABLE, USAGE, exit_code, show_error
from pykafka_wire.cli.prove import prove
from pykafka_wire.cli.records import produce, tail
from pykafka_wire.cli.redrive import redrive
from pykafka_wire.cli.schema import schema
from pykafka_wire.cli.top import top
from pykafka_wire.cli.topics import topics
from pykafka_wire.cli.transactions import transactions
from pykafka_wire.errors import ConnectorError
from pykafka_wire.wire.errors import TransportError, WireError

_EPILOG = f"""\b
Exit codes:
  0    done, no problem found
  {FAILED}    the cluster refused the request, or a check failed
  {USAGE}    the command line or a setting is wrong
  {UNREACHABLE}    no broker responded
  {REFUSED}    authentication or authorisation failed
  {INTERRUPTED}  interrupted
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=_EPILOG)
@click.version_option(__version__, prog_name="pykafka-wire")
@connection_options
def commands() -> None:
    """Inspect a Kafka cluster with the client of the Spark source pykafka-wire.

    Brokers and settings are given as in Kafka's own tools: --bootstrap, -X kafka.NAME=VALUE, --config client.properties.
    """


@command("Show Kafka's protocol step by step.")
def walkthrough() -> None:
    """Show Kafka's protocol step by step: the requests of a small producer and consumer, and the brokers' responses.

    Creates its own topic and group on the cluster, and deletes the topic at the end.
    """
    from pykafka_wire.wire.walkthrough import run_walkthrough

    if output().json:
        raise click.UsageError("walkthrough prints text for people: leave out --json.")
    run_walkthrough(settings())


for each in (
    doctor, topics, offsets, checkpoint, groups, lag, top, tail, produce, schema, commit, reset, redrive, marker, transactions,
    ingest, prove, cluster, walkthrough,
):  # fmt: skip
    commands.add_command(each)


def application(arguments: list[str] | None = None) -> None:
    """Run a command line and end the process."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # Not click's standalone mode, which has the same exit code for all errors.
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
        from pykafka_wire.ingest.landing import shown

        _fail(error, shown(error), FAILED, given)


def _fail(error: Exception, text: str, code: int, given: Sequence[str], hint: str = "") -> NoReturn:
    show_error(text, code, error=error, is_json="--json" in given, hint=hint)
    sys.exit(code)
