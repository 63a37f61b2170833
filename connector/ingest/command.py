"""The command ``pykafka-wire ingest``, which is ``python -m pykafka_wire.ingest`` as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings import Settings, make_settings, read_settings

if TYPE_CHECKING:  # loads Spark, which no other command needs
    from pyspark.sql import SparkSession

    from pykafka_wire.ingest.ingest import Ingest
    from pykafka_wire.ingest.proof import Proof

#: Exit code where something is to be looked at: a stopped table, a difference.
_NOT_WELL: Final = 1


@click.command(short_help="Land topics in tables: one query, each topic its own Delta table.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-b", "--bootstrap", metavar="HOST:PORT,…", envvar="PYKAFKA_WIRE_BOOTSTRAP", help="Brokers.")
@click.option("--topics", metavar="REGEX", help="Topics to land: a regular expression that matches the whole name.")
@click.option("--registry", metavar="URL", help="The schema registry, which has the formats of the topics.")
@click.option(
    "--format", "value_format", metavar="NAME", help="The format of topics without a registry: json, string or binary."
)
@click.option("--into", metavar="PLACE", help="A folder, or SCHEMA or CATALOG.SCHEMA.")
@click.option(
    "--checkpoint", metavar="FOLDER", help="Spark's checkpoint [default: _checkpoint in the folder of --into]."
)
@click.option(
    "--from", "starting_offsets", type=click.Choice(("earliest", "latest")), help="Where a first start begins."
)
@click.option("--once", is_flag=True, help="End when all is landed that is there now.")
@click.option("--every", metavar="INTERVAL", default="10 seconds", show_default=True, help="Between two micro-batches.")
@click.option(
    "--metrics-port", type=int, metavar="PORT", help="Serve metrics to Prometheus at this port, while the ingest runs."
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what would be done with each topic, and end.")
@click.option("--verify", "is_verify", is_flag=True, help="Compare each table with its topic, and end.")
@click.option(
    "--replay-rejects", "is_replay", is_flag=True, help="Read the rejects again, while no ingest runs, and end."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: one document, or a line for each state of a running ingest."
)
def ingest(
    file: Path | None,
    once: bool,
    every: str,
    metrics_port: int | None,
    is_plan: bool,
    is_verify: bool,
    is_replay: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Land topics in tables: one Spark query, each topic its own Delta table, typed, and kept right while schemas change.

    FILE is a TOML file with all settings; options take the place of what it has at its top level. Ctrl-C ends the ingest after the
    running micro-batch.
    """
    from pykafka_wire.ingest.ingest import Ingest

    if sum((is_plan, is_verify, is_replay)) > 1:
        raise click.UsageError("give one of --plan, --verify and --replay-rejects.")
    run = Ingest(_settings(file, given))
    if is_plan:
        sys.exit(_plan(run, as_json))
    spark = session()
    if is_verify:
        sys.exit(_verify(spark, run, as_json))
    if is_replay:
        _replay(spark, run, as_json)
    else:
        sys.exit(_run(spark, run, once=once, every=every, metrics_port=metrics_port, as_json=as_json))


def _settings(file: Path | None, given: dict[str, Any]) -> Settings:
    top = {
        name: given[name] for name in ("topics", "registry", "into", "checkpoint", "starting_offsets") if given[name]
    }
    if given["bootstrap"]:
        top["kafka"] = {"bootstrap.servers": given["bootstrap"]}
    if given["value_format"]:
        top["defaults"] = {"format": given["value_format"]}
    if file is not None:
        return read_settings(file, top)
    into = top.get("into", "")
    if "checkpoint" not in top and ("/" in into or ":" in into):
        top["checkpoint"] = f"{into.rstrip('/')}/_checkpoint"
    return make_settings(top)


def session() -> SparkSession:
    """The platform's Spark session, or one on this machine, with Delta."""
    import os

    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = (
        SparkSession.builder.appName("pykafka-wire ingest")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    if (
        not {"SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION"}
        & os.environ.keys()
    ):
        from pykafka_wire.local import delta_jars, ensure_java, export_java_home

        export_java_home(ensure_java())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master("local[*]")
            .config("spark.jars", ",".join(map(str, delta_jars())))
            .config("spark.python.unix.domain.socket.enabled", "true")
            # Delta's and Spark's own defaults are for clusters: 50 and 200 tasks for the smallest table.
            .config("spark.databricks.delta.snapshotPartitions", "2")
            .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
        )
    return builder.getOrCreate()


def _plan(run: Ingest, as_json: bool) -> int:
    planned = run.plan()
    rows = [
        {
            "topic": each.topic, "table": run.settings.identifier(each.table).replace("`", ""), "mode": each.mode,
            "format": each.format, "schema": each.schema_id, "columns": each.columns, "mistake": each.mistake,
        }
        for each in planned
    ]  # fmt: skip
    if as_json:
        click.echo(json.dumps({"starts": run.settings.starting_offsets, "tables": rows}, default=str))
    else:
        for row in rows:
            click.echo(
                f"{row['topic']} -> {row['table']}  {row['mode']}, {row['format']}" + _schema_text(row["schema"])
            )
            click.echo(f"    {row['mistake'] or row['columns']}")
        click.echo(
            f"{len(rows)} topics match {run.settings.topics!r}; a first start begins at {run.settings.starting_offsets}."
        )
    return _NOT_WELL if any(each.mistake for each in planned) else 0


def _schema_text(schema_id: Any) -> str:
    return "" if schema_id is None else f", schema {schema_id}"


def _verify(spark: SparkSession, run: Ingest, as_json: bool) -> int:
    from pykafka_wire.ingest.checks import verify

    return show_proofs(verify(spark, run.settings, run.topics()), as_json)


def show_proofs(proofs: Iterable[Proof], as_json: bool) -> int:
    """Print each as it is found; the exit code."""
    from dataclasses import asdict

    well = True
    for each in proofs:
        well = well and each.is_right
        click.echo(json.dumps(asdict(each), default=str) if as_json else str(each))
    return 0 if well else _NOT_WELL


def _replay(spark: SparkSession, run: Ingest, as_json: bool) -> None:
    from dataclasses import asdict

    from pykafka_wire.ingest.checks import replay_rejects

    for each in replay_rejects(spark, run.settings):
        click.echo(
            json.dumps(asdict(each))
            if as_json
            else f"{each.table}: {each.landed} landed, {each.damaged} still damaged, {each.gone} no longer in the topic"
        )


def _run(spark: SparkSession, run: Ingest, *, once: bool, every: str, metrics_port: int | None, as_json: bool) -> int:
    """Until the query ends, or Ctrl-C. The exit code tells whether all tables are well."""
    import time

    from rich.console import Console
    from rich.live import Live

    from pykafka_wire.ingest.figures import Rates, lag_of
    from pykafka_wire.ingest.terminal import drawn

    if metrics_port is not None:
        from pykafka_wire import metrics

        metrics.serve_prometheus(spark, metrics_port).listener.figures.include(run.figures)
    query = run.start(spark, once=once, every=every)
    rates, console = Rates(), Console(stderr=as_json)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        try:
            while query.isActive:
                live.update(drawn(run.statuses, run.log_ends(), rates), refresh=console.is_terminal)
                query.awaitTermination(1)
        except KeyboardInterrupt:
            console.print(
                "Ending after the running micro-batch; Ctrl-C again ends at once, and nothing is lost by it either."
            )
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(0.1)
            query.stop()
        ends = run.log_ends()
        live.update(drawn(run.statuses, ends, rates), refresh=True)
    if as_json:
        for status in run.statuses.values():
            fields = ("topic", "name", "rows", "rejects", "schema_id", "error")
            shown = {name: getattr(status, name) for name in fields} | {"lag": lag_of(status, ends)}
            click.echo(json.dumps(shown, default=str))
    error = query.exception()
    if error is not None:
        raise IngestError(str(error).split("\n")[0])
    return _NOT_WELL if any(each.error for each in run.statuses.values()) else 0
