"""``schema``: infers the type of a topic's JSON values from its last records, for the option ``valueSchema``."""

from __future__ import annotations

import click

from pykafka_wire.cli.connection import command, connected, output
from pykafka_wire.cli.offsets import offsets_at, partitions_of, ranges_between, resolve_position
from pykafka_wire.cli.output import counted
from pykafka_wire.errors import MissingLibraryError, OptionError
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST


@command()
@click.option("-t", "--topic", required=True, help="The topic whose values are read.")
@click.option("--keys", is_flag=True, help="Infer the type of the keys, not of the values.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="How many of the last records of each partition to read.",
)
@click.option("--widen", metavar="DDL", help="A type to start from. It only gets new fields and wider numbers.")
def schema(topic: str, keys: bool, last: int, widen: str | None) -> None:
    """Print the type of TOPIC's JSON values as Spark DDL, for valueSchema. It is inferred from the last records, as in ingest.

    Needs pyspark, but does not start Spark. Values that are not JSON are skipped.
    """
    try:
        from pykafka_wire.columns.spark_schema import spark_type
        from pykafka_wire.ingest.records.json.columns import inferred
        from pykafka_wire.ingest.spark.sql import column_ddl
        from pykafka_wire.values.ddl import DdlError, arrow_type
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"pykafka-wire schema needs the module {error.name}: pip install 'pykafka-wire[spark]'."
        ) from error
    try:
        held = None if widen is None else spark_type(arrow_type(widen))
    except DdlError as error:
        raise OptionError(f"--widen is {widen!r}: {error}.") from error
    with connected() as cluster:
        values = _last(cluster, topic, last, "key" if keys else "value")
    data_type = inferred(values, held)
    what = counted(len(values), "key" if keys else "value")
    if data_type is None:
        raise click.ClickException(f"No type was found: none of {what} of {topic} is a JSON object, array or scalar.")
    ddl = column_ddl(data_type)
    if output().json:
        output().document({"topic": topic, "column": "key" if keys else "value", "records": len(values), "schema": ddl})
    else:
        click.echo(ddl)
        click.echo(f"Inferred from the last {what} of {topic}.", err=True)


def _last(cluster: Cluster, topic: str, last: int, column: str) -> list[bytes]:
    """Return the keys or values of the last records of each partition, without nulls."""
    from pykafka_wire.wire.fetch.range_read import fetch_ranges
    from pykafka_wire.wire.records.decode import Columns

    partitions = partitions_of(cluster, topic)
    starts = resolve_position(cluster, partitions, ("shift", -last))
    ends = offsets_at(cluster, partitions, LATEST, isolation_level=cluster.settings.isolation_level)
    ranges = ranges_between(starts, ends)
    values: list[bytes] = []
    for chunk in fetch_ranges(cluster, ranges, columns=Columns(**{column: True})) if ranges else ():
        values += [text for text in getattr(chunk.records, column).to_pylist() if text is not None]
    return values
