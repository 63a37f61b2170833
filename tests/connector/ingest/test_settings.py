"""The settings' file: all mistakes at once, each with its line."""

from __future__ import annotations

import inspect
import json
import time
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.ingest import Ingest, IngestError, Table
from pykafka_wire.ingest.settings.mistakes import check_settings
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.settings.settings_file import make_settings, read_settings
from pykafka_wire.ingest.settings.settings_table import settings_table
from pykafka_wire.ingest.tables.formats import format_of

GOOD = r"""
checkpoint = "/lake/_checkpoints/shop"
topics = 'shop\..*'
into = "main.shop"
registry = "https://registry:8081"

[kafka]
bootstrap.servers = "broker:9092"
"sasl.jaas.config" = "file:/run/secrets/jaas"

[defaults]
min_rows = 10

[[table]]
topic = 'shop\.users'
mode = "upsert"
name = "people"

[[table]]
topic = "shop.clicks"
format = "json"
properties = { "delta.targetFileSize" = "128mb", "delta.appendOnly" = true }
"""


def test_the_page_shows_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ingest-settings.md").read_text(encoding="utf-8")
    for of_tables in (False, True):
        table = settings_table(of_tables)
        assert table in page, (
            f"paste the output of ingest.settings.settings_table.settings_table({of_tables}) into docs/ingest-settings.md"
        )


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_has_the_settings_of_every_table(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, GOOD), {"starting_offsets": "latest"})
    assert found.kafka_options == {
        "kafka.isolation.level": "read_committed",
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.sasl.jaas.config": "file:/run/secrets/jaas",
    }
    users, clicks, others = map(found.table_for, ("shop.users", "shop.clicks", "shop.orders"))
    assert (users.mode, users.min_rows, clicks.format, clicks.mode) == ("upsert", 10, "json", "append")
    assert clicks.properties == {"delta.targetFileSize": "128mb", "delta.appendOnly": "true"}
    assert (others.min_rows, others.format, found.starting_offsets) == (10, "registry", "latest")
    assert format_of(found).identifier(found, found.name_of("shop.users")) == "`main`.`shop`.`people`"
    assert format_of(found).identifier(found, found.name_of("shop.a-b")) == "`main`.`shop`.`shop_a_b`"
    assert found.lands("shop.users") and not found.lands("eshop.users") and not found.lands("shop.users\n")


def test_all_mistakes_are_listed_with_their_lines(tmp_path: Path) -> None:
    text = GOOD.replace('mode = "upsert"', 'mode = "update"').replace("min_rows = 10", "min_row = 10")
    text = text.replace('name = "people"', 'name = "_rejects"').replace(r"'shop\..*'", r"'shop(..*'")
    text = text.replace('"json"', '"csv"').replace("[kafka]\nbootstrap.servers", "[kafka]\nclient.id")
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, text))
    lines = [line.strip() for line in error.value.message.splitlines()[1:]]
    assert [line.partition(":")[0] for line in lines] == [
        "line 3",
        "line 7",
        "line 12",
        "line 16",
        "line 17",
        "line 21",
    ]
    for line, part in zip(
        lines, ["regular expression", "bootstrap.servers", "min_rows?", "upsert", "rejects", "json"], strict=True
    ):
        assert part in line, line


def test_mistakes_of_every_kind_are_listed_at_once(tmp_path: Path) -> None:
    """What is missing, unknown or of a wrong type hides no other mistake."""
    text = r"""
topics = 'shop(..*'
checkpoints = "/lake/_checkpoints/shop"
max_rows = "many"
starting_offsets = "now"
registry = "registry:8081"
name = "the shop"

[kafka]
"bootstrap.servers" = "broker"
"security.protocol" = "SSLL"
"request.timeout.ms" = "few"

[defaults]
mode = "update"
min_rows = -1
max_delay = "soon"

[[table]]
name = "a-b"
format = "json"
schema = "user BIGINTT, page STRING"

[[table]]
topic = "shop.clicks"
formt = "json"
options = { failOnDataLos = "false" }
"""
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, text))
    head, *lines = error.value.message.splitlines()
    expected = [
        (1, "checkpoint is missing"), (1, "into is missing"), (2, "regular expression"), (3, "did you mean checkpoint?"),
        (4, "max_rows must be a whole number"), (5, "starting_offsets is 'now'"), (6, "registry is 'registry:8081'"),
        (7, "name is 'the shop'"), (10, "broker"), (11, "SSLL"), (12, "few"), (15, "mode is 'update'"), (16, "min_rows is -1"),
        (17, "max_delay is 'soon'"), (19, "has no topic"), (20, "name is 'a-b'"), (22, "BIGINTT"),
        (26, "did you mean format?"), (27, "failOnDataLoss"),
    ]  # fmt: skip
    for number, part in expected:
        assert any(line.strip().startswith(f"line {number}:") and part in line for line in lines), (number, part, lines)
    assert f"{len(expected)} mistakes" in head and len(lines) == len(expected), lines


#: The smallest valid settings, without a line of a table.
_WHOLE = """checkpoint = "/c"
topics = "t"
into = "/lake"
registry = "http://r"
"""
_KAFKA = '[kafka]\n"bootstrap.servers" = "b:1"\n'
#: What has a section of its own.
_SECTIONS = ("kafka", "catalog", "storage", "registry_options", "defaults")
_OF_INGEST = sorted({field.name for field in fields(Settings)} - {"tables", "defaults"})
_OF_TABLE = sorted(field.name for field in fields(Table))


def _only_mistake(tmp_path: Path, text: str) -> str:
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, text))
    (mistake,) = error.value.message.splitlines()[1:]
    return mistake.strip()


@pytest.mark.parametrize("name", _OF_TABLE)
def test_a_setting_of_a_table_above_the_first_section_is_sent_to_a_table(name: str, tmp_path: Path) -> None:
    """And not to a setting of the ingest whose name is similar, as table_format is to format."""
    if name in _OF_INGEST:  # name, which both have
        return
    mistake = _only_mistake(tmp_path, f'{_WHOLE}{name} = "x"\n{_KAFKA}')
    is_single = name in ("topic", "where", "types", "select", "expect", "position")
    place = "a [[table]]" if is_single else "[defaults] or a [[table]]"
    assert mistake == f"line 5: {name} is a setting of a table: write it in {place}"


@pytest.mark.parametrize("name", _OF_INGEST)
@pytest.mark.parametrize("section", ["[defaults]", '[[table]]\ntopic = "t"'])
def test_a_setting_of_the_ingest_in_a_section_is_sent_above_the_first_one(
    name: str, section: str, tmp_path: Path
) -> None:
    if name in _OF_TABLE:
        return
    mistake = _only_mistake(tmp_path, f'{_WHOLE}{_KAFKA}{section}\n{name} = "x"\n')
    line = 8 if section == "[defaults]" else 9
    assert mistake.startswith(f"line {line}: {name} is ") and "a setting of the whole ingest" in mistake
    assert (f"write it as [{name}]" if name in _SECTIONS else "write it above the first [section]") in mistake


@pytest.mark.parametrize("name", [*_SECTIONS, "table"])
@pytest.mark.parametrize("change", ["{}s", "{}x", "x{}", "{}_settings"])
@pytest.mark.parametrize("brackets", ["[{}]", "[[{}]]"])
def test_a_misspelt_section_is_named_with_its_line_and_the_nearest_section(
    name: str, change: str, brackets: str, tmp_path: Path
) -> None:
    header = brackets.format(change.format(name))
    mistake = _only_mistake(tmp_path, f"{_WHOLE}{_KAFKA}{header}\n")
    right = "[[table]]" if name == "table" else f"[{name}]"
    if change == "{}_settings":  # too far from every name, or not: no other section may be proposed
        assert mistake.startswith("line 7: ") and (right in mistake or "known are" in mistake)
    else:
        assert mistake == f"line 7: {change.format(name)} is unknown: did you mean {right}?"


def test_the_known_settings_include_every_section(tmp_path: Path) -> None:
    mistake = _only_mistake(tmp_path, f"{_WHOLE}zzzzzz = 1\n{_KAFKA}")
    assert all(f"[{name}]" in mistake for name in _SECTIONS) and "[[table]]" in mistake and "checkpoint" in mistake


def test_a_setting_of_kafka_above_the_first_section_is_sent_to_kafka(tmp_path: Path) -> None:
    for line in ('"group.id" = "g"', 'group.id = "g"', '"kafka.group.id" = "g"', "request.timeout.ms = 5"):
        mistake = _only_mistake(tmp_path, f"{_WHOLE}{line}\n{_KAFKA}")
        assert mistake.startswith("line 5: ") and mistake.endswith(": write it in [kafka]"), mistake


@pytest.mark.parametrize(
    ("text", "ms"), [("10s", 10_000), ("10 seconds", 10_000), ("1 minute", 60_000), ("0", 0), ("2H", 7_200_000)]
)
def test_the_time_between_micro_batches_is_written_as_spark_or_as_an_option_has_it(text: str, ms: int) -> None:
    settings = Settings(checkpoint="/c", topics="t", into="/lake", kafka={"bootstrap.servers": "b:1"}, every=text)
    check_settings(settings)
    assert settings.every_ms == ms


def test_a_backslash_in_double_quotes_is_a_mistake_whose_remedy_is_single_quotes(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match=r"line 3.*single quotes, such as 'shop\\\.\.\*'"):
        read_settings(written(tmp_path, GOOD.replace(r"'shop\..*'", r'"shop\..*"')))
    with pytest.raises(IngestError, match="not TOML") as other:
        read_settings(written(tmp_path, GOOD + "oops"))
    assert "single quotes" not in other.value.message


def test_servers_and_times_are_checked_with_the_other_settings(tmp_path: Path) -> None:
    text = 'every = "10"\nui = "here"\nui_token = "hush"\nmetrics_port = 70000\n' + GOOD
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, text))
    assert [line.partition(":")[0].strip() for line in error.value.message.splitlines()[1:]] == [
        f"line {number}" for number in range(1, 5)
    ]
    assert "hush" not in error.value.message and "give a unit" in error.value.message
    good = read_settings(written(tmp_path, 'every = "1m"\nui = 8080\nmetrics_port = "0.0.0.0:9464"\n' + GOOD))
    page = good.page()
    assert page is not None and (page.host, page.port) == ("127.0.0.1", 8080)
    assert good.metrics_address == ("0.0.0.0", 9464)


def test_an_ingest_has_a_name(tmp_path: Path) -> None:
    of_folder = read_settings(written(tmp_path, GOOD))
    named = read_settings(written(tmp_path, 'name = "web"\n' + GOOD))
    inner = read_settings(written(tmp_path, GOOD.replace("_checkpoints/shop", "web/_checkpoint")))
    assert (of_folder.title, named.title, inner.title) == ("shop", "web", "web")
    assert named.group_options == {"groupIdPrefix": "ingest.web"}
    own = read_settings(written(tmp_path, GOOD.replace('"sasl.jaas.config"', '"group.id" = "own"\n"sasl.jaas.config"')))
    assert own.group_options == {}


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('into = "main.shop"', "", "into is missing"),
        ('into = "main.shop"', "into = 3", "into must be text"),
        ('into = "main.shop"', 'into = "./shop"', "give the absolute path"),
        ('into = "main.shop"', 'into = "/the`shop"', "another one"),
        ("min_rows = 10", "min_rows = true", "min_rows must be a whole number"),
        ("min_rows = 10", 'min_rows = "few"', "it must be 0 or more, or auto"),
        ("min_rows = 10", 'max_delay = "soon"', "max_delay is 'soon'"),
        ("min_rows = 10", 'keep = "23h"', "keep is 23h: give 24h or more"),
        ('registry = "https://registry:8081"', "", "topic shop\\.users has no format"),
        ("[[table]]\ntopic = 'shop\\.users'", "[[table]]", "has no topic"),
        ("[defaults]", "[defaults", "are not TOML"),
        ('format = "json"', 'format = "json"\npartition_by = ["a"]\ncluster_by = ["b"]', "supports only one"),
        ('format = "json"', 'format = "string"\nmode = "cdc"', "Debezium"),
        ('"https://registry:8081"', '"https://registry:8081"\nmax_rows = 0', "max_rows is 0"),
    ],
)
def test_a_mistake_names_its_remedy(tmp_path: Path, old: str, new: str, part: str) -> None:
    assert old in GOOD
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, GOOD.replace(old, new)))
    assert part in str(error.value), error.value


def test_topics_may_wait_by_their_own_rates(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, GOOD.replace("min_rows = 10", 'min_rows = "auto"\nmax_delay = "auto"')))
    assert json.loads(found.waits["minOffsetsPerTopic"])[".*"] == {"offsets": "auto", "delay": "auto"}
    only = read_settings(written(tmp_path, GOOD.replace("min_rows = 10", 'min_rows = "auto"')))
    assert json.loads(only.waits["minOffsetsPerTopic"])[".*"] == {"offsets": "auto", "delay": "1m"}


def test_a_command_lines_mistakes_are_listed_too() -> None:
    with pytest.raises(IngestError, match="checkpoint is missing"):
        make_settings({"topics": "a", "into": "/lake", "kafka": {"bootstrap.servers": "b:9092"}})


def test_a_tables_settings_of_the_first_pattern_that_matches_the_whole_name() -> None:
    settings = make_settings(
        {
            "checkpoint": "/c", "topics": ".*", "into": "/lake/", "kafka": {"bootstrap.servers": "b:9092"},
            "defaults": {"format": "json"}, "table": [{"topic": "a"}, {"topic": "a.*", "mode": "upsert"}],
        }
    )  # fmt: skip
    assert [settings.table_for(topic).mode for topic in ("a", "ab", "b")] == ["append", "upsert", "append"]
    assert settings.table_for("ab").format == "json"
    assert format_of(settings).identifier(settings, "t") == "delta.`/lake/t`"


def test_the_tables_of_a_thousand_topics_are_found_quickly() -> None:
    """Each micro-batch asks for each of them."""
    tables = tuple(Table(topic=f"t{number}") for number in range(1_000))
    settings = Settings(
        checkpoint="/c", topics=".*", into="/lake", kafka={"bootstrap.servers": "b:9092"}, tables=tables
    )
    started = time.process_time()
    found = [settings.destinations(f"t{number}")[0].table for number in range(1_000)]
    elapsed_s = time.process_time() - started
    assert found == [*tables]
    assert elapsed_s < 3.0  # about 0.2 s; 14 s when each pattern was compiled again


def test_a_session_of_spark_connect_that_cannot_be_cloned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session_type = pytest.importorskip("pyspark.sql.connect.session").SparkSession
    ingest = Ingest(checkpoint="/c", kafka={"bootstrap.servers": "127.0.0.1:1"}, topics="a", into="/lake")
    monkeypatch.delattr(session_type, "cloneSession", raising=False)  # as before Spark 4.2
    with pytest.raises(IngestError, match=r"Spark Connect needs Spark 4\.2"):
        ingest.start(object.__new__(session_type))


def test_what_the_command_line_gives_leaves_the_files_other_settings_of_the_brokers(tmp_path: Path) -> None:
    given = {"kafka": {"bootstrap.servers": "other:9092"}, "defaults": {"format": "string"}}
    found = read_settings(written(tmp_path, GOOD), given)
    assert found.kafka_options == {
        "kafka.isolation.level": "read_committed",
        "kafka.bootstrap.servers": "other:9092",
        "kafka.sasl.jaas.config": "file:/run/secrets/jaas",
    }
    assert (found.defaults.format, found.defaults.min_rows) == ("string", 10)


def test_debeziums_topics_beside_those_of_tables_are_known_by_their_names() -> None:
    tables = ["shop.public.orders", "shop.public.transaction", "a.b.db.dbo.t"]
    helpers = ["__debezium-heartbeat.shop", "shop", "shop.transaction", "shop.message", "a.b", "a.b.transaction"]
    others = ["shop.orders", "other.transaction"]
    given: Any = {"checkpoint": "/c", "kafka": {"bootstrap.servers": "b:1"}, "topics": ".*", "into": "/lake"}
    settings = Settings(**given, defaults=Table(topic=".*", mode="cdc"))
    assert sorted(settings.helpers([*tables, *helpers, *others])) == sorted(helpers)
    named = replace(settings, tables=(Table(topic=r"shop\.transaction", mode="cdc"),))
    assert sorted(named.helpers([*tables, *helpers])) == sorted({*helpers} - {"shop.transaction"})
    assert list(Settings(**given).helpers([*tables, *helpers, *others])) == helpers[:1], "heartbeats in every mode"


def test_the_tables_of_a_topic_are_the_first_that_matches_or_all_that_take_a_part(tmp_path: Path) -> None:
    text = (
        GOOD
        + r"""
[[table]]
topic = 'shop\.events'
name = "orders"
where = "type = 'order'"
expect = { paid = "amount > 0" }

[[table]]
topic = 'shop\.ev.*'
name = "{topic}_refunds"
types = ["shop.Refund"]
select = ["id", "left(email, 1) AS email"]

[[table]]
topic = 'shop\..*'
mode = "upsert"
key_format = "string"
"""
    )
    found = read_settings(written(tmp_path, text))
    events = found.destinations("shop.events")
    assert [(each.name, each.key) for each in events] == [
        ("orders", "shop.events:orders"), ("shop_events_refunds", "shop.events:shop_events_refunds"),
    ]  # fmt: skip
    assert events[0].table.expect == {"paid": "amount > 0"} and events[1].table.select == (
        "id",
        "left(email, 1) AS email",
    )
    assert [each.key for each in found.destinations("shop.evenings")] == ["shop.evenings:shop_evenings_refunds"]
    assert [each.key for each in found.destinations("shop.users")] == ["shop.users"]
    assert (found.destination("shop.events:orders"), found.table_for("shop.x").mode) == (events[0], "upsert")
    assert found.unused_for("shop.events") is None


def test_mistakes_of_conditions_are_listed_before_spark_starts(tmp_path: Path) -> None:
    text = (
        GOOD.replace("min_rows = 10", "where = 'true'")
        + """
[[table]]
topic = "a"
where = "type = 'order"
select = ["id", "", "upper(name"]
expect = { old = "at < now()", text = "name <> 'now() ('" }

[[table]]
topic = "a"
where = "true; false"
format = "json"

[[table]]
topic = "a"
name = "all"

[[table]]
topic = "b"
types = ["shop.Order"]
mode = "upsert"

[[table]]
topic = "c"
types = ["shop.Order"]
format = "string"
"""
    )
    with pytest.raises(IngestError) as error:
        read_settings(written(tmp_path, text))
    lines = [line.strip() for line in error.value.message.splitlines()[1:]]
    expected = [
        (12, "where is a setting of a single table: write it in a [[table]]"),
        (26, "a quote ' is not closed"), (27, "it is empty"), (27, "a ( is not closed"),
        (28, "expect.old calls now, which returns another result"), (30, "two tables with the same name"),
        (30, "declare the JSON's columns"), (32, "without a ;"), (35, 'give it where = "true"'),
        (41, "with mode upsert, types would"), (46, "types needs format avro"),
    ]  # fmt: skip
    assert len(lines) == len(expected), lines
    for line, (number, part) in zip(lines, expected, strict=True):
        assert line.startswith(f"line {number}: ") and part in line, (number, part, line)
    first = Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="/lake", registry="http://r",
        tables=(Table(topic=r"shop\..*"), Table(topic=r"shop\.events", where="true", name="x")),
    )  # fmt: skip
    check_settings(first)
    unused = first.unused_for("shop.events")
    assert unused is not None and unused.name == "x" and first.unused_for("shop.users") is None
    with pytest.raises(IngestError, match="where belongs to a single table"):
        check_settings(replace(first, defaults=Table(topic=".*", where="true")))


def test_an_ingest_has_the_settings_as_typed_parameters(tmp_path: Path) -> None:
    parameters = dict(inspect.signature(Ingest).parameters)
    for setting in fields(Settings):
        parameter = parameters.pop(setting.name)
        if setting.name not in ("defaults", "tables"):
            assert parameter.annotation == setting.type, setting.name
        if setting.default is not MISSING:
            assert parameter.default == setting.default, setting.name
        else:
            default = parameter.empty if setting.default_factory is MISSING else setting.default_factory()
            assert parameter.default == default, setting.name
    assert not parameters
    file = written(tmp_path, GOOD)
    assert Ingest.from_file(str(file)).settings == read_settings(file)
