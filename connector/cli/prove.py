"""``prove``: whether a table holds each record that a query has read exactly once."""

from __future__ import annotations

import sys

import click

from pykafka_wire.checkpoints.reference import parse_reference
from pykafka_wire.cli.connection import connection_options, kafka_options
from pykafka_wire.cli.ingest import show_proofs
from pykafka_wire.cli.session import session
from pykafka_wire.errors import OptionError


@click.command(short_help="Prove that a table holds each record of a query exactly once.")
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
    from pykafka_wire.ingest.proof import prove_query

    try:
        reference = parse_reference(place, "the checkpoint")
    except OptionError as error:
        raise click.UsageError(error.message) from error
    proofs = prove_query(
        session("prove"), kafka_options(), reference, table, prefix=prefix, rejects=rejects, ledger=ledger
    )
    sys.exit(show_proofs(proofs))
