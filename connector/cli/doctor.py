"""``doctor``: why does it not connect? From the name's resolution to the ACLs, each look a line, in seconds.

The looks on the way to a broker are :mod:`pykafka_wire.cli.checks`'; here are those inside the cluster, and the report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Final

import click
from rich.text import Text

from pykafka_wire.cli.checks import Check, advertised, failed, reach, timed
from pykafka_wire.cli.connection import connection_options, output, settings
from pykafka_wire.cli.output import console, printable
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import Operation, describe_group, describe_transaction, topic_operations
from pykafka_wire.wire.cluster.metadata import TopicMetadata
from pykafka_wire.wire.error_codes import error_info
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.settings import ClientSettings

#: For all looks inside the cluster together.
_CLUSTER_MS: Final = 8_000
_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
_WANTED: Final = {
    "read": {Operation.DESCRIBE, Operation.READ},
    "write": {Operation.DESCRIBE, Operation.WRITE},
    "both": {Operation.DESCRIBE, Operation.READ, Operation.WRITE},
}
_UNKNOWN_TOPIC: Final = 3
_TOPIC_REFUSED: Final = 29


@click.command(short_help="Find out why a connection fails.")
@connection_options
@click.option("--topic", "topics", multiple=True, help="Also this topic: its leaders and what you may do with it.")
@click.option("--for", "purpose", type=click.Choice(list(_WANTED)), default="read", show_default=True,
              help="What the topics are for.")  # fmt: skip
@click.option("--group", help="Also this consumer group.")
@click.option("--transactional-id", help="Also this transactional id, which is only described, never used.")
def doctor(topics: tuple[str, ...], purpose: str, group: str | None, transactional_id: str | None) -> None:
    """Find out why a connection fails: name, TCP, TLS, SASL, API versions, advertised listeners, leaders, ACLs.

    It only looks, and changes nothing. Ends with code 1 where something is wrong.
    """
    chosen = settings()
    # A step that fails in passing is not worth a minute here.
    quick = replace(chosen, default_api_timeout_ms=_CLUSTER_MS, request_timeout_ms=_CLUSTER_MS)
    report = _Report()
    for warning in chosen.warnings:
        report.add(Check(name="settings", where="", result="warn", found=warning))
    steps = reach(quick, quick.bootstrap_servers)
    for each in steps:
        for check in each:
            report.add(check)
    if any(each[-1].result != "fail" for each in steps):
        for check in _inside(quick, topics, _WANTED[purpose], group, transactional_id):
            report.add(check)
    report.close()


def _inside(
    chosen: ClientSettings, topics: tuple[str, ...], wanted: set[Operation], group: str | None, transaction: str | None
) -> Iterator[Check]:
    with Cluster(chosen) as cluster:
        try:
            every = cluster.topics(None)
            nodes = list(cluster.brokers().values())
        except WireError as error:
            yield failed("metadata", "", error)
            return
        yield Check(
            name="metadata", where="", result="ok", found=f"{len(nodes)} brokers, {len(every)} topics to be seen"
        )
        yield from advertised(chosen, nodes)
        # A client that cannot reach some brokers would only wait for them below.
        yield timed(lambda: _leaders({name: every[name] for name in topics or every if name in every}))
        for topic in topics:
            yield timed(lambda topic=topic: _topic(cluster, topic, wanted))  # type: ignore[misc]
        if group is not None:
            yield timed(lambda: _guarded("group", group, lambda: _group(cluster, group)))
        if transaction is not None:
            look: Callable[[], Check] = lambda: _transaction(cluster, transaction)  # noqa: E731
            yield timed(lambda: _guarded("transactional id", transaction, look))


def _leaders(topics: dict[str, TopicMetadata]) -> Check:
    places = [(name, number, p) for name, topic in topics.items() for number, p in topic.partitions.items()]
    headless = [f"{name}-{number}" for name, number, p in places if p.leader < 0]
    behind = [f"{name}-{number}" for name, number, p in places if len(p.isr) < len(p.replicas)]
    if headless:
        return Check(
            name="leaders", where="", result="fail", found=f"no leader: {_some(headless)}",
            remedy="Their replicas are offline: start those brokers.",
        )  # fmt: skip
    if behind:
        return Check(
            name="leaders", where="", result="warn", found=f"replicas out of sync: {_some(behind)}",
            remedy="A broker is down or slow: acks=all waits for it, or fails below min.insync.replicas.",
        )  # fmt: skip
    return Check(
        name="leaders", where="", result="ok", found=f"{len(places)} partitions, each with a leader, all in sync"
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _topic(cluster: Cluster, topic: str, wanted: set[Operation]) -> Check:
    def look() -> Check:
        found = topic_operations(cluster, [topic], deadline=Deadline.after_ms(_CLUSTER_MS))[topic]
        if found in (_UNKNOWN_TOPIC, _TOPIC_REFUSED):
            return Check(
                name="topic", where=topic, result="fail", found="does not exist, or you may not describe it",
                remedy=f"Check its name (pykafka-wire topics); {_grant('topic', topic, wanted)}",
            )  # fmt: skip
        if isinstance(found, int):
            return Check(name="topic", where=topic, result="fail", found=error_info(found).name)
        return _allowed("topic", topic, found, wanted)

    return _guarded("topic", topic, look)


def _group(cluster: Cluster, group: str) -> Check:
    described = describe_group(cluster, group)
    check = _allowed("group", group, described.operations, {Operation.READ, Operation.DESCRIBE})
    state = "not there yet" if described.state == "Dead" else described.state.lower()
    if described.members and check.result == "ok":
        return replace(
            check, result="warn", found=f"{state}, members: {', '.join(described.members)}; {check.found}",
            remedy="While a group has members, a query cannot commit its progress to it: give the query a group of its own.",
        )  # fmt: skip
    return replace(check, found=f"{state}; {check.found}")


def _transaction(cluster: Cluster, name: str) -> Check:
    found = describe_transaction(cluster, name)
    # Kafka tells nobody whether Write is granted: the way to learn it is to use the id, which would fence its user.
    state = (
        "not used yet" if found is None else f"{found.state}, producer {found.producer_id} epoch {found.producer_epoch}"
    )
    return Check(name="transactional id", where=name, result="ok", found=f"{state}; you may describe it")


def _guarded(name: str, where: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except UnsupportedVersionError as error:
        return replace(failed(name, where, error), result="warn")
    except BrokerError as error:
        kind = {"topic": "topic", "group": "group"}.get(name, "transactional-id")
        refused = "AUTHORIZATION_FAILED" in error.info.name
        return failed(name, where, error, _grant(kind, where, {Operation.DESCRIBE}) if refused else "")
    except WireError as error:
        return failed(name, where, error)


def _allowed(name: str, where: str, found: frozenset[Operation] | None, wanted: set[Operation]) -> Check:
    if found is None:
        return Check(name=name, where=where, result="ok", found="there (these brokers do not tell what you may do)")
    may = f"you may {', '.join(each.label for each in sorted(found)) or 'do nothing'}"
    missing = wanted - found
    if missing:
        lacking = ", ".join(each.label for each in sorted(missing))
        return Check(
            name=name,
            where=where,
            result="fail",
            found=f"{may}; {lacking} is missing",
            remedy=_grant(name, where, missing),
        )
    return Check(name=name, where=where, result="ok", found=may)


def _grant(kind: str, name: str, operations: set[Operation]) -> str:
    asked = " ".join(f"--operation {each.label}" for each in sorted(operations))
    return f"have it granted: kafka-acls.sh --add --allow-principal User:YOU {asked} --{kind} {name}"


class _Report:
    """Prints each check as soon as it is known; as JSON all of them at the end."""

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self._output = output()
        self._console = console()

    def add(self, check: Check) -> None:
        self._checks.append(check)
        if self._output.json:
            return
        mark, colour = _MARKS[check.result]
        line = Text(f"{mark} ", style=colour)
        line.append(f"{check.name:<17}", style="bold").append(f"{check.where}  " if check.where else "")
        line.append(printable(check.found))
        line.append(f"  ({check.ms} ms)" if check.ms else "", style="dim")
        self._console.print(line)
        if check.remedy:
            self._console.print(Text(f"    → {printable(check.remedy)}", style=colour))

    def close(self) -> None:
        """The verdict, and the exit code."""
        n_failed = sum(check.result == "fail" for check in self._checks)
        n_warned = sum(check.result == "warn" for check in self._checks)
        if self._output.json:
            self._output.document({"ok": not n_failed, "checks": [asdict(check) for check in self._checks]})
        elif n_failed:
            click.echo(f"{n_failed} of {len(self._checks)} checks failed.")
        else:
            click.echo(f"All is well{f', with {n_warned} warnings' if n_warned else ''}.")
        if n_failed:
            sys.exit(1)
