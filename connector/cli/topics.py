"""``topics``: lists, describes, creates, alters and deletes topics."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click

from pykafka_wire.cli.connection import command, connected, connection_options, output
from pykafka_wire.cli.offsets import offsets_at
from pykafka_wire.cli.output import counted, parse_pair
from pykafka_wire.cli.tiers import REMOTE_STORAGE_ENABLE, remote_share, tier_offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import (
    EARLIEST,
    LATEST,
    alter_topic_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs_of,
)
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.topic_partitions import (
    ZERO_UUID,
    TopicPartition,
    parse_new_topic,
    similar_names,
    topic_id_text,
)

#: Means the brokers' default number of partitions or replication factor (KIP-464, Kafka 2.4).
_BROKERS_DEFAULT: Final = -1


@click.group(invoke_without_command=True)
@connection_options
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
@click.pass_context
def topics(context: click.Context, internal: bool) -> None:
    """List the topics that you may describe. Subcommands describe, create, alter or delete topics.

    The list shows the number of partitions without a leader and of under-replicated partitions, if there are any.
    """
    if context.invoked_subcommand is not None:
        return
    with connected() as cluster:
        rows = [
            {"topic": name, **_summary(topic)}
            for name, topic in sorted(cluster.metadata.topics(None).items())
            if internal or not topic.is_internal
        ]
    output().rows(
        rows,
        empty="There is no topic that you may describe.",
        only_if_set=("without leader", "under-replicated"),
    )


@command("Show a topic's partitions and configs.", group=topics)
@click.argument("topic")
@click.option("--all-configs", is_flag=True, help="Include configs that have the brokers' defaults.")
def describe(topic: str, all_configs: bool) -> None:
    """Show the partitions of TOPIC with their leaders, replicas and offsets, and the configs that are set for it.

    With tiered storage, the command also shows the first local offset, the last offset in the remote store, and the share of
    offsets that are only in the remote store.
    """
    with connected() as cluster:
        described = _existing(cluster, [topic])[topic]
        partitions = [
            TopicPartition(topic, number) for number, partition in described.partitions.items() if partition.leader >= 0
        ]
        earliest, latest = (offsets_at(cluster, partitions, timestamp) for timestamp in (EARLIEST, LATEST))
        configs = [config for config in describe_configs_of(cluster, topic) if config.is_own or all_configs]
        is_tiered = any(config.name == REMOTE_STORAGE_ENABLE and config.value == "true" for config in configs)
        tiers = tier_offsets(cluster, partitions) if is_tiered else {}
    rows = []
    for number, partition in sorted(described.partitions.items()):
        tp = TopicPartition(topic, number)
        rows.append(
            {
                "partition": number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": list(partition.replicas),
                "in sync": list(partition.isr),
                "earliest": earliest.get(tp),
                "latest": latest.get(tp),
                "earliest local": tiers[tp].earliest_local if tp in tiers else None,
                "latest tiered": tiers[tp].latest_tiered if tp in tiers else None,
            }
        )
    if output().json:
        values = {config.name: config.value for config in configs}
        output().document({"topic": topic, **_summary(described), "configs": values, "by_partition": rows})
        return
    click.echo(f"topic {topic}, id {_summary(described)['id'] or '-'}, {counted(len(rows), 'partition')}")
    output().rows(rows, only_if_set=("earliest local", "latest tiered"))
    if tiers:
        click.echo(f"tiered storage: {remote_share(tiers, earliest, latest)}")
    click.echo()
    shown: list[dict[str, Any]] = [{"config": config.name, "value": config.value} for config in configs]
    if all_configs:
        shown = [
            {**row, "set for": "topic" if config.is_own else None} for row, config in zip(shown, configs, strict=True)
        ]
    output().rows(shown, empty="No config is set for this topic.")


@command("Create topics.", group=topics)
@click.argument("names", metavar="TOPIC[:PARTITIONS]…", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="The number of partitions of each TOPIC without its own number [default: the brokers' num.partitions].",
)
@click.option(
    "-r",
    "--replication",
    type=click.IntRange(1),
    help="The number of replicas of each partition [default: the brokers' default.replication.factor].",
)
@click.option("--set", "configs", metavar="NAME=VALUE", multiple=True, help="A config of the topic; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists; it is not changed.")
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create each TOPIC, and wait until it has leaders. If one topic is rejected, the others are still created."""
    try:
        wanted = {text: parse_new_topic(text) for text in names}
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    values = _parse_configs(configs)
    made: list[dict[str, Any]] = []
    with connected() as cluster:

        def create_one(text: str) -> None:
            name, n_partitions = wanted[text]
            size = (n_partitions or partitions or _BROKERS_DEFAULT, replication or _BROKERS_DEFAULT)
            try:
                create_topics(cluster, {name: size}, configs=values, exist_ok=if_not_exists)
            except BrokerError as error:
                unknown = None
                if error.code == ErrorCode.INVALID_CONFIG:
                    unknown = _unknown_config(cluster, next(iter(cluster.metadata.topics(None)), None), values)
                raise unknown or error from error
            summary = _summary(cluster.metadata.topics([name])[name])
            made.append({"topic": name, **summary})
            output().message(f"{name} has {counted(summary['partitions'], 'partition')}.")

        failures = _failures(create_one, names)
    if output().json:
        output().document(made)
    _raise_last(failures)


@command("Add partitions to a topic, or change its configs.", group=topics)
@click.argument("topic")
@click.option("-p", "--partitions", type=click.IntRange(1), help="The new number of partitions; it can only grow.")
@click.option("--set", "configs", metavar="NAME=VALUE", multiple=True, help="Set a config; may be repeated.")
@click.option(
    "--unset",
    "deleted",
    metavar="NAME",
    multiple=True,
    help="Return a config to the brokers' default; may be repeated.",
)
def alter(topic: str, partitions: int | None, configs: tuple[str, ...], deleted: tuple[str, ...]) -> None:
    """Add partitions to TOPIC, or change its configs.

    With more partitions, keys may move to other partitions. A streaming query finds new partitions, and reads them from their first
    record.
    """
    values = _parse_configs(configs)
    if partitions is None and not values and not deleted:
        raise click.UsageError("Nothing to change: give --partitions, --set or --unset.")
    with connected() as cluster:
        before = len(_existing(cluster, [topic])[topic].partitions)
        if partitions is not None and partitions < before:
            raise click.UsageError(f"{topic} has {counted(before, 'partition')}, and partitions cannot be removed.")
        if values or deleted:
            # Brokers report no error when a config that does not exist is deleted.
            if (unknown := _unknown_config(cluster, topic, [*values, *deleted])) is not None:
                raise unknown
            alter_topic_configs(cluster, topic, values=values, delete=deleted)
            output().message(f"Altered {counted(len(values) + len(deleted), 'config')} of {topic}.")
        if partitions is not None and partitions > before:
            create_partitions(cluster, {topic: partitions})
            output().message(f"{topic} has {counted(partitions, 'partition')} now, {partitions - before} of them new.")
        elif partitions is not None:
            output().message(f"{topic} has {counted(before, 'partition')} already.")


@command("Delete topics, with their records.", group=topics)
@click.argument("names", metavar="TOPIC…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete each TOPIC with all its records, after asking for confirmation. If one topic is rejected, the others are still
    deleted."""
    with connected() as cluster:
        existing = _existing(cluster, names)
        if not yes:
            what = f"{counted(len(existing), 'topic')} with all records: {', '.join(existing)}"
            click.confirm(f"Delete {what}?", abort=True, err=True)

        def delete_one(name: str) -> None:
            delete_topics(cluster, [name])
            output().message(f"Deleted {name}.")

        failures = _failures(delete_one, existing)
    _raise_last(failures)


def _failures(act: Callable[[str], None], names: Iterable[str]) -> list[Exception]:
    """Call ``act`` for each topic; return the errors, each text once: an unknown config is unknown for all topics."""
    failures: dict[str, Exception] = {}
    for name in dict.fromkeys(names):
        try:
            act(name)
        except (BrokerError, click.UsageError) as error:
            failures[str(error)] = error
    return list(failures.values())


def _raise_last(failures: Sequence[Exception]) -> None:
    """Print all errors but the last, and raise the last one."""
    for error in failures[:-1]:
        click.echo(f"Error: {error}", err=True)
    if failures:
        raise failures[-1]


def _summary(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "partitions": len(topic.partitions),
        "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        "without leader": sum(p.leader < 0 for p in topic.partitions.values()),
        "under-replicated": sum(len(p.isr) < len(p.replicas) for p in topic.partitions.values()),
        "id": None if topic.topic_id == ZERO_UUID else topic_id_text(topic.topic_id),
    }


def _existing(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return the topics with these names. Raises click.ClickException for a missing topic, with the most similar names."""
    every = cluster.metadata.topics(None)
    for name in names:
        if name not in every:
            near = similar_names(name, every)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.ClickException(f"There is no topic {name} that you may describe.{hint}")
    return {name: every[name] for name in names}


def _parse_configs(configs: Iterable[str]) -> dict[str, str]:
    pairs = (parse_pair("--set", config, "NAME=VALUE, as in --set retention.ms=86400000") for config in configs)
    return {name.strip(): value for name, value in pairs}


def _unknown_config(cluster: Cluster, topic: str | None, names: Iterable[str]) -> click.UsageError | None:
    """Return an error for the first unknown config, with the most similar names. All topics have the same set of configs."""
    known = [] if topic is None else [config.name for config in describe_configs_of(cluster, topic)]
    for name in names if known else ():
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            return click.UsageError(f"Topics have no config {name}.{hint}")
    return None
