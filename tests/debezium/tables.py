"""The tables of a database, what happens to them, and what must be in the Delta table behind them.

Each :class:`Table` is made before the first snapshot; its steps follow in turn, and what was written before is landed between two
of them, so that each comes in a micro-batch of its own. What must land is ``SELECT *`` unless :attr:`Table.query` says otherwise:
where Debezium writes no event for a row, its Delta row stays as it was, and the query says how.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

#: What does not fit into a page beside others is stored apart (TOAST), and is not in the log unless it changes.
LONG: Final = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) AS i)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """
    Attributes:
        create: statements that make it, and its first rows.
        steps: statements of each step.
        query: the rows that must have landed.
        query_without_schema: the same where there is no schema: a decimal in base64 does not say its scale.
        reason: what is said of the table, which is stopped; empty for one that is landed.
        absent: columns that Debezium leaves out.
    """

    name: str
    create: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...] = ()
    query: str = ""
    query_without_schema: str = ""
    reason: str = ""
    absent: tuple[str, ...] = ()

    def expected(self, *, has_schema: bool) -> str:
        query = self.query if has_schema else self.query_without_schema or self.query
        return query or f'SELECT * FROM "{self.name}"'


def of_types(name: str, *columns: str, rows: tuple[str, ...], later: tuple[str, ...] = ()) -> Table:
    """A table of columns such as ``a integer``: rows in the snapshot, the same again while it is streamed, changes and a delete.

    Args:
        rows: the values of a row each, without the key.
        later: rows that come in a step of their own.
    """
    listed = ", ".join(columns)
    first = [f"({number}, {row})" for number, row in enumerate(rows, 1)]
    again = [f"({number}, {row})" for number, row in enumerate((*rows, *later), 101)]
    names = ", ".join(each.split()[0] for each in columns)
    # A row of other values, or of nulls, becomes one of values.
    changed = f'UPDATE "{name}" SET ({names}) = (SELECT {names} FROM "{name}" WHERE id = 101) WHERE id IN (1000, 1)'
    if len(columns) == 1:
        changed = f'UPDATE "{name}" SET {names} = (SELECT {names} FROM "{name}" WHERE id = 101) WHERE id IN (1000, 1)'
    return Table(
        name=name,
        create=(
            f'CREATE TABLE "{name}" (id integer PRIMARY KEY, {listed})',
            f'INSERT INTO "{name}" VALUES {", ".join(first)}',
            f'INSERT INTO "{name}" (id) VALUES (1000), (1001)',
        ),
        steps=(
            (
                f'INSERT INTO "{name}" VALUES {", ".join(again)}',
                changed,
                f'DELETE FROM "{name}" WHERE id = 1001',
                f'INSERT INTO "{name}" (id) VALUES (1002)',
            ),
        ),
    )


TYPES: Final = (
    of_types(
        "integers", "a smallint", "b integer", "c bigint", "d oid",
        rows=("1, 2, 3, 4", "-32768, -2147483648, -9223372036854775808, 0", "32767, 2147483647, 9223372036854775807, 4294967295"),
    ),
    of_types("floats", "a real", "b double precision", rows=("1.5, 2.5", "-0.1, 0.1", "3.4e38, 1.7e308", "1e-40, 5e-324", "7, 8")),
    of_types(
        "not_numbers", "a real", "b double precision",
        rows=("1, 2", "'NaN', 'NaN'", "'Infinity', 'Infinity'", "'-Infinity', '-Infinity'"),
    ),
    of_types(
        "numerics", "a numeric(10,2)", "b numeric(38,10)", "c numeric(5,0)", "d numeric(6,6)",
        rows=("1.50, 2.5, 3, 0.25", "-99999999.99, -1234567890123456789012345678.0123456789, -99999, -0.999999", "0, 0, 0, 0"),
    ),
    of_types("numerics_of_any_scale", "a numeric", rows=("1.5", "-12345678901234567890.123456789", "0", "100", "0.000001")),
    of_types("wide_numerics", "a numeric(60,20)", rows=("1.5", "-1234567890123456789012345678901234567890.12345678901234567890", "0")),
    of_types("moneys", "a money", rows=("'1.50'", "'-92233720368547758.08'", "'92233720368547758.07'", "'0'")),
    of_types(
        "texts", "a text", "b varchar(20)", "c char(5)", "d varchar",
        rows=(
            "'x', 'y', 'z', 'v'",
            "'', '', '', ''",
            "E'line\\nbreak \"quoted\" \\\\ tab\\t', 'ünï', 'é', '🎉'",
            "'null', 'NaN', '1.0', '2020-01-01'",
        ),
    ),
    of_types("citexts", "a citext", rows=("'Mixed Case'", "''")),
    of_types("binaries", "a bytea", rows=("'\\x00ff10'", "''", "'\\x68656c6c6f'", "'\\x1234567890'")),
    of_types("booleans", "a boolean", rows=("true", "false")),
    of_types("dates", "a date", rows=("'2026-11-26'", "'1969-12-31'", "'0001-01-01'", "'9999-12-31'", "'1582-10-04'")),
    of_types("endless_dates", "a date", rows=("'2026-11-26'", "'infinity'", "'-infinity'")),
    of_types(
        "times", "a time", "b time(0)", "c time(3)", "d timetz",
        rows=(
            "'12:34:56.123456', '12:34:56', '12:34:56.123', '12:34:56.123456+02'",
            "'00:00', '00:00', '00:00', '00:00+00'",
            "'23:59:59.999999', '23:59:59', '23:59:59.999', '23:59:59.999999-11'",
        ),
    ),
    of_types(
        "timestamps", "a timestamp", "b timestamp(0)", "c timestamp(3)", "d timestamptz", "e timestamptz(3)",
        rows=(
            "'2026-11-26 12:34:56.123456', '2026-11-26 12:34:56', '2026-11-26 12:34:56.123', '2026-11-26 12:34:56.123456+02', '2026-11-26 12:34:56.123+02'",
            "'1970-01-01', '1970-01-01', '1970-01-01', '1970-01-01Z', '1970-01-01Z'",
            "'1974-03-02 01:02:03.000004', '1974-03-02 01:02:03', '1962-03-02 01:02:03.004', '1962-03-02 01:02:03Z', '1500-01-01Z'",
            "'0001-01-01', '1582-10-04', '1582-10-15', '9999-12-31 23:59:59.999999Z', '0001-01-01Z'",
        ),
    ),
    of_types(
        "endless_timestamps", "a timestamp", "b timestamp(3)", "c timestamptz",
        rows=("'2026-11-26', '2026-11-26', '2026-11-26Z'", "'infinity', 'infinity', 'infinity'", "'-infinity', '-infinity', '-infinity'"),
    ),
    of_types("intervals", "a interval", rows=("'1 day'", "'-1 year 2 mons 3 days 04:05:06.789'", "'0'")),
    of_types("uuids", "a uuid", rows=("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'")),
    of_types("documents", "a json", "b jsonb", rows=("""'{"a": 1, "b": [true, null]}', '{"a": 1.50}'""", "'[]', '\"text\"'", "'1', 'null'")),
    of_types("documents_of_xml", "a xml", rows=("'<a>b</a>'",)),
    of_types(
        "arrays", "a integer[]", "b text[]", "c bigint[]", "d boolean[]", "e double precision[]", "f uuid[]",
        rows=(
            "'{1,2}', '{x,y}', '{9223372036854775807}', '{true,false}', '{1.5,2}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'",
            "'{}', '{}', '{}', '{}', '{}', '{}'",
            "'{1,NULL}', '{NULL,\"\"}', '{NULL}', '{NULL}', '{NULL,-0.5}', '{NULL}'",
        ),
    ),
    of_types(
        "arrays_of_times", "a date[]", "b timestamp[]", "c timestamptz[]",
        rows=("'{2026-11-26}', '{2026-11-26 12:34:56.123456}', '{2026-11-26 12:34:56Z}'", "'{}', '{}', '{}'"),
    ),
    of_types(
        "arrays_of_numerics", "a numeric(10,2)[]", "b numeric[]", "c numeric(4,2)[]",
        rows=("'{1.50,-2}', '{1.5,100}', '{1.25}'", "'{}', '{}', '{}'"),
    ),
    of_types("enums", "a mood", rows=("'sad'", "'happy'")),
    of_types(
        "addresses", "a inet", "b cidr", "c macaddr", "d macaddr8",
        rows=("'192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05'", "'::1', '::/0', '00:00:00:00:00:00', '00:00:00:00:00:00:00:00'"),
    ),
    of_types("hstores", "a hstore", rows=("""'k=>v, "a b"=>NULL'""", "''")),
    of_types("points", "a point", rows=("'(1.5,2)'", "'(0,-0.5)'")),
    of_types("bits", "a bit(1)", "b bit(3)", "c bit(16)", "d varbit(64)", rows=("B'1', B'101', B'1010101011110000', B'1'", "B'0', B'000', B'0000000000000001', B''")),
    of_types("searched", "a tsvector", rows=("'fat cat'::tsvector", "to_tsvector('english', 'The fat rats')")),
    of_types(
        "ranges", "a int4range", "b int8range", "c numrange", "d daterange", "e tsrange", "f tstzrange",
        rows=(
            "'[1,5)', '[1,5)', '[1.5,2.5]', '[2026-01-01,2026-02-01)', '[2026-01-01 00:00,2026-01-02 00:00)', '[2026-01-01Z,2026-01-02Z)'",
            "'empty', '(,)', '(,1)', 'empty', '(,)', 'empty'",
        ),
    ),
    of_types("trees", "a ltree", rows=("'Top.Science'",)),
    of_types(
        # Debezium leaves the microseconds of times in arrays out.
        "arrays_of_others", "a smallint[]", "b real[]", "c varchar(10)[]", "d jsonb[]", "e bytea[]", "f time[]", "g inet[]", "h citext[]", "i mood[]",
        rows=(
            "'{1,-32768}', '{1.5,-0.25}', '{x,y}', ARRAY['{\"a\": 1}']::jsonb[], ARRAY['\\x00ff']::bytea[], '{12:34:56.123}', '{192.168.0.1}', '{Mixed}', '{sad,happy}'",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
            "'{NULL}', '{NULL}', '{NULL,\"\"}', ARRAY[NULL, 'null']::jsonb[], '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{happy}'",
        ),
    ),
    of_types("domains", "a email", "b price", "c positive", "d short", "e nested", "f birthday", rows=("'x@y', 1.50, 7, 'ab', -2.25, '2026-11-26'", "'@', 0, 1, '', 0, '1969-12-31'")),
    replace(
        of_types("numerics_not_numbers", "a numeric", "b numeric(10,2)", rows=("1.5, 2.5", "'NaN', 'NaN'", "0, 0")),
        # Connect's decimals have no such value: Debezium writes null.
        query="SELECT id, nullif(a, 'NaN') AS a, nullif(b, 'NaN') AS b FROM numerics_not_numbers",
    ),
    replace(
        # No type of Connect's has these values.
        of_types(
            "left_out", "t text", "a money[]", "b interval[]", "c xml[]", "d point[]", "e int4multirange", "f box", "g circle", "h pair", "i tsquery",
            rows=("'x', '{1.50}', '{1 day}', '{<a/>}', ARRAY['(1,2)']::point[], '{[1,2)}', '(1,1),(0,0)', '<(0,0),1>', '(1,x)', 'a & b'",),
        ),
        absent=("a", "b", "c", "d", "e", "f", "g", "h", "i"),
    ),
)  # fmt: skip


def toast(name: str, kind: str, value: str, identity: str) -> Table:
    """A long value beside a number that changes; then both change in one transaction, then the number twice more."""
    return Table(
        name=name,
        create=(
            f'CREATE TABLE "{name}" (id integer PRIMARY KEY, big {kind}, n integer)',
            f'ALTER TABLE "{name}" ALTER big SET STORAGE EXTERNAL',
            f'ALTER TABLE "{name}" REPLICA IDENTITY {identity}',
            f'INSERT INTO "{name}" SELECT i, {value}, 0 FROM generate_series(1, 4) AS i',
        ),
        steps=(
            (f'UPDATE "{name}" SET n = 1 WHERE id <= 2',),
            # Within one micro-batch: made or changed, and then changed without its long value.
            (
                f'INSERT INTO "{name}" SELECT i, {value}, 0 FROM generate_series(11, 13) AS i',
                f'UPDATE "{name}" SET n = 2 WHERE id IN (1, 11)',
                f'UPDATE "{name}" SET big = NULL WHERE id = 2',
                f'UPDATE "{name}" SET n = 3 WHERE id IN (1, 2, 12)',
                f'UPDATE "{name}" SET big = {value}, n = 3 WHERE id = 3',
                f'UPDATE "{name}" SET n = 4 WHERE id = 3',
            ),
            (f'UPDATE "{name}" SET n = 5', f'DELETE FROM "{name}" WHERE id = 4', f'UPDATE "{name}" SET id = 30 WHERE id = 3'),
        ),
    )  # fmt: skip


def column_called(name: str, kind: str, value: str) -> Table:
    """A table one of whose columns has a name of Debezium's envelope."""
    table = f"column_{name}_{kind}"
    return Table(
        name=table,
        create=(
            f'CREATE TABLE "{table}" (id integer PRIMARY KEY, "{name}" {kind}, n integer)',
            f'INSERT INTO "{table}" VALUES (1, {value}, 1), (2, {value}, 2), (3, NULL, 3)',
        ),
        steps=(
            (f'UPDATE "{table}" SET n = 9 WHERE id = 1', f'INSERT INTO "{table}" VALUES (4, {value}, 4)'),
            (f'DELETE FROM "{table}" WHERE id = 2', f'UPDATE "{table}" SET "{name}" = NULL WHERE id = 1'),
        ),
    )


def altered(
    name: str,
    columns: str,
    rows: str,
    alter: tuple[str, ...],
    after: tuple[str, ...],
    query: str = "",
    key: str = "id",
    query_without_schema: str = "",
) -> Table:
    """A table that is altered while it is streamed, and then changed."""
    fill = {"table": f'"{name}"'}
    return Table(
        name=name,
        create=(f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({key}))', f'INSERT INTO "{name}" VALUES {rows}'),
        steps=(
            (f'UPDATE "{name}" SET n = n + 1 WHERE id = 1',),
            tuple(each.format_map(fill) for each in (*alter, *after)),
            (f'UPDATE "{name}" SET n = n + 1 WHERE id = 2', f'DELETE FROM "{name}" WHERE id = 3'),
        ),
        query=query.format_map(fill),
        query_without_schema=query_without_schema.format_map(fill),
    )


OPERATIONS: Final = (
    Table(
        name="plain",
        create=("CREATE TABLE plain (id integer PRIMARY KEY, t text)", "INSERT INTO plain SELECT i, 'row ' || i FROM generate_series(1, 50) AS i"),
        steps=(
            ("UPDATE plain SET t = 'new' WHERE id < 10", "DELETE FROM plain WHERE id > 40", "INSERT INTO plain VALUES (100, NULL)"),
            ("INSERT INTO plain VALUES (45, 'again')", "UPDATE plain SET t = NULL WHERE id = 1"),
        ),
    ),
    Table(
        name="composite_key",
        create=(
            "CREATE TABLE composite_key (a integer, b text, n integer, PRIMARY KEY (b, a))",
            "INSERT INTO composite_key VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, '', 4)",
        ),
        steps=(
            ("UPDATE composite_key SET n = 9 WHERE b = 'x'", "DELETE FROM composite_key WHERE a = 1 AND b = 'y'"),
            ("UPDATE composite_key SET a = 3 WHERE b = ''", "INSERT INTO composite_key VALUES (1, 'y', 5)"),
        ),
    ),
    Table(
        name="without_key",
        create=("CREATE TABLE without_key (a integer, t text)", "ALTER TABLE without_key REPLICA IDENTITY FULL", "INSERT INTO without_key VALUES (1, 'x'), (2, 'y')"),
        steps=(("UPDATE without_key SET t = 'z' WHERE a = 1", "INSERT INTO without_key VALUES (3, 'w')"), ("DELETE FROM without_key WHERE a = 2",)),
        reason="the database's table has no primary key",
    ),
    column_called("op", "text", "'x'"),
    column_called("op", "integer", "7"),
    column_called("after", "text", "'x'"),
    column_called("before", "integer", "7"),
    column_called("payload", "text", "'x'"),
    column_called("payload", "integer", "7"),
    column_called("schema", "text", "'x'"),
    column_called("source", "jsonb", """'{"op": "d"}'"""),
    column_called("value", "integer", "7"),
    Table(
        name="key_payload",
        create=("CREATE TABLE key_payload (payload integer PRIMARY KEY, schema integer)", "INSERT INTO key_payload VALUES (1, 1), (2, 2)"),
        steps=(("UPDATE key_payload SET schema = 3 WHERE payload = 1",), ("DELETE FROM key_payload WHERE payload = 2",)),
    ),
    Table(
        name="odd_names",
        create=(
            'CREATE TABLE odd_names (id integer PRIMARY KEY, "First Name" text, "a.b" integer, "x-y" integer, "ünï" integer, "k=v" integer)',
            "INSERT INTO odd_names VALUES (1, 'Ann', 1, 2, 3, 4), (2, 'Bo', 1, 2, 3, 4)",
        ),
        steps=(("""UPDATE odd_names SET "First Name" = 'Cy', "a.b" = 9 WHERE id = 1""",), ("DELETE FROM odd_names WHERE id = 2",)),
    ),
    Table(
        name="Odd Table",
        create=('CREATE TABLE "Odd Table" (id integer PRIMARY KEY, t text)', "INSERT INTO \"Odd Table\" VALUES (1, 'x'), (2, 'y')"),
        steps=(("UPDATE \"Odd Table\" SET t = 'z' WHERE id = 1",), ('DELETE FROM "Odd Table" WHERE id = 2',)),
    ),
    Table(
        name="only_one_column",
        create=("CREATE TABLE only_one_column (value integer PRIMARY KEY)", "INSERT INTO only_one_column VALUES (1), (2)"),
        steps=(("INSERT INTO only_one_column VALUES (3)",), ("DELETE FROM only_one_column WHERE value = 1", "INSERT INTO only_one_column VALUES (4)")),
    ),
    toast("toast_text", "text", LONG, "DEFAULT"),
    toast("toast_text_full", "text", LONG, "FULL"),
    toast("toast_bytea", "bytea", f"{LONG}::bytea", "DEFAULT"),
    toast("toast_jsonb", "jsonb", f"jsonb_build_object('a', {LONG})", "DEFAULT"),
    toast("toast_array", "text[]", f"ARRAY[{LONG}]", "DEFAULT"),
    # Debezium writes null for a number that was not sent, since no number is its placeholder.
    toast("toast_numeric", "numeric", "(repeat('123456789', 900) || '.5')::numeric", "FULL"),
    toast("toast_integers", "integer[]", "(SELECT array_agg(j) FROM generate_series(1, 4000) AS j)", "DEFAULT"),
    Table(
        name="keys_of_types",
        create=(
            "CREATE TABLE keys_of_types (a uuid, b date, c timestamptz, d numeric(10,2), e timestamp, f bytea, g boolean, h positive, n integer, PRIMARY KEY (a, b, c, d, e, f, g, h))",
            "INSERT INTO keys_of_types SELECT md5(i::text)::uuid, date '2026-01-01' + i, timestamptz '2026-01-01 00:00:00.5Z' + i * interval '1 hour',"
            " i / 4.0, timestamp '1969-12-31' + i * interval '1 hour', decode(md5(i::text), 'hex'), i % 2 = 0, i, i FROM generate_series(1, 6) AS i",
        ),
        steps=(
            ("UPDATE keys_of_types SET n = 9 WHERE n <= 2", "DELETE FROM keys_of_types WHERE n = 3"),
            ("UPDATE keys_of_types SET d = d + 1, n = 7 WHERE n = 4", "DELETE FROM keys_of_types WHERE n = 5"),
        ),
    ),
    Table(
        name="key_of_any_scale",
        create=("CREATE TABLE key_of_any_scale (id numeric PRIMARY KEY, n integer)", "INSERT INTO key_of_any_scale VALUES (1.5, 1), (100, 2), (0.000001, 3), (-12345678901234567890.5, 4)"),
        steps=(("UPDATE key_of_any_scale SET n = 9 WHERE id > 1", "DELETE FROM key_of_any_scale WHERE n = 4"), ("UPDATE key_of_any_scale SET id = 7 WHERE n = 3",)),
    ),
    Table(
        # Debezium takes the columns of a unique index for the key.
        name="unique_index",
        create=(
            "CREATE TABLE unique_index (t text, a integer NOT NULL, b text NOT NULL)",
            "CREATE UNIQUE INDEX unique_index_key ON unique_index (a, b)",
            "ALTER TABLE unique_index REPLICA IDENTITY USING INDEX unique_index_key",
            "INSERT INTO unique_index VALUES ('x', 1, 'a'), ('y', 1, 'b'), ('z', 2, 'a')",
        ),
        steps=(("UPDATE unique_index SET t = 'w' WHERE a = 1", "DELETE FROM unique_index WHERE a = 2"), ("UPDATE unique_index SET b = 'c' WHERE b = 'b'",)),
    ),
    Table(
        name="nullable_unique",
        create=(
            "CREATE TABLE nullable_unique (a integer, b integer, t text, UNIQUE (a, b))",
            "ALTER TABLE nullable_unique REPLICA IDENTITY FULL",
            "INSERT INTO nullable_unique VALUES (1, NULL, 'x'), (2, NULL, 'y'), (1, 2, 'z')",
        ),
        steps=(("UPDATE nullable_unique SET t = 'w' WHERE b IS NULL", "INSERT INTO nullable_unique VALUES (3, NULL, 'v')"), ("DELETE FROM nullable_unique WHERE a = 1 AND b IS NULL",)),
    ),
    Table(
        # The connector's message.key.columns names its key.
        name="keyed_by_setting",
        create=(
            "CREATE TABLE keyed_by_setting (t text, a integer, b text)",
            "ALTER TABLE keyed_by_setting REPLICA IDENTITY FULL",
            "INSERT INTO keyed_by_setting VALUES ('x', 1, 'a'), ('y', 1, 'b'), ('z', 2, 'a')",
        ),
        steps=(("UPDATE keyed_by_setting SET t = 'w' WHERE a = 1", "DELETE FROM keyed_by_setting WHERE a = 2"), ("UPDATE keyed_by_setting SET b = 'c' WHERE b = 'b'",)),
    ),
    Table(
        # Published by the name of the whole table.
        name="partitioned",
        create=(
            "CREATE TABLE partitioned (id integer, at date, t text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
            "CREATE TABLE partitioned_1 PARTITION OF partitioned FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
            "CREATE TABLE partitioned_2 PARTITION OF partitioned FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
            "INSERT INTO partitioned VALUES (1, '2026-01-05', 'x'), (2, '2026-01-06', 'y'), (3, '2026-02-07', 'z')",
        ),
        steps=(
            ("UPDATE partitioned SET t = 'w' WHERE id = 1", "DELETE FROM partitioned WHERE id = 3", "INSERT INTO partitioned VALUES (4, '2026-02-08', 'v')"),
            (
                "UPDATE partitioned SET at = '2026-02-09' WHERE id = 2",
                "CREATE TABLE partitioned_3 PARTITION OF partitioned FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')",
                "INSERT INTO partitioned VALUES (5, '2026-03-08', 'u')",
            ),
        ),
    ),
    Table(
        # PostgreSQL before 18 does not publish generated columns: the snapshot has them, a change has not.
        name="generated",
        create=(
            "CREATE TABLE generated (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a integer, b integer GENERATED ALWAYS AS (a * 2) STORED)",
            "INSERT INTO generated (a) VALUES (1), (2), (3)",
        ),
        steps=(("UPDATE generated SET a = 9 WHERE id = 1", "INSERT INTO generated (a) VALUES (4)"), ("DELETE FROM generated WHERE id = 2",)),
        query="SELECT id, a, CASE WHEN id = 3 THEN b END::integer AS b FROM generated",
    ),
    Table(
        name="defaults",
        create=(
            "CREATE TABLE defaults (id integer PRIMARY KEY, a integer NOT NULL DEFAULT 7, b text NOT NULL DEFAULT 'x', c numeric(10,2) NOT NULL DEFAULT 1.50,"
            " d timestamp NOT NULL DEFAULT '2020-01-01', e boolean NOT NULL DEFAULT true, f double precision NOT NULL DEFAULT 0, g date NOT NULL DEFAULT '2020-01-01',"
            " h timestamptz NOT NULL DEFAULT '2020-01-01Z', i jsonb NOT NULL DEFAULT '{}', j integer[] NOT NULL DEFAULT '{1}', k mood NOT NULL DEFAULT 'sad', l bytea NOT NULL DEFAULT '\\x00ff')",
            "INSERT INTO defaults (id) VALUES (1), (2), (3)",
        ),
        steps=(
            ("UPDATE defaults SET a = 8, c = 2.25, f = 0.5 WHERE id = 1", "INSERT INTO defaults (id, f) VALUES (4, 1)"),
            ("ALTER TABLE defaults ALTER f SET DEFAULT 2.0, ALTER c SET DEFAULT 7", "INSERT INTO defaults (id) VALUES (5)", "UPDATE defaults SET a = 9 WHERE id <= 2", "DELETE FROM defaults WHERE id = 3"),
        ),
    ),
    Table(
        # Connect's converters write the default in place of null unless a setting says not to.
        name="nulls_of_defaults",
        create=("CREATE TABLE nulls_of_defaults (id integer PRIMARY KEY, a integer DEFAULT 7, b text DEFAULT 'x')", "INSERT INTO nulls_of_defaults VALUES (1, NULL, NULL), (2, 2, 'y')"),
        steps=(("UPDATE nulls_of_defaults SET a = NULL, b = NULL WHERE id = 2", "INSERT INTO nulls_of_defaults VALUES (3, NULL, 'z')"),),
    ),
    Table(
        name="enum_grows",
        create=("CREATE TYPE growth AS ENUM ('seed', 'tree')", "CREATE TABLE enum_grows (id integer PRIMARY KEY, a growth)", "INSERT INTO enum_grows VALUES (1, 'seed'), (2, 'tree')"),
        steps=(("UPDATE enum_grows SET a = 'tree' WHERE id = 1",), ("ALTER TYPE growth ADD VALUE 'wood'", "INSERT INTO enum_grows VALUES (3, 'wood')", "UPDATE enum_grows SET a = 'wood' WHERE id = 1")),
    ),
    Table(
        # PostgreSQL writes nothing of rows that get a default; an incremental snapshot sends them.
        name="resnapshotted",
        create=("CREATE TABLE resnapshotted (id integer PRIMARY KEY, n integer)", "INSERT INTO resnapshotted SELECT i, i FROM generate_series(1, 20) AS i"),
        steps=(
            ("ALTER TABLE resnapshotted ADD COLUMN c integer DEFAULT 5", "UPDATE resnapshotted SET n = 0 WHERE id = 1"),
            (
                "INSERT INTO debezium_signal VALUES ('once', 'execute-snapshot', '{\"data-collections\": [\"public.resnapshotted\"], \"type\": \"incremental\"}')",
                "UPDATE resnapshotted SET n = n + 1 WHERE id > 10", "DELETE FROM resnapshotted WHERE id = 20", "UPDATE resnapshotted SET id = 30 WHERE id = 19",
            ),
            ("UPDATE resnapshotted SET n = -1 WHERE id = 2",),
        ),
    ),
    Table(
        name="truncated",
        create=("CREATE TABLE truncated (id integer PRIMARY KEY, n integer)", "INSERT INTO truncated VALUES (1, 1), (2, 2)"),
        steps=(("UPDATE truncated SET n = 9 WHERE id = 1",), ("TRUNCATE truncated",), ("INSERT INTO truncated VALUES (2, 5), (3, 3)",)),
    ),
    Table(
        name="truncated_at_once",
        create=("CREATE TABLE truncated_at_once (id integer PRIMARY KEY, n integer)", "INSERT INTO truncated_at_once VALUES (1, 1), (2, 2)"),
        steps=(("INSERT INTO truncated_at_once VALUES (4, 4)", "TRUNCATE truncated_at_once", "INSERT INTO truncated_at_once VALUES (2, 5), (3, 3)"),),
    ),
    Table(
        name="only_deletes",
        create=("CREATE TABLE only_deletes (id integer PRIMARY KEY, t text)", "INSERT INTO only_deletes VALUES (1, 'x'), (2, 'y'), (3, 'z')"),
        steps=(("DELETE FROM only_deletes WHERE id = 1",), ("DELETE FROM only_deletes WHERE id = 2",)),
    ),
    Table(
        name="deletes_first",
        create=("CREATE TABLE deletes_first (id integer PRIMARY KEY, t text)",),
        steps=(("INSERT INTO deletes_first VALUES (1, 'x'), (2, 'y')", "DELETE FROM deletes_first"), ("INSERT INTO deletes_first VALUES (1, 'z')",)),
    ),
    Table(
        name="double_first_whole",
        create=("CREATE TABLE double_first_whole (id integer PRIMARY KEY, d double precision)", "INSERT INTO double_first_whole VALUES (1, 1), (2, 2)"),
        steps=(("INSERT INTO double_first_whole VALUES (3, 2.5)", "UPDATE double_first_whole SET d = 0.1 WHERE id = 1"), ("UPDATE double_first_whole SET d = 'NaN' WHERE id = 2",)),
    ),
    Table(
        name="nulls_first",
        create=("CREATE TABLE nulls_first (id integer PRIMARY KEY, t text, n integer)", "INSERT INTO nulls_first (id) VALUES (1), (2)"),
        steps=(("UPDATE nulls_first SET t = 'x' WHERE id = 1",), ("UPDATE nulls_first SET n = 7 WHERE id = 2",)),
    ),
    Table(
        name="moved_keys",
        create=("CREATE TABLE moved_keys (id integer PRIMARY KEY, t text)", "INSERT INTO moved_keys SELECT i, 'row ' || i FROM generate_series(1, 20) AS i"),
        steps=(
            ("UPDATE moved_keys SET id = id + 100 WHERE id <= 5",),
            ("UPDATE moved_keys SET id = id - 100, t = 'back' WHERE id IN (101, 102)", "UPDATE moved_keys SET id = 200 WHERE id = 20", "UPDATE moved_keys SET id = 20 WHERE id = 200"),
            ("UPDATE moved_keys SET id = id + 1000",),
        ),
    ),
    altered(
        # PostgreSQL writes nothing of rows that get a default: they have it after their next change.
        "added_column", "id integer, n integer", "(1, 1), (2, 2), (3, 3), (4, 4)",
        ("ALTER TABLE {table} ADD COLUMN c integer DEFAULT 5",), ("INSERT INTO {table} (id, n) VALUES (5, 5)",),
        query="SELECT id, n, CASE WHEN id IN (2, 5) THEN c END::integer AS c FROM {table}",
    ),
    altered(
        "added_column_not_null", "id integer, n integer", "(1, 1), (2, 2), (3, 3), (4, 4)",
        ("ALTER TABLE {table} ADD COLUMN c text NOT NULL DEFAULT 'x'",), ("INSERT INTO {table} (id, n, c) VALUES (5, 5, 'y')", "UPDATE {table} SET n = 0 WHERE id IN (1, 4)"),
    ),
    altered("dropped_column", "id integer, n integer, c text", "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')", ("ALTER TABLE {table} DROP COLUMN c",), ("INSERT INTO {table} VALUES (5, 5)",)),
    altered(
        # A new name is a new column, and rows have it after their next change.
        "renamed_column", "id integer, n integer, c text", "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')",
        ("ALTER TABLE {table} RENAME COLUMN c TO d",), ("INSERT INTO {table} VALUES (5, 5, 'e')",),
        query="SELECT id, n, CASE WHEN id IN (2, 5) THEN d END::text AS d FROM {table}",
    ),
    altered("integer_to_bigint", "id integer, n integer", "(1, 1), (2, 2), (3, 3), (4, 4)", ("ALTER TABLE {table} ALTER n TYPE bigint",), ("INSERT INTO {table} VALUES (5, 5000000000)",)),
    altered("smallint_to_bigint", "id integer, n smallint", "(1, 1), (2, 2), (3, 3), (4, 4)", ("ALTER TABLE {table} ALTER n TYPE bigint",), ("INSERT INTO {table} VALUES (5, 5000000000)",)),
    altered("real_to_double", "id integer, n integer, c real", "(1, 1, 1.5), (2, 2, 2.25), (3, 3, 3), (4, 4, -0.5)", ("ALTER TABLE {table} ALTER c TYPE double precision",), ("INSERT INTO {table} VALUES (5, 5, 1e300)",)),
    altered("key_to_bigint", "id integer, n integer", "(1, 1), (2, 2), (3, 3), (4, 4)", ("ALTER TABLE {table} ALTER id TYPE bigint",), ("INSERT INTO {table} VALUES (5000000000, 5)", "UPDATE {table} SET n = 8 WHERE id = 1")),
    altered("varchar_to_text", "id integer, n integer, c varchar(10)", "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd')", ("ALTER TABLE {table} ALTER c TYPE text",), ("INSERT INTO {table} VALUES (5, 5, repeat('x', 50))",)),
    altered(
        "wider_numeric", "id integer, n integer, c numeric(10,2)", "(1, 1, 1.5), (2, 2, 2.25), (3, 3, 3), (4, 4, 99999999.99)",
        ("ALTER TABLE {table} ALTER c TYPE numeric(14,4)",), ("INSERT INTO {table} VALUES (5, 5, 1234567890.1234)",),
        # PostgreSQL writes nothing of rows whose scale grows.
        query_without_schema="SELECT id, n, (CASE WHEN id IN (2, 5) THEN c ELSE c / 100 END)::numeric(14,4) AS c FROM {table}",
    ),
    altered(
        "key_gets_a_column", "id integer, n integer, b integer NOT NULL DEFAULT 0", "(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)",
        ("ALTER TABLE {table} DROP CONSTRAINT key_gets_a_column_pkey", "ALTER TABLE {table} ADD PRIMARY KEY (id, b)"),
        ("INSERT INTO {table} VALUES (1, 5, 2)", "UPDATE {table} SET n = 8 WHERE id = 1 AND b = 1"),
    ),
    altered(
        "key_loses_a_column", "id integer, n integer, b integer", "(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)",
        ("ALTER TABLE {table} DROP CONSTRAINT key_loses_a_column_pkey", "ALTER TABLE {table} ADD PRIMARY KEY (id)"),
        ("INSERT INTO {table} VALUES (5, 5, 5)", "UPDATE {table} SET n = 8 WHERE id = 1"),
        key="id, b",
    ),
)  # fmt: skip


def random_table(name: str, seed: int, n_steps: int, n_changes: int = 150) -> Table:
    """Random changes of few rows in random transactions: moved keys, rows that return, long values, and DDL in every step."""
    chance = random.Random(seed)
    create = (
        f'CREATE TABLE "{name}" (id bigint PRIMARY KEY, a integer, t text, d double precision, m numeric(12,3), z timestamptz, big text)',
        f'ALTER TABLE "{name}" ALTER big SET STORAGE EXTERNAL',
        f"INSERT INTO \"{name}\" SELECT i, i, 'row ' || i, i / 4.0, i, '2026-01-01Z', repeat(md5(i::text), 90) FROM generate_series(1, 40) AS i",
    )
    ddl = [
        f'ALTER TABLE "{name}" ALTER a TYPE bigint',
        f'ALTER TABLE "{name}" ADD COLUMN late integer',
        f'ALTER TABLE "{name}" ALTER m TYPE numeric(16,5)',
        f'ALTER TABLE "{name}" ADD COLUMN later text',
    ]
    steps = []
    for number in range(n_steps):
        changes = list(_random_changes(name, chance, n_changes))
        if number < len(ddl):
            changes.insert(chance.randrange(len(changes)), ddl[number])
        if number > 1:
            changes.append(f'UPDATE "{name}" SET late = id WHERE id % 3 = 0')
        # A decimal in base64 does not say its scale, and PostgreSQL writes nothing of rows whose scale grows.
        if number == 2:
            changes.append(f'UPDATE "{name}" SET m = m')
        steps.append(tuple(changes))
    return Table(name=name, create=create, steps=tuple(steps))


def _random_changes(name: str, chance: random.Random, n_changes: int) -> Iterator[str]:
    """Statements of which each is a transaction; no statement fails whatever rows there are."""
    for _ in range(n_changes):
        keys = chance.sample(range(1, 61), 2)
        value = chance.choice(["NULL", f"{chance.randrange(-1000, 1000)}"])
        inserted = (
            f"INSERT INTO \"{name}\" (id, a, t, d, m, z, big) VALUES ({keys[0]}, {value}, '{chance.random()}', {chance.random()}, "
            f"{chance.randrange(10**6) / 1000}, '2026-01-02Z', repeat(md5('{chance.random()}'), {chance.choice([1, 90, 120])})) "
            "ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a, t = EXCLUDED.t"
        )
        updated = f'UPDATE "{name}" SET d = {value}, m = {value} WHERE id IN ({keys[0]}, {keys[1]})'
        deleted = f'DELETE FROM "{name}" WHERE id = {keys[0]}'
        moved = f'UPDATE "{name}" SET id = {keys[1]} WHERE id = {keys[0]} AND NOT EXISTS (SELECT FROM "{name}" WHERE id = {keys[1]})'
        lengthened = f"UPDATE \"{name}\" SET big = repeat(md5('{chance.random()}'), 90) WHERE id = {keys[0]}"
        kind = chance.choice(["insert", "insert", "update", "update", "delete", "move", "both", "undone", "lengthen"])
        if kind == "both":
            yield f"BEGIN; {deleted}; {inserted}; {updated}; {moved}; COMMIT"
        elif kind == "undone":
            yield f"BEGIN; {inserted}; {deleted}; ROLLBACK"
        else:
            yield {"insert": inserted, "update": updated, "delete": deleted, "move": moved, "lengthen": lengthened}[
                kind
            ]


#: Before all tables.
EXTENSIONS: Final = (
    *(f"CREATE EXTENSION IF NOT EXISTS {name}" for name in ("hstore", "citext", "ltree")),
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE pair AS (n integer, t text)",
    *(
        f"CREATE DOMAIN {name}"
        for name in (
            "email AS text CHECK (VALUE LIKE '%@%')",
            "price AS numeric(12,2)",
            "positive AS integer CHECK (VALUE > 0)",
            "short AS varchar(10)",
            "nested AS price",
            "birthday AS date",
        )
    ),
    # Who writes a row here asks Debezium for an incremental snapshot.
    "CREATE TABLE debezium_signal (id text PRIMARY KEY, type text, data text)",
)
