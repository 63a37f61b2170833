"""``redrive``: writes dead letters back to the topics that rejected them, each exactly once.

The progress is stored in a consumer group for each error. The transaction that writes the records also commits the group's
offsets. So each error can be redriven separately, and a run that was killed continues where it stopped.
:mod:`pykafka_wire.sink.dead_letter_queue` defines the format of a dead letter.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.offsets import offsets_at, partitions_of, ranges_between, require_leaders
from pykafka_wire.cli.output import FAILED, counted
from pykafka_wire.cli.tail import records_of
from pykafka_wire.cli.working import Working, working
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import EARLIEST, LATEST
from pykafka_wire.wire.errors import UnknownTopicError, WireError
from pykafka_wire.wire.groups.committed_offsets import fetch_offsets
from pykafka_wire.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:  # loads NumPy and pyarrow, which --help does not need
    from pykafka_wire.sink.dead_letter_queue import DeadLetter

#: The errors with which brokers reject single records.
_ERRORS: Final = ("MESSAGE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP")

#: Kafka's mark of a record without a timestamp. Clients write no other negative one.
_NO_TIMESTAMP_MS: Final = -1


@command()
@click.argument("dlq", metavar="DLQ")
@click.option(
    "--to", "target", metavar="TOPIC", help="Write them to this topic [default: the topic that rejected each record]."
)
@click.option(
    "--error",
    "errors",
    type=click.Choice(_ERRORS),
    multiple=True,
    help="Only dead letters with this error; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def redrive(dlq: str, target: str | None, errors: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Write the records in DLQ, a deadLetterTopic, to the topics that rejected them: with their own headers and timestamps.

    Each record is written exactly once, by transactions that also commit its offset to the group pykafka-wire.redrive.DLQ.ERROR.
    If the command is interrupted, run it again. Brokers delete that offset after offsets.retention.minutes (7 days by default).
    Dead letters without a value, or with a timestamp before 1970, are not written, and the exit code is 1. Two runs at the same
    time fence each other.
    """
    if target == dlq:
        raise click.UsageError(f"--to {target}: this is the topic that the dead letters are read from.")
    transactional_id = f"pykafka-wire.redrive.{dlq}"
    with connected(isolation_level="read_committed", transactional_id=transactional_id) as cluster:
        source = _Source(cluster, dlq, errors or _ERRORS)
        if target is not None:
            partitions_of(cluster, target)
        if dry_run or not yes:
            counts = Counter(
                (letter and letter.error, target or (letter and letter.topic), _obstacle(record, letter))
                for _, records in source.chunks(source.committed())
                for record, letter in records
            )
            rows = [
                {"error": error, "topic": topic, "records": n_records, "left because": obstacle}
                for (error, topic, obstacle), n_records in sorted(counts.items(), key=str)
            ]
            output().rows(rows, empty=f"{dlq} has no dead letter to write.", only_if_set=("left because",))
            n_records = sum(n for (_, _, obstacle), n in counts.items() if obstacle is None)
            for topic in {str(topic) for (_, topic, obstacle) in counts if obstacle is None}:
                source.n_partitions(topic)
            if dry_run or not n_records:
                if counts:
                    output().message("Dry run: nothing was written." if dry_run else "Nothing was written.")
                sys.exit(FAILED if counts and not dry_run else 0)
            click.confirm(f"Write {counted(n_records, 'record')}?", abort=True, err=True)
        written: Counter[str] = Counter()
        kept: Counter[str] = Counter()
        try:
            with working(f"redriving {dlq}") as progress:
                _write(source, target, written, kept, progress)
        except (KeyboardInterrupt, WireError, click.ClickException):
            click.echo(f"Not all were written: {_summary(written)} so far. Run it again to continue.", err=True)
            raise
    if output().json:
        output().document({"written": dict(written), "left": dict(kept)})
    output().message(f"{_summary(written)}.")
    for obstacle, n_records in kept.items():
        click.echo(f"{counted(n_records, 'record')} left in {dlq}: {obstacle}.", err=True)
    if kept:
        sys.exit(FAILED)


def _summary(written: Counter[str]) -> str:
    return (
        ", ".join(f"{counted(n, 'record')} written to {topic}" for topic, n in written.items()) or "0 records written"
    )


def _obstacle(record: Mapping[str, Any], letter: DeadLetter | None) -> str | None:
    """Return why a record of the dead-letter topic cannot be written; None if it can."""
    if letter is None:
        return "not a dead letter"
    if not letter.has_value:
        return "without its value"
    return "with a timestamp before 1970" if _timestamp_ms(record, letter) < _NO_TIMESTAMP_MS else None


def _timestamp_ms(record: Mapping[str, Any], letter: DeadLetter) -> int:
    timestamp_ms: int = record["timestamp_ms"] if letter.timestamp_ms is None else letter.timestamp_ms
    return timestamp_ms


class _Source:
    """The dead letters to redrive: those with the given errors, up to the current end of the topic."""

    def __init__(self, cluster: Cluster, dlq: str, errors: Sequence[str]) -> None:
        self.cluster = cluster
        self.errors = errors
        self._dlq = dlq
        self.partitions = partitions_of(cluster, dlq)
        require_leaders(cluster, self.partitions)
        self._starts = offsets_at(cluster, self.partitions, EARLIEST)
        self.ends = offsets_at(cluster, self.partitions, LATEST, isolation_level="read_committed")

    def group(self, error: str) -> str:
        """Return the group that stores the progress for this error."""
        return f"pykafka-wire.redrive.{self._dlq}.{error}"

    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the next offset of each partition, by error. Waits until a transaction that is being committed has ended."""
        markers = {}
        for error in self.errors:
            offsets = fetch_offsets(self.cluster, self.group(error), self.partitions, require_stable=True)
            markers[error] = {
                tp: max(start, offsets[tp].offset if tp in offsets else 0) for tp, start in self._starts.items()
            }
        return markers

    def n_partitions(self, topic: str) -> int:
        """Return how many partitions the topic of a dead letter has. Raises click.ClickException if there is no such topic."""
        try:
            return len(partitions_of(self.cluster, topic))
        except UnknownTopicError as error:
            raise click.ClickException(
                f"Dead letters in {self._dlq} are of the topic {topic}, which does not exist or may not be described. They block "
                f"those behind them: create {topic}, or write all dead letters to another topic with --to."
            ) from error

    def n_offsets(self, committed: Mapping[str, Mapping[TopicPartition, int]]) -> int:
        """Return the number of offsets to read."""
        starts = {tp: min(offsets[tp] for offsets in committed.values()) for tp in self.partitions}
        return sum(
            offset_range.end_offset - offset_range.start_offset for offset_range in ranges_between(starts, self.ends)
        )

    def chunks(
        self, committed: Mapping[str, Mapping[TopicPartition, int]]
    ) -> Iterator[tuple[dict[TopicPartition, int], list[tuple[Mapping[str, Any], DeadLetter | None]]]]:
        """Read the topic in pieces; yield for each piece the next position of each partition, and the records, each with its dead
        letter. A record that is no dead letter has None.
        """
        from pykafka_wire.sink.dead_letter_queue import parse_dead_letter
        from pykafka_wire.wire.fetch.range_read import fetch_ranges
        from pykafka_wire.wire.records.decode import Columns

        starts = {tp: min(offsets[tp] for offsets in committed.values()) for tp in self.partitions}
        ranges = ranges_between(starts, self.ends)
        if not ranges:
            return
        for chunk in fetch_ranges(self.cluster, ranges, columns=Columns(headers=True)):
            positions: dict[TopicPartition, int] = {}
            letters: list[tuple[Mapping[str, Any], DeadLetter | None]] = []
            for record in records_of(chunk.ranges, chunk.records):
                tp, letter = TopicPartition(record["topic"], record["partition"]), parse_dead_letter(record["headers"])
                positions[tp] = record["offset"] + 1
                # A record that is no dead letter is reported once, at the lowest position.
                offsets = committed.get(letter.error) if letter is not None else {tp: starts[tp]}
                if offsets is not None and record["offset"] >= offsets[tp]:
                    letters.append((record, letter))
            yield positions, letters


def _write(source: _Source, target: str | None, written: Counter[str], kept: Counter[str], progress: Working) -> None:
    """Write all dead letters; count the written ones by topic, and the others by the reason."""
    from pykafka_wire.wire.transactional_producer import TransactionalProducer

    with TransactionalProducer(source.cluster.settings) as producer:
        with producer.transaction():
            pass  # this ends the transaction of a killed run, and makes its commits final
        committed = source.committed()
        n_offsets = source.n_offsets(committed)
        progress.show("redriving", done=lambda: sum((written + kept).values()), total=n_offsets)
        n_partitions: dict[str, int] = {}
        for positions, letters in chain(source.chunks(committed), [(source.ends, [])]):
            sent: Counter[str] = Counter()
            with producer.transaction() as transaction:
                for record, letter in letters:
                    if letter is None or _obstacle(record, letter) is not None:
                        continue
                    topic = target or letter.topic
                    if topic not in n_partitions:
                        n_partitions[topic] = source.n_partitions(topic)
                    is_back = topic == letter.topic and letter.partition < n_partitions[topic]
                    timestamp_ms = _timestamp_ms(record, letter)
                    transaction.send(
                        topic,
                        record["value"],
                        key=record["key"],
                        headers=letter.headers,
                        partition=letter.partition if is_back else None,
                        timestamp_ms=timestamp_ms if timestamp_ms >= 0 else None,
                    )
                    sent[topic] += 1
                for error, offsets in committed.items():
                    ahead = {tp: position for tp, position in positions.items() if position > offsets[tp]}
                    if ahead:
                        transaction.commit_offsets(source.group(error), ahead)
                        offsets |= ahead
            written += sent
            kept.update(obstacle for each in letters if (obstacle := _obstacle(*each)) is not None)
