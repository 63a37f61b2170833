"""``doctor``: finds connection problems, from the host name to the ACLs; one line for each check, in seconds.

The checks on the way to a broker are in :mod:`pykafka_wire.cli.checks`; here are those inside the cluster, and the report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from pykafka_wire.cli.checks import Check, advertised, check_addresses, failed_check, identity_check, timed
from pykafka_wire.cli.connection import connection_options, output, settings
from pykafka_wire.cli.offsets import offsets_at
from pykafka_wire.cli.output import FAILED, REFUSED, UNREACHABLE, console, counted, printable
from pykafka_wire.cli.tiers import remote_share, tier_offsets
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import Operation, describe_transaction, topic_operations
from pykafka_wire.wire.cluster.groups import describe_group
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.error_codes import error_info
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition, similar_names

#: For each request inside the cluster, with its retries.
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
@click.option(
    "--topic", "topics", multiple=True, help="Also check this topic: its leaders and your permissions; may be repeated."
)
@click.option("--for", "purpose", type=click.Choice(list(_WANTED)), default="read", show_default=True,
              help="Which permissions to check on the topics.")  # fmt: skip
@click.option("--group", help="Also check this consumer group.")
@click.option("--transactional-id", help="Also check this transactional id. It is only described, never used.")
def doctor(topics: tuple[str, ...], purpose: str, group: str | None, transactional_id: str | None) -> None:
    """Find out why a connection fails: name, TCP, TLS, SASL, API versions, advertised listeners, leaders, ACLs.

    It changes nothing. If a check fails, the exit code says which kind of problem the first one is: see pykafka-wire --help.
    """
    chosen = settings()
    # A temporary failure must not take a minute here.
    quick = replace(chosen, default_api_timeout_ms=_CLUSTER_MS, request_timeout_ms=_CLUSTER_MS)
    report = _Report()
    for warning in chosen.warnings:
        report.add(Check(name="settings", where="", result="warn", found=warning))
    if quick.uses_sasl:
        report.add(timed(lambda: identity_check(quick)))
    steps = check_addresses(quick, quick.bootstrap_servers)
    for each in steps:
        for check in each:
            report.add(check)
    if any(each[-1].result != "fail" for each in steps):
        for check in _cluster_checks(quick, topics, _WANTED[purpose], group, transactional_id):
            report.add(check)
    report.close()


def _cluster_checks(
    chosen: ClientSettings, topics: tuple[str, ...], wanted: set[Operation], group: str | None, transaction: str | None
) -> Iterator[Check]:
    with Cluster(chosen) as cluster:
        try:
            all_topics = cluster.metadata.topics(None)
            nodes = list(cluster.metadata.brokers().values())
        except WireError as error:
            yield failed_check("metadata", "", error)
            return
        found = f"{counted(len(nodes), 'broker')}; you may describe {counted(len(all_topics), 'topic')}"
        yield Check(name="metadata", where="", result="ok", found=found)
        yield from advertised(chosen, nodes)
        # Before the requests below, which wait for brokers that cannot be reached.
        yield timed(lambda: _leaders({name: all_topics[name] for name in topics or all_topics if name in all_topics}))
        for topic in topics:
            yield timed(lambda topic=topic: _topic(cluster, topic, wanted, all_topics))  # type: ignore[misc]
            if topic in all_topics:
                yield from _tiers(cluster, all_topics[topic])
        if group is not None:
            yield timed(lambda: _run_check("group", group, lambda: _group(cluster, group)))
        if transaction is not None:
            run: Callable[[], Check] = lambda: _transaction(cluster, transaction)  # noqa: E731
            yield timed(lambda: _run_check("transactional id", transaction, run))


def _leaders(topics: dict[str, TopicMetadata]) -> Check:
    places = [(name, number, p) for name, topic in topics.items() for number, p in topic.partitions.items()]
    without_leader = [f"{name}-{number}" for name, number, p in places if p.leader < 0]
    behind = [f"{name}-{number}" for name, number, p in places if len(p.isr) < len(p.replicas)]
    if without_leader:
        return Check(
            name="leaders", where="", result="fail", found=f"no leader: {_first_names(without_leader)}",
            remedy="Their replicas are offline: start those brokers.",
        )  # fmt: skip
    if behind:
        return Check(
            name="leaders", where="", result="warn", found=f"replicas out of sync: {_first_names(behind)}",
            remedy="A broker is down or slow: acks=all waits for it, or fails below min.insync.replicas.",
        )  # fmt: skip
    if not places:
        return Check(name="leaders", where="", result="ok", found="no partitions to check")
    each = "with a leader, in sync" if len(places) == 1 else "each with a leader, all in sync"
    return Check(name="leaders", where="", result="ok", found=f"{counted(len(places), 'partition')}, {each}")


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _topic(cluster: Cluster, topic: str, wanted: set[Operation], all_topics: Collection[str]) -> Check:
    def run() -> Check:
        found = topic_operations(cluster, [topic], deadline=Deadline.after_ms(_CLUSTER_MS))[topic]
        if found in (_UNKNOWN_TOPIC, _TOPIC_REFUSED):
            near = similar_names(topic, all_topics)
            meant = f"Did you mean {' or '.join(near)}? " if near else ""
            return Check(
                name="topic", where=topic, result="fail", found="does not exist, or you may not describe it",
                exit_code=FAILED if found == _UNKNOWN_TOPIC else REFUSED,
                remedy=f"{meant}Check its name (pykafka-wire topics). {_grant('topic', topic, wanted)}",
            )  # fmt: skip
        if isinstance(found, int):
            return Check(name="topic", where=topic, result="fail", found=error_info(found).name)
        return _allowed("topic", topic, found, wanted)

    return _run_check("topic", topic, run)


def _tiers(cluster: Cluster, topic: TopicMetadata) -> Iterator[Check]:
    places = [TopicPartition(topic.name, number) for number, each in topic.partitions.items() if each.leader >= 0]
    deadline = Deadline.after_ms(_CLUSTER_MS)
    try:
        tiers = tier_offsets(cluster, places, deadline=deadline)
        if not tiers:
            return
        starts, ends = (offsets_at(cluster, places, at, deadline=deadline) for at in (EARLIEST, LATEST))
    except WireError as error:
        # Whether the topic can be read, the check before this one has said.
        yield replace(failed_check("tiered storage", topic.name, error), result="warn")
        return
    yield Check(name="tiered storage", where=topic.name, result="ok", found=remote_share(tiers, starts, ends))


def _group(cluster: Cluster, group: str) -> Check:
    described = describe_group(cluster, group)
    check = _allowed("group", group, described.operations, {Operation.READ, Operation.DESCRIBE})
    state = "does not exist yet" if described.state == "Dead" else described.state.lower()
    if described.members and check.result == "ok":
        return replace(
            check, result="warn", found=f"{state}, members: {', '.join(described.members)}; {check.found}",
            remedy="While a group has members, a query cannot commit its progress to it: give the query a group of its own.",
        )  # fmt: skip
    return replace(check, found=f"{state}; {check.found}")


def _transaction(cluster: Cluster, name: str) -> Check:
    found = describe_transaction(cluster, name)
    # No request shows whether Write is granted, except those that use the id and would fence its producer.
    state = (
        "not used yet" if found is None else f"{found.state}, producer {found.producer_id} epoch {found.producer_epoch}"
    )
    try:
        describe_transaction(cluster, f"{name}.task.doctor")
    except BrokerError as error:
        if "AUTHORIZATION_FAILED" not in error.info.name:
            raise
        prefixed = _grant("transactional-id", name, {Operation.WRITE, Operation.DESCRIBE})
        return Check(
            name="transactional id", where=name, result="warn",
            found=f"{state}; you may describe it, but not the ids under it ({name}.task.…), which transactions=tasks uses",
            remedy=f"{prefixed} --resource-pattern-type prefixed",
        )  # fmt: skip
    under = "you may describe it, and those under it (transactions=tasks)"
    return Check(name="transactional id", where=name, result="ok", found=f"{state}; {under}")


def _run_check(name: str, where: str, run: Callable[[], Check]) -> Check:
    try:
        return run()
    except UnsupportedVersionError as error:
        return replace(failed_check(name, where, error), result="warn")
    except BrokerError as error:
        kind = {"topic": "topic", "group": "group"}.get(name, "transactional-id")
        refused = "AUTHORIZATION_FAILED" in error.info.name
        check = failed_check(name, where, error)
        return replace(check, remedy=_grant(kind, where, {Operation.DESCRIBE})) if refused else check
    except WireError as error:
        return failed_check(name, where, error)


def _allowed(name: str, where: str, found: frozenset[Operation] | None, wanted: set[Operation]) -> Check:
    if found is None:
        return Check(name=name, where=where, result="ok", found="exists (these brokers do not report your permissions)")
    may = f"you may {', '.join(each.label for each in sorted(found)) or 'do nothing'}"
    missing = wanted - found
    if missing:
        lacking = ", ".join(each.label for each in sorted(missing))
        return Check(
            name=name,
            where=where,
            result="fail",
            found=f"{may}; {lacking} is missing",
            exit_code=REFUSED,
            remedy=_grant(name, where, missing),
        )
    return Check(name=name, where=where, result="ok", found=may)


def _grant(kind: str, name: str, operations: set[Operation]) -> str:
    asked = " ".join(f"--operation {each.label}" for each in sorted(operations))
    return f"Grant the permission: kafka-acls.sh --add --allow-principal User:YOU {asked} --{kind} {name}"


def _indented(head: Text, text: Text) -> Table:
    """``text`` after ``head``, its further lines below its first."""
    line = Table.grid(padding=(0, 1))
    line.add_column(no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(head, text)
    return line


class _Report:
    """Prints each check as soon as it is done; with --json all of them at the end."""

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self._output = output()
        self._console = console()

    def add(self, check: Check) -> None:
        self._checks.append(check)
        if self._output.json:
            return
        mark, colour = _MARKS[check.result]
        found = Text(f"{check.where}  " if check.where else "")
        found.append(printable(check.found))
        found.append(f"  ({check.ms} ms)" if check.ms else "", style="dim")
        self._console.print(
            _indented(Text(mark, style=colour).append(f" {check.name:<16}", style="bold not dim"), found)
        )
        if check.remedy:
            self._console.print(_indented(Text("    →", style=colour), Text(printable(check.remedy), style=colour)))

    def close(self) -> None:
        """The verdict, and the exit code."""
        n_failed = sum(check.result == "fail" for check in self._checks)
        n_warned = sum(check.result == "warn" for check in self._checks)
        if self._output.json:
            self._output.document({"ok": not n_failed, "checks": [check.document() for check in self._checks]})
        elif n_failed:
            click.echo(f"{n_failed} of {counted(len(self._checks), 'check')} failed.")
        else:
            warned = f", with {counted(n_warned, 'warning')}" if n_warned else ""
            click.echo(f"No problem found{warned}.")
        if n_failed:
            sys.exit(self._exit_code())

    def _exit_code(self) -> int:
        """That of the first check that failed; where one of several brokers cannot be reached, and others can, that of a failed
        check."""
        code = next(check.exit_code for check in self._checks if check.result == "fail")
        is_connected = any(check.name == "metadata" and check.result == "ok" for check in self._checks)
        return FAILED if code == UNREACHABLE and is_connected else code
