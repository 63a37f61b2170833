"""``prove``: checks whether a table holds each record of its topics exactly once, for a query's table or any other."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.cli.connection import connection_options, kafka_options
from pykafka_wire.cli.ingest import print_outcome, show_proofs
from pykafka_wire.cli.output import absolute
from pykafka_wire.cli.session import session
from pykafka_wire.cli.working import working
from pykafka_wire.errors import OptionError

if TYPE_CHECKING:  # loads Spark
    from pykafka_wire.checkpoints.reference import CheckpointReference
    from pykafka_wire.checkpoints.tables import KafkaColumns


@click.command()
@connection_options
@click.argument("places", metavar="[CHECKPOINT] TABLE", nargs=-1, required=True)
@click.option("--prefix", help="The prefix of Kafka's columns in the table [default: none, or _kafka_].")
@click.option(
    "--columns",
    metavar="NAME=COLUMN,…",
    help="The columns with Kafka's topic, partition, offset or timestamp: offset=meta.offset,partition=meta.partition.",
)
@click.option("--topic", help="Without a checkpoint: the topic to compare, or the topic of all rows.")
@click.option(
    "--whole",
    "is_whole",
    is_flag=True,
    help="Without a checkpoint: require that the table begins where its topics begin.",
)
@click.option(
    "--rejects", metavar="TABLE", help="A table of records that are not in TABLE, with topic, partition and offset."
)
@click.option("--ledger", metavar="FOLDER", help="The query's dataLossLedger.")
def prove(
    places: tuple[str, ...],
    prefix: str | None,
    columns: str | None,
    topic: str | None,
    is_whole: bool,
    rejects: str | None,
    ledger: str | None,
) -> None:
    """Prove that TABLE holds each record of its topics exactly once.

    With CHECKPOINT, the checkpointLocation of a streaming query, the table is compared with everything that the query has
    read, up to its newest committed micro-batch. Without CHECKPOINT, the table may come from any program: it is compared
    with its topics, from the lowest to the highest offset of each partition in the table. The table of an ingest is always
    compared with its own topic, up to the table's own position. TABLE is a name, or the path of a Delta or Iceberg table,
    with columns for Kafka's partition and offset, and for the topic if there are several topics. Lost, doubled and altered
    records are listed by partition and offset; the exit code is then 1.
    """
    if len(places) > 2:
        raise click.UsageError("give TABLE, or CHECKPOINT and TABLE.")
    table, rejects = _absolute_table("TABLE", places[-1]), rejects and _absolute_table("--rejects", rejects)
    names = _column_names(columns)
    query = None if len(places) == 1 else _query_at(places[0])
    if query is None and ledger is not None:
        raise click.UsageError("--ledger belongs to a query: give its CHECKPOINT as well.")
    if query is not None and (topic is not None or is_whole):
        raise click.UsageError(
            "a checkpoint shows which topics were read and from where: leave out --topic and --whole."
        )
    from pykafka_wire.ingest.proof import proof
    from pykafka_wire.ingest.proof.small_tables import proof_of_small_table
    from pykafka_wire.ingest.proof.stored import open_stored, rejects_beside

    if len(places) == 1 and not (names or topic or is_whole or rejects):
        with working("comparing the table with its topic"):
            proved = proof_of_small_table(table, kafka_options(), prefix)
        if proved is not None:
            print_outcome(proved)
            return
    with working("starting Spark", with_spark=True) as progress, contextlib.ExitStack() as tables:
        spark, options = session("prove"), kafka_options()
        stored = tables.enter_context(open_stored(spark, table, names, prefix))
        part = stored.landed_range()
        if query is not None:
            stored.check_query(query.id, query.reference.path)
        of_rejects: KafkaColumns | None = None
        if rejects is None and part is not None:
            rejects = rejects_beside(spark, table, stored)
        if rejects is not None:
            of_rejects = tables.enter_context(open_stored(spark, rejects, {}, None)).columns
        ledger = ledger and absolute(ledger)
        if part is not None and not is_whole and topic in (None, part.topic):
            proofs = iter([proof.prove_landed(spark, options, stored, part, rejects=of_rejects, ledger=ledger)])
        elif query is not None:
            proofs = proof.prove_query(
                spark, options, query.reference, stored.columns, rejects=of_rejects, ledger=ledger
            )
        else:
            proofs = proof.prove_table(
                spark, options, stored.columns, topic=topic, is_whole=is_whole, rejects=of_rejects
            )
        code = show_proofs(spark, proofs, progress)
    sys.exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """A streaming query, by its checkpoint; ``id`` is Spark's query id, None if the checkpoint has none."""

    reference: CheckpointReference
    id: str | None


def _query_at(place: str) -> _Query:
    """Return the query whose checkpoint is at a place. Runs before Spark starts."""
    from pykafka_wire.checkpoints.files import StoredFiles  # loads pyarrow

    try:
        reference = parse_reference(place, "the checkpoint")
        return _Query(reference=reference, id=QueryLog(StoredFiles(reference.path, "the checkpoint")).query_id())
    except OptionError as error:
        raise click.UsageError(error.message) from error


def _column_names(text: str | None) -> dict[str, str]:
    names = dict(part.strip().partition("=")[::2] for part in (text or "").split(",") if part.strip())
    if unknown := sorted(names.keys() - {"topic", "partition", "offset", "timestamp"}):
        raise click.UsageError(
            f"--columns names {', '.join(unknown)}: write topic=…, partition=…, offset=… or timestamp=…, separated by commas."
        )
    return names


def _absolute_table(name: str, table: str) -> str:
    """Return a table's name unchanged, or a folder's absolute path: Spark's processes may have another working directory.

    Raises:
        click.UsageError: the folder has no table of any format.
    """
    if "/" not in table:
        return table
    from pykafka_wire.ingest.tables.formats import every_format, format_at

    path = absolute(table)
    if format_at(path) is None:
        lacking = " and ".join(sorted(f"no {each.placed.trace}" for each in every_format()))
        raise click.UsageError(f"{name} {table}: there is no table in {path}, which has {lacking}.")
    return path
