"""``query``: runs SQL on the tables of an ingest, with DuckDB or Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from pykafka_wire.cli.connection import json_option, output
from pykafka_wire.cli.ingest_file import SETTINGS_FILE
from pykafka_wire.cli.output import UsageMistake, counted
from pykafka_wire.cli.session import session
from pykafka_wire.cli.working import working
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.settings.settings_file import read_settings

#: A query connects to no broker, so a file may leave the brokers to the command line of ``ingest``.
_ANY_BROKER: Final = {"bootstrap.servers": "unused:9092"}
#: Of an ingest whose first micro-batch is landing some of the tables.
_UNBORN = " Its ingest is running: a missing table appears when its first records have landed."


@click.command()
@json_option
@click.argument("file", type=SETTINGS_FILE)
@click.argument("sql", required=False)
@click.option(
    "--engine",
    type=click.Choice(("duckdb", "spark")),
    help="The engine [default: duckdb, if duckdb and deltalake are installed and can read the tables, otherwise spark].",
)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="The most rows to print.")
def query(file: Path, sql: str | None, engine: str | None, limit: int) -> None:
    """Run SQL on the tables of the ingest in FILE, by table name. Without SQL, list the tables.

    FILE is a settings file, or the folder of the tables of an ingest that was started without a settings file.

    \b
    pykafka-wire query shop.toml "SELECT country, count(*) FROM shop_orders GROUP BY country"

    DuckDB starts immediately. Spark also reads catalog tables, every file system, and every Delta feature. The command does not
    connect to brokers.
    """
    try:
        settings = read_settings(file, {"kafka": _ANY_BROKER})
    except IngestError as error:
        raise UsageMistake(str(error)) from error
    from pykafka_wire.ingest.tables.formats import format_of

    tables = format_of(settings).datasets(settings)
    if sql is None:
        rows = [{"table": name, "place": settings.place(name)} for name in tables or ()]
        output().rows(rows, empty=f"There is no table in {settings.into} yet.")
        return
    if tables is not None and not tables:
        is_landing = _is_running(settings)
        remedy = "its ingest is landing them now; try again" if is_landing else f"run pykafka-wire ingest {file}"
        raise click.ClickException(f"There is no table in {settings.into} yet: {remedy}.")
    reason = "the tables are not in a folder of this machine" if tables is None else _missing_of_duckdb(settings)
    used = {
        name: table
        for name, table in (tables or {}).items()
        if re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)
    }
    if engine == "duckdb" and reason:
        raise click.ClickException(f"DuckDB cannot be used: {reason}. Leave out --engine.")
    if engine != "spark" and not reason:
        unreadable = _by_duckdb(sql, tables or {}, used, limit, lambda: _UNBORN if _is_running(settings) else "")
        if not unreadable:
            return
        if engine == "duckdb":
            raise click.ClickException(f"DuckDB cannot read these tables: {unreadable}. Leave out --engine.")
        click.echo(f"Starting Spark, since DuckDB cannot read these tables: {unreadable}.", err=True)
    _by_spark(sql, settings, used, limit)


def _is_running(settings: Settings) -> bool:
    from pykafka_wire.ingest.startup.lease import check_free

    try:
        check_free(settings.checkpoint)
    except IngestError:
        return True
    return False


def _missing_of_duckdb(settings: Settings) -> str:
    from pykafka_wire.ingest.tables.formats import format_of

    missing = [name for name in ("duckdb", format_of(settings).reader) if find_spec(name) is None]
    return f"not installed: {', '.join(missing)} (pip install {' '.join(missing)})" if missing else ""


def _by_duckdb(
    sql: str, tables: Iterable[str], used: Mapping[str, Callable[[], Any]], limit: int, hint: Callable[[], str]
) -> str:
    """Run the query and print the rows; or return why a table cannot be read.

    Args:
        hint: the end of the text of an error of the query.
    """
    import duckdb

    with duckdb.connect() as connection:
        for name, dataset in used.items():
            try:
                connection.register(name, dataset())
            except Exception as error:  # of the table's own library
                return f"{name}: {str(error).splitlines()[0].rstrip('.')}"
        try:
            connection.execute(sql)
            names = [column[0] for column in connection.description or ()]
            rows = connection.fetchmany(limit + 1)
            empty = [] if rows else [name for name in used if not connection.table(name).limit(1).fetchall()]
        except duckdb.Error as error:
            raise click.ClickException(f"{error}\nTables: {', '.join(sorted(tables))}.{hint()}") from error
    _print(names, rows, limit, empty)
    return ""


def _by_spark(sql: str, settings: Settings, tables: Iterable[str], limit: int) -> None:
    from pykafka_wire.ingest.tables.formats import format_of

    with working("starting Spark", with_spark=True) as progress:
        spark = session("query")
        progress.show("running the query")
        table_format = format_of(settings)
        if table_format.has_views(settings):
            for name in tables:
                table_format.open_table(spark, settings, name).rows.createOrReplaceTempView(name)
        else:
            spark.sql(f"USE {settings.schema}")
        result = spark.sql(sql)
        rows = [tuple(row) for row in result.limit(limit + 1).collect()]
        empty = [] if rows else [name for name in tables if spark.table(f"`{name}`").isEmpty()]
    _print(result.columns, rows, limit, empty)


def _print(
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],  # Any: values of any type
    limit: int,
    empty: Sequence[str],
) -> None:
    """Print rows; if there are none, also print which tables are still empty."""
    plain = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows[:limit]]
    reason = f" Nothing has landed in {', '.join(empty)} yet." if empty else ""
    output().rows(plain, empty=f"No rows.{reason}")
    if len(rows) > limit:
        click.echo(f"Only the first {counted(limit, 'row')}; --limit shows more.", err=True)


def _plain(value: Any) -> Any:  # Any: a value of any type; the result is a JSON value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return "0x" + bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else str(value)
