"""``checkpoint``: the micro-batches and offsets in a query's checkpoint, this package's or the JVM connector's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from pykafka_wire.checkpoints.positions import position_at, ranges_of
from pykafka_wire.checkpoints.query_log import LoggedMicroBatch, QueryLog
from pykafka_wire.checkpoints.reference import CheckpointReference, parse_reference
from pykafka_wire.cli.connection import command, connected, named_brokers, output
from pykafka_wire.cli.offsets import LogEnds, explain, find_ends
from pykafka_wire.cli.output import format_timestamp
from pykafka_wire.errors import OffsetsError, OptionError
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition

_ARGUMENT = "the checkpoint"


@command()
@click.argument("place", metavar="PATH[#N]")
@click.option(
    "-n", "--last", type=click.IntRange(0), default=10, show_default=True, help="How many micro-batches to list."
)
@click.option(
    "--diff", "other", metavar="PLACE", help="Compare with another micro-batch, #N, or with another checkpoint."
)
@click.option("--offline", is_flag=True, help="Do not connect to brokers; show no lag.")
def checkpoint(place: str, last: int, other: str | None, offline: bool) -> None:
    """Show the micro-batches in a query's checkpoint, and the offsets at the end of the newest committed one, or of micro-batch N.

    PATH is a query's checkpointLocation, of pykafka-wire or of Spark's own connector: a local folder, or a URI that pyarrow
    supports. If brokers are named, the lag is shown, too.
    """
    reference, log = _open(place)
    if other is not None:
        _diff(log, reference, other)
        return
    shown = _batch_shown(log, reference)
    ends = _find_ends(shown) if named_brokers() and not offline and shown is not None else None
    sources = [] if shown is None else [_source(shown, name, ends) for name in _names(shown, reference)]
    listed = log.planned[-last:] if last else []
    batches = [_batch(log, log.micro_batch(batch_id)) for batch_id in listed]
    if output().json:
        number = None if shown is None else shown.batch_id
        document = {"checkpoint": log.shown, "query": log.query_id(), "micro_batches": batches, "micro_batch": number}
        output().document(document | {"sources": sources})
        return
    n = len(log.planned)
    planned = f"{n} micro-batch{'' if n == 1 else 'es'}"
    click.echo(f"query {log.query_id() or 'unknown'}, {planned}, {len(log.committed)} committed")
    if batches:
        click.echo()
        output().rows(batches, only_if_wide=("committed at",))
    if shown is None and log.planned:
        click.echo(
            f"No micro-batch is committed. {reference.with_fragment(log.planned[-1])} shows the offsets of the planned one."
        )
    for source in sources:
        _print_source(source, shown, {} if ends is None else ends.unknown)


def _open(place: str) -> tuple[CheckpointReference, QueryLog]:
    from pykafka_wire.checkpoints.files import StoredFiles  # loads pyarrow

    try:
        reference = parse_reference(place, _ARGUMENT)
        return reference, QueryLog(StoredFiles(reference.path, _ARGUMENT))
    except OptionError as error:
        raise click.UsageError(error.message) from error


def _batch_shown(log: QueryLog, reference: CheckpointReference) -> LoggedMicroBatch | None:
    """Return the micro-batch whose offsets are shown; None if none is committed and none is named."""
    if reference.batch_id is not None:
        return log.micro_batch(reference.batch_id)
    return log.micro_batch(log.committed[-1]) if log.committed else None


def _names(batch: LoggedMicroBatch, reference: CheckpointReference) -> list[str]:
    if reference.source is None:
        return list(batch.sources)
    if reference.source not in batch.sources:
        raise click.UsageError(f"The checkpoint has no source {reference.source}: it has {', '.join(batch.sources)}.")
    return [reference.source]


def _batch(log: QueryLog, batch: LoggedMicroBatch) -> dict[str, Any]:
    took = None
    if batch.planned_ms is not None and batch.committed_ms is not None:
        took = round(max(0, batch.committed_ms - batch.planned_ms) / 1000, 1)
    return {
        "micro-batch": batch.batch_id,
        "state": "committed" if batch.is_committed else "planned",
        "planned at": format_timestamp(batch.planned_ms),
        "committed at": format_timestamp(batch.committed_ms),
        "seconds": took,
        "offsets": _n_offsets(log, batch),
    }


def _n_offsets(log: QueryLog, batch: LoggedMicroBatch) -> int | None:
    """Return the number of offsets that a micro-batch has read from all sources; None if the log has lost the previous
    micro-batch."""
    total = 0
    for name, source in batch.sources.items():
        if source.offsets is None:
            continue
        reference = CheckpointReference(path=log.shown, batch_id=batch.batch_id, source=name)
        try:
            total += sum(r.n_offsets for r in ranges_of(log, reference, lambda _: True))
        except OffsetsError:
            return None
    return total


def _find_ends(batch: LoggedMicroBatch) -> LogEnds:
    """Return the end of the log for each partition of a micro-batch, except for topics that were recreated since."""
    sources = [source.offsets for source in batch.sources.values() if source.offsets is not None]
    with connected() as cluster:
        ends = find_ends(cluster, {tp for offsets in sources for tp in offsets.offsets})
        now = {topic: cluster.metadata.topic_id(topic) for topic in {tp.topic for tp in ends.offsets}}
    recreated = {
        tp: "recreated"
        for offsets in sources
        for tp in offsets.offsets.keys() & ends.offsets.keys()
        if ZERO_UUID not in (now[tp.topic], before := offsets.topic_ids.get(tp.topic, ZERO_UUID))
        and now[tp.topic] != before
    }
    return LogEnds(
        offsets={tp: end for tp, end in ends.offsets.items() if tp not in recreated},
        unknown={**ends.unknown, **recreated},
    )


def _source(batch: LoggedMicroBatch, name: str, ends: LogEnds | None) -> dict[str, Any]:
    source = batch.sources[name]
    offsets = source.offsets
    rows: list[dict[str, Any]] = []
    for tp, offset in sorted(offsets.offsets.items()) if offsets is not None else ():
        row: dict[str, Any] = {**tp._asdict(), "offset": offset}
        if ends is not None:
            end = ends.offsets.get(tp)
            row |= {"latest": end, "lag": None if end is None else max(0, end - offset)}
        rows.append(row)
    return {
        "source": name,
        "connector": source.connector,
        "group": (offsets.group or None) if offsets is not None else None,
        "partitions": rows,
    }


def _print_source(
    source: dict[str, Any], batch: LoggedMicroBatch | None, unknown: Mapping[TopicPartition, str]
) -> None:
    click.echo()
    group = f", group {source['group']}" if source["group"] else ""
    moment = "" if batch is None else f" at the end of micro-batch {batch.batch_id}"
    rows = source["partitions"]
    title = f"source {source['source']} ({source['connector']}{group}){moment}"
    if not rows:
        click.echo(f"{title}: no offset of a topic")
        return
    click.echo(title)
    output().rows(rows)
    lags = [row["lag"] for row in rows if "lag" in row]
    if lags:
        here = {TopicPartition(row["topic"], row["partition"]) for row in rows}
        reasons = explain({tp: reason for tp, reason in unknown.items() if tp in here})
        click.echo(f"lag {sum(lag or 0 for lag in lags)}" + (f", unknown for {', '.join(reasons)}" if reasons else ""))


def _diff(log: QueryLog, reference: CheckpointReference, other: str) -> None:
    """Show the offsets of two places, and the number of offsets in between."""
    to, to_log = _open(reference.path + other if other.startswith("#") else other)
    first = position_at(log, reference, lambda _: True).offsets.offsets
    second = position_at(to_log, to, lambda _: True).offsets.offsets
    rows = [
        {
            **tp._asdict(),
            "from": first.get(tp),
            "to": second.get(tp),
            "offsets": second[tp] - first[tp] if tp in first and tp in second else None,
        }
        for tp in sorted(first.keys() | second.keys())
        if first.get(tp) != second.get(tp)
    ]
    output().rows(rows, empty="Both have the same offsets.")
