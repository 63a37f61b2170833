"""``doctor``: finds connection problems, from the host name to the ACLs. Prints one line for each check, within seconds.

:mod:`pykafka_wire.cli.checks` has the checks of the connection to a broker; this module has those inside the cluster, and the
report.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import click

from pykafka_wire.cli.checks import Check, advertised, check_addresses, fail, failed, identity, run_check, warn
from pykafka_wire.cli.connection import command, output, settings
from pykafka_wire.cli.offsets import offsets_at
from pykafka_wire.cli.output import (
    FAILED,
    REFUSED,
    UNREACHABLE,
    counted,
    exit_code,
    printable,
    width,
)
from pykafka_wire.cli.tiers import remote_share, tier_offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST
from pykafka_wire.wire.cluster.describe import Operation, describe_group, describe_transaction, topic_operations
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import AUTHORIZATION_FAILURES, ErrorCode, error_info
from pykafka_wire.wire.errors import BrokerError, UnsupportedVersionError, WireError
from pykafka_wire.wire.topic_partitions import TopicPartition, similar_names

#: The timeout of each request inside the cluster, including retries.
_CLUSTER_MS: Final = 8_000
_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
_WANTED: Final = {
    "read": {Operation.DESCRIBE, Operation.READ},
    "write": {Operation.DESCRIBE, Operation.WRITE},
    "both": {Operation.DESCRIBE, Operation.READ, Operation.WRITE},
}


@command()
@click.option(
    "--topic", "topics", multiple=True, help="Also check this topic: its leaders and your permissions; may be repeated."
)
@click.option("--for", "purpose", type=click.Choice(list(_WANTED)), default="read", show_default=True,
              help="Which permissions to check on the topics.")  # fmt: skip
@click.option("--group", help="Also check this consumer group.")
@click.option("--transactional-id", help="Also check this transactional id. It is only described, never used.")
def doctor(topics: tuple[str, ...], purpose: str, group: str | None, transactional_id: str | None) -> None:
    """Find the cause of a failed connection: name, TCP, TLS, SASL, API versions, advertised listeners, leaders, ACLs.

    The checks change nothing. If a check fails, the exit code shows the kind of the first problem: see pykafka-wire --help.
    """
    checks: list[Check] = []
    to = output()
    for check in _checks(topics, _WANTED[purpose], group, transactional_id):
        checks.append(check)
        if not to.json:
            _print(check)
    failed = [check for check in checks if check.result == "fail"]
    n_warned = sum(check.result == "warn" for check in checks)
    if to.json:
        to.document({"ok": not failed, "checks": [check.document() for check in checks]})
    elif failed:
        click.echo(f"{len(failed)} of {counted(len(checks), 'check')} failed.")
    else:
        warned = f", with {counted(n_warned, 'warning')}" if n_warned else ""
        click.echo(f"No problem found{warned}.")
    if failed:
        # If only some brokers cannot be reached, the exit code is not UNREACHABLE.
        is_connected = any(check.name == "metadata" and check.result == "ok" for check in checks)
        sys.exit(FAILED if failed[0].exit_code == UNREACHABLE and is_connected else failed[0].exit_code)


def _checks(
    topics: tuple[str, ...], wanted: set[Operation], group: str | None, transaction: str | None
) -> Iterator[Check]:
    chosen = settings()
    # A temporary failure must not delay the command for a minute.
    quick = replace(chosen, default_api_timeout_ms=_CLUSTER_MS, request_timeout_ms=_CLUSTER_MS)
    for warning in chosen.warnings():
        yield replace(warn(warning), name="settings")
    if quick.uses_sasl:
        yield run_check("identity", "", lambda: identity(quick))
    steps = check_addresses(quick, quick.bootstrap_servers)
    for step in steps:
        yield from step
    if all(step[-1].result == "fail" for step in steps):
        return
    with Cluster(quick) as cluster:
        try:
            every = cluster.metadata.topics(None)
            nodes = list(cluster.metadata.brokers().values())
        except WireError as error:
            yield replace(failed(error), name="metadata")
            return
        text = f"{counted(len(nodes), 'broker')}; you may describe {counted(len(every), 'topic')}"
        yield Check(text, name="metadata")
        yield from advertised(quick, nodes)
        # Check leaders first: the requests below wait for unreachable brokers.
        yield run_check("leaders", "", lambda: _leaders([every[name] for name in topics or every if name in every]))
        for topic in topics:
            yield _check_permission("topic", topic, partial(_topic, cluster, topic, wanted, every))
            if topic in every:
                yield from _tiers(cluster, every[topic])
        if group is not None:
            yield _check_permission("group", group, lambda: _group(cluster, group))
        if transaction is not None:
            yield _check_permission("transactional id", transaction, lambda: _transaction(cluster, transaction))


def _leaders(topics: Iterable[TopicMetadata]) -> Check:
    places = [(TopicPartition(topic.name, number), p) for topic in topics for number, p in topic.partitions.items()]
    without_leader = [str(tp) for tp, p in places if p.leader < 0]
    behind = [str(tp) for tp, p in places if len(p.isr) < len(p.replicas)]
    if without_leader:
        remedy = "The replicas of these partitions are offline: start their brokers."
        return fail(f"no leader: {_first_names(without_leader)}", remedy)
    if behind:
        remedy = "A broker is down or slow: with acks=all writes wait for it, or fail below min.insync.replicas."
        return warn(f"replicas out of sync: {_first_names(behind)}", remedy)
    if not places:
        return Check("no partitions to check")
    state = "with a leader, in sync" if len(places) == 1 else "each with a leader, all in sync"
    return Check(f"{counted(len(places), 'partition')}, {state}")


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _topic(cluster: Cluster, topic: str, wanted: set[Operation], all_topics: Collection[str]) -> Check:
    operations = topic_operations(cluster, [topic], deadline=Deadline.after_ms(_CLUSTER_MS))[topic]
    if operations in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        near = similar_names(topic, all_topics)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        remedy = f"{meant}Check its name (pykafka-wire topics). {_grant('topic', topic, wanted)}"
        code = FAILED if operations == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else REFUSED
        return fail("does not exist, or you may not describe it", remedy, code)
    return (
        fail(error_info(operations).name, "")
        if isinstance(operations, int)
        else _judge_permissions("topic", topic, operations, wanted)
    )


def _tiers(cluster: Cluster, topic: TopicMetadata) -> Iterator[Check]:
    places = [
        TopicPartition(topic.name, number) for number, partition in topic.partitions.items() if partition.leader >= 0
    ]
    deadline = Deadline.after_ms(_CLUSTER_MS)
    try:
        tiers = tier_offsets(cluster, places, deadline=deadline)
        if not tiers:
            return
        starts, ends = (offsets_at(cluster, places, position, deadline=deadline) for position in (EARLIEST, LATEST))
        check = Check(remote_share(tiers, starts, ends))
    except WireError as error:
        # The previous check has already said whether the topic can be read.
        check = warn(error.message, error.shown_remedy)
    yield replace(check, name="tiered storage", where=topic.name)


def _group(cluster: Cluster, group: str) -> Check:
    described = describe_group(cluster, group)
    check = _judge_permissions("group", group, described.operations, {Operation.READ, Operation.DESCRIBE})
    state = "does not exist yet" if described.state == "Dead" else described.state.lower()
    if described.members and check.result == "ok":
        remedy = "While a group has members, a query cannot commit its progress to the group: use another group for the query."
        return warn(f"{state}, members: {', '.join(described.members)}; {check.found}", remedy)
    return replace(check, found=f"{state}; {check.found}")


def _transaction(cluster: Cluster, name: str) -> Check:
    described = describe_transaction(cluster, name)
    state = (
        "not used yet"
        if described is None
        else f"{described.state}, producer {described.producer_id} epoch {described.producer_epoch}"
    )
    # Only requests that use the id show whether Write is granted, and they would fence its producer.
    try:
        describe_transaction(cluster, f"{name}.task.doctor")
    except BrokerError as error:
        if error.code not in AUTHORIZATION_FAILURES:
            raise
        return warn(
            f"{state}; you may describe it, but not the ids under it ({name}.task.…), which transactions=tasks uses",
            _grant("transactional-id", name, {Operation.WRITE, Operation.DESCRIBE})
            + " --resource-pattern-type prefixed",
        )
    return Check(f"{state}; you may describe it, and those under it (transactions=tasks)")


def _check_permission(name: str, where: str, look: Callable[[], Check]) -> Check:
    """Run a check of an object that has permissions."""

    def run() -> Check:
        try:
            return look()
        except UnsupportedVersionError as error:
            return warn(error.message, error.shown_remedy)
        except BrokerError as error:
            if error.code not in AUTHORIZATION_FAILURES:
                raise
            remedy = _grant(name.replace(" ", "-"), where, {Operation.DESCRIBE})
            return fail(error.message, remedy, exit_code(error))

    return run_check(name, where, run)


def _judge_permissions(kind: str, name: str, allowed: frozenset[Operation] | None, wanted: set[Operation]) -> Check:
    if allowed is None:
        return Check("exists (these brokers do not report your permissions)")
    may = f"you may {_labels(allowed) or 'do nothing'}"
    missing = wanted - allowed
    return (
        fail(f"{may}; {_labels(missing)} is missing", _grant(kind, name, missing), REFUSED) if missing else Check(may)
    )


def _labels(operations: Collection[Operation]) -> str:
    return ", ".join(operation.label for operation in sorted(operations))


def _grant(kind: str, name: str, operations: set[Operation]) -> str:
    asked = " ".join(f"--operation {operation.label}" for operation in sorted(operations))
    return f"Grant the permission: kafka-acls.sh --add --allow-principal User:YOU {asked} --{kind} {name}"


def _print(check: Check) -> None:
    mark, colour = _MARKS[check.result]
    spent = f"  ({check.ms} ms)" if check.ms else ""
    head = f"{click.style(mark, fg=colour)} {click.style(f'{check.name:<16}', bold=True)} "
    shown = _indented(f"{check.where}  {check.found}" if check.where else check.found, spent)
    if spent and shown.endswith(spent.strip()):
        shown = shown.removesuffix(spent.strip()) + click.style(spent.strip(), dim=True)
    click.echo(head + shown)
    if check.remedy:
        click.echo(f"    {click.style('→', fg=colour)} {click.style(_indented(check.remedy, n_columns=6), fg=colour)}")


def _indented(text: str, end: str = "", n_columns: int = 19) -> str:
    """Return a text wrapped for printing after ``n_columns`` columns, with its further lines aligned."""
    lines = textwrap.wrap(printable(text) + end, max(20, width() - n_columns), break_on_hyphens=False)
    return f"\n{' ' * n_columns}".join(lines)
