"""Each extra alone, in an environment that contains nothing else: `make extras`. What an extra lacks shows nowhere else, since the
tests' own environment has everything."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pykafka_wire.wire.record_producer import RecordProducer
from tests.connector.deployments.run import environment_with
from tests.connector.shown_code import ROOT
from tests.release.test_release import clean_environment, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


class FirstUse(NamedTuple):
    """The first thing that a user does with an extra: a program that ends without an error, and has printed a text."""

    program: str
    printed: str = "well"
    #: Further extras that an extra is documented with.
    beside: str = ""


_COMMAND: Final = "from pykafka_wire.cli import main; import sys; sys.argv = ['pykafka-wire', *{arguments!r}]; main()"
_INGEST: Final = (
    "ingest", "-b", "{servers}", "--topics", "{topic}", "--into", "{folder}/lake", "--format", "json", "--once",
)  # fmt: skip
#: What Iceberg's documentation begins with: a plan, a start that makes the namespace, and a query.
_ICEBERG: Final = """
import pathlib, subprocess, sys
command = [str(pathlib.Path(sys.executable).with_name("pykafka-wire"))]
pathlib.Path("{folder}/shop.toml").write_text('''
checkpoint = "{folder}/c"
topics = "{topic}"
into = "lake.shop"
table_format = "iceberg"
catalog = {{ type = "sql", uri = "sqlite:///{folder}/catalog.db", warehouse = "file://{folder}/lake" }}
kafka = {{ "bootstrap.servers" = "{servers}" }}
defaults = {{ format = "json" }}
''')
for arguments in (["ingest", "{folder}/shop.toml", "--plan"], ["ingest", "{folder}/shop.toml", "--once"]):
    subprocess.run(command + arguments, check=True)
print("well", subprocess.run(command + ["query", "{folder}/shop.toml"], check=True, capture_output=True, text=True).stdout)
"""
_READ: Final = """
from pykafka_wire import read_topic
{imported}
n = sum(batch.num_rows for batch in read_topic({{"kafka.bootstrap.servers": "{servers}", "subscribe": "{topic}", **{options!r}}}))
print("well" if n == 2 else n)
"""
_SPARK: Final = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
{more}
rows = spark.read.format("pykafka-wire").option("kafka.bootstrap.servers", "{servers}").option("subscribe", "{topic}").load()
print("well" if rows.count() == 2 else rows.count())
"""
_METRICS: Final = "from pykafka_wire import metrics\nmetrics.serve_prometheus(spark, port=0)"
USES: Final[Mapping[str, FirstUse]] = {
    "spark": FirstUse(_SPARK.replace("{more}", "")),
    "delta": FirstUse(_SPARK.replace("{more}", "import delta, deltalake, pandas")),
    "deltalake": FirstUse(
        "import deltalake, pyarrow as pa\n"
        'deltalake.write_deltalake("{folder}/t", pa.table({{"topic": ["{topic}"], "partition": [0], "offset": [1]}}))\n'
        'print("well", deltalake.DeltaTable("{folder}/t").version())'
    ),
    "iceberg": FirstUse(_ICEBERG, beside="spark,cli"),
    "pkcs12": FirstUse("from cryptography.hazmat.primitives.serialization import pkcs12; print('well')"),
    "aws": FirstUse(
        "import botocore.session; botocore.session.get_session().get_available_regions('glue'); print('well')"
    ),
    "azure": FirstUse("import azure.identity; azure.identity.DefaultAzureCredential(); print('well')"),
    "google": FirstUse("import google.auth, google.auth.transport.requests; print('well')"),
    "cli": FirstUse(_COMMAND.format(arguments=["topics", "-b", "{servers}"]), printed="{topic}"),
    "prometheus": FirstUse(_SPARK.replace("{more}", _METRICS), beside="spark"),
    "opentelemetry": FirstUse(
        _SPARK.replace("{more}", "from pykafka_wire import metrics\nmetrics.export_opentelemetry(spark)"),
        beside="spark",
    ),
    "ui": FirstUse(
        "from pykafka_wire.page import PageSettings\nfrom pykafka_wire.page.server import Page\n"
        "page = Page(PageSettings())\nprint('well', page.url)\npage.close()"
    ),
    "values": FirstUse(
        "import jsonschema, google.protobuf, urllib3\n"
        + _READ.replace("{imported}", "").replace("{options!r}", "{{'valueFormat': 'json', 'valueSchema': 'n INT'}}")
    ),
    "testing": FirstUse("import pytest, pyspark, pykafka_wire.testing; print('well')"),
}
#: Of this project's own tests and documentation, or they need a compiler (kerberos).
OTHERS: Final = {"browser", "dev", "docs", "kerberos", "moto"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def produce(kafka: Any, topic: str, n_records: int) -> None:
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for n in range(n_records):
            producer.send(topic, json.dumps({"n": n}).encode())


def test_every_extra_has_a_first_use() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) == USES.keys() | OTHERS


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_is_enough_for_its_first_use(
    extra: str, wheel: Path, kafka: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    use, name = USES[extra], topic(1)
    produce(kafka, name, 2)
    extras = ",".join(filter(None, (extra, use.beside)))
    python = environment_with(tmp_path / "environment", f"{wheel}[{extras}]")
    given = {"servers": kafka.bootstrap_servers, "topic": name, "folder": str(tmp_path)}
    settings = {"cwd": tmp_path, "env": clean_environment(python)}
    assert use.printed.format(**given) in run(python, "-c", use.program.format(**given), **settings)


def test_the_extras_of_the_readme_land_a_topic(
    wheel: Path, kafka: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    produce(kafka, name, 1)
    python = environment_with(tmp_path / "environment", f"{wheel}[delta,values,cli,ui]")
    given = {"servers": kafka.bootstrap_servers, "topic": name, "folder": str(tmp_path)}
    arguments = [part.format(**given) for part in _INGEST]
    settings = {"cwd": tmp_path, "env": clean_environment(python)}
    assert "1 rows landed" in run(python.with_name("pykafka-wire"), *arguments, "--ui", "0", **settings)
