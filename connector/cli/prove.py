"""``prove``: whether a table holds each record of its topics exactly once, a query's table or any program's."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.cli.connection import connection_options, kafka_options
from pykafka_wire.cli.ingest import show_proofs
from pykafka_wire.cli.output import absolute
from pykafka_wire.cli.session import session
from pykafka_wire.cli.working import working
from pykafka_wire.errors import OptionError

if TYPE_CHECKING:  # loads Spark
    from pyspark.sql import SparkSession

    from pykafka_wire.checkpoints.tables import KafkaColumns


@click.command()
@connection_options
@click.argument("places", metavar="[CHECKPOINT] TABLE", nargs=-1, required=True)
@click.option("--prefix", help="Before the names of Kafka's columns in the table [default: none, or _kafka_].")
@click.option(
    "--columns",
    metavar="NAME=COLUMN,…",
    help="Columns that have Kafka's topic, partition, offset or timestamp: offset=meta.offset,partition=meta.partition.",
)
@click.option("--topic", help="Without a checkpoint: the topic to compare, or the one that all rows are of.")
@click.option(
    "--whole", "is_whole", is_flag=True, help="Without a checkpoint: the table should begin where its topics do."
)
@click.option(
    "--rejects", metavar="TABLE", help="A table of records that did not go into TABLE: topic, partition, offset."
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

    With CHECKPOINT, the checkpointLocation of a streaming query, the table is compared with what the query has read, up
    to its newest committed micro-batch. Without, with what its topics have between the table's lowest and highest
    offset of each partition: the table may be any program's. TABLE is a name, or the path of a Delta or Iceberg table,
    with columns for Kafka's partition and offset, and for the topic if there are several. What is lost, doubled or
    altered is named by partition and offset; the exit code is 1 then.
    """
    from pykafka_wire.checkpoints.files import StoredFiles  # loads pyarrow

    if len(places) > 2:
        raise click.UsageError("give TABLE, or CHECKPOINT and TABLE.")
    table, rejects = _whole_path("TABLE", places[-1]), rejects and _whole_path("--rejects", rejects)
    names = _column_names(columns)
    if len(places) == 1:
        if ledger is not None:
            raise click.UsageError("--ledger is a query's: give its CHECKPOINT, too.")
        sys.exit(_prove_table(table, names, prefix=prefix, topic=topic, is_whole=is_whole, rejects=rejects))
    if topic is not None or is_whole:
        raise click.UsageError("a checkpoint says which topics were read from where: leave out --topic and --whole.")
    try:
        reference = parse_reference(places[0], "the checkpoint")
        QueryLog(StoredFiles(reference.path, "the checkpoint"))  # before Spark starts
    except OptionError as error:
        raise click.UsageError(error.message) from error
    from pykafka_wire.ingest.proof import prove_query

    with working("starting Spark", with_spark=True) as progress:
        spark = session("prove")
        with _columns_of(spark, table, names, prefix) as held:
            proofs = prove_query(
                spark, kafka_options(), reference, held, rejects=rejects, ledger=ledger and absolute(ledger)
            )
            code = show_proofs(spark, proofs, progress)
    sys.exit(code)


def _prove_table(
    table: str, names: dict[str, str], *, prefix: str | None, topic: str | None, is_whole: bool, rejects: str | None
) -> int:
    from pykafka_wire.ingest.proof import prove_table

    with working("starting Spark", with_spark=True) as progress:
        spark = session("prove")
        with _columns_of(spark, table, names, prefix) as held:
            proofs = prove_table(spark, kafka_options(), held, topic=topic, is_whole=is_whole, rejects=rejects)
            return show_proofs(spark, proofs, progress)


@contextlib.contextmanager
def _columns_of(spark: SparkSession, table: str, names: dict[str, str], prefix: str | None) -> Iterator[KafkaColumns]:
    """Yield Kafka's columns of a table; those of an Iceberg table by its path are copied to a file of this machine for a while."""
    from pykafka_wire.checkpoints.iceberg_tables import copy_columns, is_iceberg
    from pykafka_wire.checkpoints.tables import KafkaColumns, table_at
    from pykafka_wire.ingest.proof import check_whole, properties_of

    if "/" not in table or not is_iceberg(table):
        held = KafkaColumns.of(table_at(spark, table), table, prefix, names)
        check_whole(table, properties_of(spark, table))
        yield held
        return
    with tempfile.TemporaryDirectory(prefix="pykafka-wire-") as folder:
        file = Path(folder, "columns.parquet")
        properties = copy_columns(table, sorted({name.split(".")[0] for name in names.values()}) or None, file)
        check_whole(table, properties)
        yield KafkaColumns.of(spark.read.parquet(file.as_uri()), table, prefix, names)


def _column_names(text: str | None) -> dict[str, str]:
    names = dict(part.strip().partition("=")[::2] for part in (text or "").split(",") if part.strip())
    if unknown := sorted(names.keys() - {"topic", "partition", "offset", "timestamp"}):
        raise click.UsageError(
            f"--columns names {', '.join(unknown)}: write topic=…, partition=…, offset=… or timestamp=…, with a comma between."
        )
    return names


def _whole_path(name: str, table: str) -> str:
    """Return a table by its name as it is, and a folder by its whole path: Spark's processes have folders of their own.

    Raises:
        click.UsageError: the folder has neither a Delta nor an Iceberg table.
    """
    if "/" not in table:
        return table
    from pykafka_wire.checkpoints.iceberg_tables import is_iceberg

    path = absolute(table)
    if ":" not in path and not Path(path, "_delta_log").is_dir() and not is_iceberg(path):
        raise click.UsageError(
            f"{name} {table}: there is no table in {path}, which has no folder _delta_log (Delta) and no metadata (Iceberg)."
        )
    return path
