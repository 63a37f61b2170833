"""Reference pages that are made from the code: errors, the command line, the Python API, examples."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import pykafka_wire.functions
import pykafka_wire.values
import pykafka_wire.wire
from pykafka_wire import errors as connector_errors
from pykafka_wire.cli.app import commands
from pykafka_wire.wire import errors as wire_errors
from pykafka_wire.wire.error_codes import ERRORS
from pykafka_wire.wire.errors import fill_in
from website import measurements
from website.roles import plain

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

#: What to do about errors of the Kafka client that docs/operations.md does not list one by one.
_CLIENT_REMEDIES: Final = {
    "PYKAFKA_WIRE_PROTOCOL": "check that the port is a Kafka listener, and that `security.protocol` matches it. "
    "If both are correct, report a bug with a trace (`kafka.trace=stderr`)",
    "PYKAFKA_WIRE_CORRUPT_BATCH": "start after the batch, whose place the text names, or restore it "
    "from another replica. The client has fetched it twice",
    "PYKAFKA_WIRE_UNSUPPORTED_VERSION": "upgrade the brokers, or do without the feature that the text names; "
    "[Brokers](brokers.md) lists what was seen on each release",
    "PYKAFKA_WIRE_TRANSPORT": "check the network and the broker that the text names; "
    "[`pykafka-wire doctor`](diagnose.md) checks each step",
    "PYKAFKA_WIRE_DEADLINE_EXCEEDED": "remove the last cause, which the text names. Raise the time limit "
    "([settings](settings.md)) only if the brokers are slow and healthy",
    "PYKAFKA_WIRE_MISROUTED_CONNECTION": "check that each broker's `advertised.listeners` leads to it, past DNS, "
    "proxies and load balancers; `kafka.metadata.cluster.check.enable=false` turns the check off",
    "PYKAFKA_WIRE_CORRELATION": "repeat the call. If the error comes again, look for a proxy between client and broker",
    "PYKAFKA_WIRE_SETTINGS": "correct the setting that the text names: [Kafka client settings](settings.md)",
    "PYKAFKA_WIRE_FORKED_PRODUCER": "create a producer in the child process, or call `reset()` there",
    "PYKAFKA_WIRE_FORKED_CONSUMER": "create a consumer in the child process",
    "PYKAFKA_WIRE_RECORDS_NOT_WRITTEN": "call `reset()`, and send again what was not flushed",
    "PYKAFKA_WIRE_TRANSACTION_STATE": "call `flush()` before a commit; after an error or an end begin another transaction",
    "PYKAFKA_WIRE_TOPIC_RECREATED": "start the query with a new checkpoint; in a program, seek to an offset of the new topic",
    "PYKAFKA_WIRE_LOG_END": "the text names the cause: wait until the open transaction has ended, at the latest after its "
    "`transaction.timeout.ms`; if it hangs, see [Hanging transactions](diagnose.md#hanging-transactions); or check the replicas",
    "PYKAFKA_WIRE_LOG_TRUNCATED": "start from an offset that exists, or set `failOnDataLoss=false`. "
    "`unclean.leader.election.enable=false` on the brokers prevents it",
    "PYKAFKA_WIRE_BROKER": "look for the name in [Kafka's error codes](#kafkas-error-codes)",
    "PYKAFKA_WIRE_UNKNOWN_TOPIC": "check the name (`pykafka-wire topics`), and the Describe permission",
    "PYKAFKA_WIRE_RECORD_TOO_LARGE": "raise the topic's `max.message.bytes`, or make the record smaller. "
    "`onRecordError=divert` lets a write continue without it",
    "PYKAFKA_WIRE_PRODUCER_FENCED": "give each running producer or query a transactional id of its own. After a timeout "
    "write less in one transaction, or raise `transaction.timeout.ms`",
    "PYKAFKA_WIRE_OFFSET_OUT_OF_RANGE": "start from an offset that exists; for a consumer `auto.offset.reset` chooses it",
}


def pages() -> dict[str, str]:
    """The generated pages, by their paths in docs/."""
    return {
        "errors.md": errors_page(),
        "command-line.md": command_line_page(),
        "python-api.md": python_api_page(),
        "examples.md": examples_page(),
        "measurements.md": measurements.measurements_page(DOCS),
    }


def errors_page() -> str:
    """Every stable code with its meaning, the causes of data loss, and Kafka's error codes."""
    advice = _advice()
    lines = [
        "# Errors by code",
        "",
        "Every error begins with a code in brackets, such as `[PYKAFKA_WIRE_OPTION]`. It stays when the wording changes: "
        "search for it, and let alerts match it. Spark wraps errors of a data source in its own text; look for the code inside.",
        "",
        "## Errors of the data source",
        "",
    ]
    for each in _subclasses(connector_errors.ConnectorError):
        means, remedy = advice.get(each.code, ("", ""))
        lines += [f"### {each.code}", "", _sentence(means) or _first_paragraph(each), ""]
        if remedy:
            lines += [f"**What to do**: {remedy}.", ""]
        if each is connector_errors.DataLossError:
            lines += ["| cause | what happened |", "|---|---|"]
            lines += [
                f"| `{loss.name}` | {advice.get(loss.name, (loss.value, ''))[0]} |" for loss in connector_errors.Loss
            ]
            lines.append("")
    classes = {each.code for each in _subclasses(connector_errors.ConnectorError)}
    client = {each.__new__(each).label for each in _subclasses(wire_errors.WireError)}
    for code, (means, remedy) in advice.items():
        if code.startswith("PYKAFKA_WIRE_") and code not in classes | client:
            lines += [f"### {code}", "", _sentence(means), "", f"**What to do**: {remedy}.", ""]
    lines += [
        "## Errors of the Kafka client",
        "",
        "`pykafka_wire.wire` raises these; in Spark they appear with the same codes.",
        "",
    ]
    for wire_error in _subclasses(wire_errors.WireError):
        label = wire_error.__new__(wire_error).label
        remedy = _CLIENT_REMEDIES.get(label) or advice[label][1]
        retried = " The same call may succeed when it is repeated." if wire_error.retriable else ""
        lines += [f"### {label}", "", _first_paragraph(wire_error) + retried, "", f"**What to do**: {remedy}.", ""]
    lines += [
        "## Kafka's error codes",
        "",
        "What brokers respond, and what the client does: it retries within its time limit, or fails with this text.",
        "",
        "| code | name | meaning and remedy | the client |",
        "|---|---|---|---|",
    ]
    for info in ERRORS.values():
        meaning = f"{info.meaning} {fill_in(info.remedy)}".strip()
        lines.append(f"| {info.code} | `{info.name}` | {meaning} | {info.action.value} |")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _first_paragraph(documented: object) -> str:
    return plain(inspect.getdoc(documented) or "").split("\n\n")[0]


def _subclasses(root: type) -> Iterator[type]:  # type: ignore[type-arg]
    """The classes below `root` that its module defines, in the order of the module."""
    for each in vars(inspect.getmodule(root)).values():
        if isinstance(each, type) and issubclass(each, root) and each is not root:
            yield each


def _advice() -> dict[str, tuple[str, str]]:
    """Code or cause -> its meaning and remedy, from the tables of docs/operations.md, the first one that has it."""
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    found: dict[str, tuple[str, str]] = {}
    for code, means, remedy in re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|(?: ([^|]+) \|)?$", text, re.MULTILINE):
        found.setdefault(code, (means.strip(), remedy.strip()))
    return found


def command_line_page() -> str:
    """The command `pykafka-wire` with all of its commands, as their `--help` explains them."""
    lines = [
        "# Command line",
        "",
        "`pip install 'pykafka-wire[cli]'` installs the command `pykafka-wire`. "
        "[Find out what is wrong](diagnose.md) shows examples.",
        "",
    ]
    written = (DOCS / "command-line.md").read_text(encoding="utf-8")
    lines += [written[written.index("\n## ") + 1 :]]
    context = click.Context(commands, info_name="pykafka-wire", terminal_width=100, max_content_width=100)
    lines += _help(commands, context, "pykafka-wire", 2)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=100, max_content_width=100)
        lines += _help(command, inner, name, 2)
        for subname, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
            innermost = click.Context(
                subcommand, info_name=subname, parent=inner, terminal_width=100, max_content_width=100
            )
            lines += _help(subcommand, innermost, f"{name} {subname}", 3)
    return "\n".join(lines) + "\n"


def _help(command: click.Command, context: click.Context, title: str, level: int) -> list[str]:
    return [f"{'#' * level} {title}", "", "```text", command.get_help(context).rstrip(), "```", ""]


def python_api_page() -> str:
    """The public names of each public module, each by its docstring."""
    sections = [
        (
            "pykafka_wire",
            ["LagListener", "PykafkaWireDataSource", "checkpoint_position", "table_position", "read_topic"],
            "The data source and what belongs to it, and topics as Arrow without Spark.",
        ),
        ("pykafka_wire.lag_listener", ["QueryLag", "lags_of"], "What the listener reports."),
        (
            "pykafka_wire.metrics",
            [
                "serve_prometheus",
                "register_prometheus",
                "export_opentelemetry",
                "trace_opentelemetry",
                "MetricsListener",
            ],
            "Metrics for Prometheus and OpenTelemetry.",
        ),
        ("pykafka_wire.metrics.prometheus", ["PrometheusServer"], "What `serve_prometheus` returns."),
        ("pykafka_wire.functions", list(pykafka_wire.functions.__all__), "Functions for columns of values."),
        ("pykafka_wire.values", list(pykafka_wire.values.__all__), "The registry that they take."),
        ("pykafka_wire.wire", list(pykafka_wire.wire.__all__), "The Kafka client, which needs no Spark."),
        (
            "pykafka_wire.local",
            ["LocalCluster", "LocalRegistry", "delta_jars", "ensure_java", "export_java_home"],
            "A real Kafka on this machine, and what Spark needs beside it, for tests and demonstrations.",
        ),
        (
            "pykafka_wire.testing",
            ["kafka", "topic", "registry", "kafka_faults", "kafka_options", "KafkaFaults", "TopicFactory"],
            "Fixtures of pytest over a real Kafka ([Test your pipeline](testing.md)).",
        ),
        ("pykafka_wire.errors", ["ConnectorError", "DataLossError", "Loss"], "The errors of the data source."),
    ]
    lines = ["# Python API", "", "The names below are [public](public-api.md). All others may change at any time.", ""]
    for module, names, sentence in sections:
        lines += [f"## {module}", "", sentence, ""]
        for name in names:
            lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines) + "\n"


def examples_page() -> str:
    """The programs in examples/, each with the first sentence of its docstring."""
    lines = [
        "# Examples",
        "",
        "Complete programs. Each is run by the tests as its docstring says. "
        "`make cluster TOPIC=orders:3` starts a Kafka to try them on.",
        "",
    ]
    examples = ROOT / "examples"
    for path in [*sorted(examples.glob("*.py")), *sorted(examples.glob("*/transformations/*.py"))]:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name = path.relative_to(examples).as_posix()
        lines.append(f"- [{name}](../examples/{name}): {docstring.partition(chr(10))[0]}")
    return "\n".join(lines) + "\n"
