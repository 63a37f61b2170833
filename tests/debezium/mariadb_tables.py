"""The tables of a MariaDB, what happens to them, and what must be in the Delta table behind them, as :mod:`tests.debezium.tables`
has it of PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.debezium.tables import Table


def of_types(name: str, *columns: str, rows: tuple[str, ...]) -> Table:
    """A table of columns such as ``a int``: rows in the snapshot, the same again while the log is read, changes and a delete.

    Args:
        rows: the values of a row each, without the key.
    """
    first = [f"({number}, {row})" for number, row in enumerate(rows, 1)]
    again = [f"({number}, {row})" for number, row in enumerate(rows, 101)]
    names = [column.split()[0] for column in columns]
    changed = ", ".join(f"{name}_to.{column} = {name}_from.{column}" for column in names)
    return Table(
        name=name,
        create=(
            f'CREATE TABLE "{name}" (id integer PRIMARY KEY, {", ".join(f"{column} NULL" for column in columns)})',
            f'INSERT INTO "{name}" VALUES {", ".join(first)}',
            f'INSERT INTO "{name}" (id) VALUES (1000), (1001)',
        ),
        steps=(
            (
                f'INSERT INTO "{name}" VALUES {", ".join(again)}',
                # A row of other values, or of nulls, becomes one of values.
                f'UPDATE "{name}" AS {name}_to JOIN "{name}" AS {name}_from ON {name}_from.id = 101 SET {changed} WHERE {name}_to.id IN (1000, 1)',
                f'DELETE FROM "{name}" WHERE id = 1001',
                f'INSERT INTO "{name}" (id) VALUES (1002)',
            ),
        ),
    )  # fmt: skip


TYPES: Final = (
    of_types(
        "integers", "a tinyint", "b smallint", "c mediumint", "d int", "e bigint", "f tinyint(1)", "g int(8) zerofill",
        rows=("1, 2, 3, 4, 5, 1, 7", "-128, -32768, -8388608, -2147483648, -9223372036854775808, 0, 0", "127, 32767, 8388607, 2147483647, 9223372036854775807, -1, 99999999"),
    ),
    of_types(
        "unsigned_integers", "a tinyint unsigned", "b smallint unsigned", "c mediumint unsigned", "d int unsigned", "e bigint unsigned",
        rows=("1, 2, 3, 4, 5", "255, 65535, 16777215, 4294967295, 18446744073709551615", "0, 0, 0, 0, 0"),
    ),
    of_types("floats", "a float", "b double", rows=("1.5, 2.5", "-0.1, 0.1", "3.4e38, 1.7e308", "7, 8")),
    of_types(
        "decimals", "a decimal(10,2)", "b decimal(38,10)", "c decimal(5,0)", "d decimal(6,6)", "e decimal(8,2) unsigned",
        rows=("1.50, 2.5, 3, 0.25, 1.25", "-99999999.99, -1234567890123456789012345678.0123456789, -99999, -0.999999, 0", "0, 0, 0, 0, 999999.99"),
    ),
    of_types(
        "texts", "a varchar(20)", "b char(5)", "c text", "d longtext",
        rows=("'x', 'y', 'z', 'v'", "'', '', '', ''", "'line\\nbreak \"q\" \\\\ tab\\t', 'é', 'ünï', '🎉'", "'null', '1.0', 'NaN', '2020-01-01'"),
    ),
    of_types("binaries", "a varbinary(20)", "b blob", "c binary(4)", rows=("x'00ff10', x'00', x'01020304'", "'', '', x'ffffffff'", "'hello', 'abcd', 'wxyz'")),
    of_types("bits", "a bit(1)", "b bit(3)", "c bit(16)", "d bit(64)", rows=("b'1', b'101', b'1010101011110000', b'1'", "b'0', b'0', b'1', b'1111111111111111111111111111111111111111111111111111111111111111'")),
    of_types("enums", "a enum('sad','happy','a b')", "b set('x','y','z')", rows=("'sad', 'x'", "'a b', 'x,z'", "'happy', ''")),
    of_types("years", "a year", rows=("2026", "1901", "2155")),
    of_types("dates", "a date", rows=("'2026-11-26'", "'1969-12-31'", "'1000-01-01'", "'9999-12-31'", "'1582-10-04'")),
    replace(
        # Debezium writes null for a date that is none, and, of the log, the epoch for a timestamp that is none.
        of_types("zero_dates", "a date", "b datetime(3)", "c timestamp", rows=("'2026-11-26', '2026-11-26', '2026-11-26'", "'0000-00-00', '0000-00-00', '0000-00-00'")),
        query="SELECT id, a, b, IF(c = 0 AND id > 100, '1970-01-01', c) AS c FROM zero_dates",
    ),
    of_types(
        "times", "a time", "b time(3)", "c time(6)",
        rows=("'12:34:56', '12:34:56.123', '12:34:56.123456'", "'838:59:59', '838:59:58.999', '838:59:58.999999'", "'-838:59:59', '-00:00:00.001', '-25:00:00.000001'", "'0', '0', '0'"),
    ),
    of_types(
        "datetimes", "a datetime", "b datetime(3)", "c datetime(6)",
        rows=(
            "'2026-11-26 12:34:56', '2026-11-26 12:34:56.123', '2026-11-26 12:34:56.123456'",
            "'1970-01-01', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999'",
            "'9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999'",
        ),
    ),
    of_types(
        "timestamps", "a timestamp", "b timestamp(3)", "c timestamp(6)",
        rows=(
            "'2026-11-26 12:34:56', '2026-11-26 12:34:56.123', '2026-11-26 12:34:56.123456'",
            "'1970-01-01 00:00:01', '1970-01-01 00:00:01', '1970-01-01 00:00:01'",
            "'2038-01-19 03:14:07', '2038-01-19 03:14:07.999', '2038-01-19 03:14:07.999999'",
        ),
    ),
    of_types("spatial", "a point", "b linestring", "c polygon", "d geometry", rows=("POINT(1.5, 2), LineString(Point(0,0), Point(1,1)), ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))'), POINT(-1, 0)",)),
)  # fmt: skip


def altered(name: str, column: str, rows: str, alter: str, after: tuple[str, ...]) -> Table:
    """A table with a column ``c`` that is altered between two micro-batches, and then changed."""
    return Table(
        name=name,
        create=(
            f'CREATE TABLE "{name}" (id integer PRIMARY KEY, n integer, {column})',
            f'INSERT INTO "{name}" VALUES {rows}',
        ),
        steps=(
            (f'UPDATE "{name}" SET n = n + 1 WHERE id = 1',),
            (f'ALTER TABLE "{name}" {alter}', *(text.format(table=f'"{name}"') for text in after)),
            (f'UPDATE "{name}" SET n = n + 1 WHERE id = 2', f'DELETE FROM "{name}" WHERE id = 3'),
        ),
    )


OPERATIONS: Final = (
    Table(
        name="plain",
        create=("CREATE TABLE plain (id integer PRIMARY KEY, t text)", "INSERT INTO plain SELECT seq, concat('row ', seq) FROM seq_1_to_50"),
        steps=(
            ("UPDATE plain SET t = 'new' WHERE id < 10", "DELETE FROM plain WHERE id > 40", "INSERT INTO plain VALUES (100, NULL)"),
            ("REPLACE INTO plain VALUES (1, 'replaced')", "INSERT INTO plain VALUES (2, 'x') ON DUPLICATE KEY UPDATE t = 'twice'", "INSERT IGNORE INTO plain VALUES (3, 'y')"),
        ),
    ),
    Table(
        # A collation that takes upper for lower case: the row moves to another key of Debezium's.
        name="collated_key",
        create=("CREATE TABLE collated_key (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n integer)", "INSERT INTO collated_key VALUES ('Ab', 1), ('c', 2), ('É', 3)"),
        steps=(("UPDATE collated_key SET k = 'aB', n = 9 WHERE k = 'ab'",), ("UPDATE collated_key SET n = 7 WHERE k = 'AB'", "DELETE FROM collated_key WHERE k = 'e'")),
    ),
    Table(
        name="moved_keys",
        create=("CREATE TABLE moved_keys (id integer PRIMARY KEY, t text)", "INSERT INTO moved_keys SELECT seq, concat('row ', seq) FROM seq_1_to_20"),
        steps=(("UPDATE moved_keys SET id = id + 100 WHERE id <= 5",), ("UPDATE moved_keys SET id = id - 100, t = 'back' WHERE id IN (101, 102)", "UPDATE moved_keys SET id = id + 1000 ORDER BY id DESC")),
    ),
    Table(
        # Snapshots and changes write the fractions of a second otherwise.
        name="key_of_times",
        create=(
            "CREATE TABLE key_of_times (a timestamp(6) NOT NULL DEFAULT '2020-01-01', b datetime(3), c date, n integer, PRIMARY KEY (a, b, c))",
            "INSERT INTO key_of_times VALUES ('2026-01-01 05:00:00', '2026-01-01 05:00:00', '2026-01-01', 1), ('2026-01-01 05:00:00.5', '2026-01-01', '2026-01-02', 2), ('2026-01-01', '2026-01-01', '2026-01-03', 3)",
        ),
        steps=(("UPDATE key_of_times SET n = n + 10",), ("DELETE FROM key_of_times WHERE n = 11", "UPDATE key_of_times SET b = '2027-01-01' WHERE n = 12")),
    ),
    Table(
        name="unsigned_key",
        create=("CREATE TABLE unsigned_key (id bigint unsigned PRIMARY KEY, n integer)", "INSERT INTO unsigned_key VALUES (18446744073709551615, 1), (1, 2)"),
        steps=(("UPDATE unsigned_key SET n = 9",), ("DELETE FROM unsigned_key WHERE id = 18446744073709551615",)),
    ),
    Table(
        # The log has no rows that InnoDB deletes by a foreign key: they stay.
        name="cascaded",
        create=(
            "CREATE TABLE cascading (id integer PRIMARY KEY)",
            "CREATE TABLE cascaded (id integer PRIMARY KEY, parent integer, FOREIGN KEY (parent) REFERENCES cascading (id) ON DELETE CASCADE)",
            "INSERT INTO cascading VALUES (1), (2)",
            "INSERT INTO cascaded VALUES (10, 1), (20, 2)",
        ),
        steps=(("DELETE FROM cascading WHERE id = 1", "INSERT INTO cascaded VALUES (30, 2)"),),
        query="SELECT id, parent FROM cascaded UNION ALL SELECT 10, 1",
    ),
    Table(
        name="truncated",
        create=("CREATE TABLE truncated (id integer PRIMARY KEY, n integer)", "INSERT INTO truncated VALUES (1, 1), (2, 2)"),
        steps=(("UPDATE truncated SET n = 9 WHERE id = 1",), ("TRUNCATE truncated",), ("INSERT INTO truncated VALUES (2, 5), (3, 3)",)),
    ),
    # MariaDB writes nothing of rows whose column is altered: they have the new value after their next change.
    altered("wider_integer", "c smallint", "(1, 1, 1), (2, 2, 2), (3, 3, 3)", "MODIFY c bigint", ("UPDATE {table} SET c = 9000000000 WHERE id = 2",)),
    altered("longer_text", "c varchar(3)", "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')", "MODIFY c longtext", ("UPDATE {table} SET c = repeat('x', 100000) WHERE id = 1",)),
    altered("added_column", "b integer", "(1, 1, 1), (2, 2, 2), (3, 3, 3)", "ADD COLUMN c integer", ("UPDATE {table} SET c = 5 WHERE id = 1", "INSERT INTO {table} VALUES (4, 4, 4, 4)")),
    altered("dropped_column", "b integer, c integer", "(1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)", "DROP COLUMN c", ("UPDATE {table} SET b = 5",)),
    altered("grown_enum", "c enum('a','b')", "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'a')", "MODIFY c enum('a','b','c')", ("UPDATE {table} SET c = 'c' WHERE id = 1",)),
)  # fmt: skip

#: Tables that exist, and are no table of the comparison.
HELPERS: Final = ("CREATE TABLE debezium_signal (id varchar(64) PRIMARY KEY, type varchar(32), data varchar(2048))",)
