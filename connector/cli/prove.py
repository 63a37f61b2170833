"""``prove``: whether a table holds each record that a query has read exactly once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.cli.connection import connection_options, kafka_options
from pykafka_wire.cli.ingest import show_proofs
from pykafka_wire.cli.output import absolute
from pykafka_wire.cli.session import session
from pykafka_wire.errors import OptionError


@click.command()
@connection_options
@click.argument("place", metavar="CHECKPOINT")
@click.argument("table")
@click.option("--prefix", help="Before the names of Kafka's columns in the table [default: none, or _kafka_].")
@click.option(
    "--rejects", metavar="TABLE", help="A table of records that did not go into TABLE: topic, partition, offset."
)
@click.option("--ledger", metavar="FOLDER", help="The query's dataLossLedger.")
def prove(place: str, table: str, prefix: str | None, rejects: str | None, ledger: str | None) -> None:
    """Prove that TABLE holds each record that the query of CHECKPOINT has read, exactly once.

    CHECKPOINT is the query's checkpointLocation. TABLE is a name, or the path of a Delta table, with Kafka's columns: partition and
    offset, and topic if the query reads several. The offsets in it are compared with those in the topic, up to the newest committed
    micro-batch. What is lost, doubled or altered is named by partition and offset; the exit code is 1 then.
    """
    from pykafka_wire.checkpoints.files import StoredFiles  # loads pyarrow

    try:
        reference = parse_reference(place, "the checkpoint")
        QueryLog(StoredFiles(reference.path, "the checkpoint"))  # before Spark starts
    except OptionError as error:
        raise click.UsageError(error.message) from error
    table, rejects = _whole_path("TABLE", table), rejects and _whole_path("--rejects", rejects)
    ledger = ledger and absolute(ledger)
    from pykafka_wire.ingest.proof import prove_query

    proofs = prove_query(
        session("prove"), kafka_options(), reference, table, prefix=prefix, rejects=rejects, ledger=ledger
    )
    sys.exit(show_proofs(proofs))


def _whole_path(name: str, table: str) -> str:
    """A table by its name as it is, and a folder by its whole path: Spark's processes have folders of their own.

    Raises:
        click.UsageError: the folder has no Delta table.
    """
    if "/" not in table:
        return table
    path = absolute(table)
    if ":" not in path and not Path(path, "_delta_log").is_dir():
        raise click.UsageError(f"{name} {table}: there is no Delta table in {path}, which has no folder _delta_log.")
    return path
