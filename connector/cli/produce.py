"""``produce``: writes records from a terminal, for inspection and tests. To move data, use Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, cast

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.offsets import partitions_of
from pykafka_wire.cli.output import counted, parse_pair
from pykafka_wire.cli.working import working
from pykafka_wire.wire.errors import WireError

if TYPE_CHECKING:
    from io import BufferedReader


#: The most bytes of lines that are sent together. All are acknowledged before more lines are read.
_BLOCK_BYTES: Final = 1 << 20


@command()
@click.argument("topic")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Each line is a key, this text, and a value.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; may be repeated.")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition [default: by its key, if it has one].")
@click.argument("values", nargs=-1)
def produce(
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    values: tuple[str, ...],
) -> None:
    """Write VALUES to TOPIC, or each line of standard input if there are none.

    The command ends when every record is acknowledged. The topic must exist.
    """
    if key_separator == "":
        raise click.UsageError("-K is empty: give the text between key and value, as in -K :")
    parsed = [(name, os.fsencode(value)) for name, value in (parse_pair("-H", header) for header in headers)]
    with connected() as cluster:
        n_partitions = len(partitions_of(cluster, topic))
        if partition is not None and partition >= n_partitions:
            raise click.UsageError(f"Topic {topic} has {counted(n_partitions, 'partition')}, numbered from 0.")
        from pykafka_wire.wire.record_producer import RecordProducer  # loads pyarrow

        n_records = n_read = 0
        # Lines typed by a person need no progress display.
        meanwhile = nullcontext() if values or sys.stdin.isatty() else working("")
        with meanwhile as progress, RecordProducer(cluster.settings) as producer:
            if progress is not None:
                progress.show(f"writing to {topic}", done=lambda: n_records)
            try:
                for block in _blocks(values):
                    pairs = [_split_key(line, key, key_separator) for line in block]
                    n_whole = pairs.index(None) if None in pairs else len(pairs)
                    n_read += n_whole
                    for own_key, value in filter(None, pairs[:n_whole]):
                        producer.send(topic, value, key=own_key, headers=parsed, partition=partition)
                    for tp, delivered in sorted(producer.flush().items()):
                        if output().json:
                            offsets = {"first_offset": delivered.first_offset, "last_offset": delivered.last_offset}
                            output().document({**tp._asdict(), **offsets, "records": delivered.n_records})
                    n_records = n_read
                    if n_whole < len(block):
                        shown = block[n_whole][:80].decode(errors="backslashreplace")
                        raise click.UsageError(
                            f"Line {n_records + 1} has no {key_separator!r} between key and value: {shown!r}. "
                            f"The {n_records} before it were written to {topic}; this line and later lines were not."
                        )
            except (KeyboardInterrupt, WireError) as error:
                what = "Interrupted" if isinstance(error, KeyboardInterrupt) else "Failed"
                click.echo(
                    f"{what}: {counted(n_records, 'record')} written to {topic}; {n_read - n_records} more were read, and may or "
                    "may not be written.",
                    err=True,
                )
                raise
    output().message(f"{counted(n_records, 'record')} written to {topic}.")


def _blocks(values: tuple[str, ...]) -> Iterator[list[bytes]]:
    """Yield the values, or the lines of standard input in blocks, one block for each read."""
    if values:
        yield [os.fsencode(value) for value in values]
        return
    rest = b""
    stdin = cast("BufferedReader", sys.stdin.buffer)
    while data := stdin.read1(_BLOCK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _split_key(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes] | None:
    """Return the key and value of a line; None if the line has no separator."""
    if separator is not None:
        line_key, mark, value = line.partition(os.fsencode(separator))
        return (line_key, value) if mark else None
    return None if key is None else os.fsencode(key), line
