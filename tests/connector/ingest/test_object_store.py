"""Whole ingests into an object store of S3's protocol, by the command line and killed meanwhile: `make object-store`.

For Delta Spark itself needs Hadoop's connector, since it makes and changes the tables. Iceberg needs no jar.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.connector.cli.conftest import SCRIPT
from tests.connector.ingest.conftest import Shop, avro_schema
from tests.connector.sink.drivers import ROOT

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(1200)]

KEY, SECRET, REGION = "key", "secret", "us-east-1"
#: More than the driver writes itself.
N_FIRST = 20_000
GUIDE = ROOT / "docs/ingest-files.md"
#: Spark's settings as the guide has them.
S3A = dict(re.findall(r"^(spark\.jars\.\w+) +(\S+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
NEW_COLUMN = avro_schema("id int", "note string?")


class DeltaLake:
    """A folder of Delta tables in the store ``url``, and an independent reader of them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.prefix = uuid.uuid4().hex
        self._storage = {
            "AWS_ENDPOINT_URL": url, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        self.settings = f'into = "s3a://lake/{self.prefix}"\n' + toml("storage", self._storage)
        (folder / "conf").mkdir()
        of_hadoop = {
            "impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", "endpoint": url, "endpoint.region": REGION,
            "path.style.access": "true", "connection.ssl.enabled": "false", "access.key": KEY, "secret.key": SECRET,
        }  # fmt: skip
        assert S3A.keys() == {"spark.jars.packages", "spark.jars.excludes"}
        settings = S3A | {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_hadoop.items()}
        (folder / "conf/spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in settings.items())
        )
        self.environment = {"SPARK_CONF_DIR": str(folder / "conf")}

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable(f"s3://lake/{self.prefix}/{name}", storage_options=self._storage)

    def rows(self, name: str) -> Any:
        return self._table(name).to_pyarrow_table()

    def check_writers(self, name: str) -> None:
        with_rows = [commit for commit in self._table(name).history() if n_rows_of(commit)]
        assert {commit["engineInfo"].partition(":")[0] for commit in with_rows} == {"delta-rs"}, with_rows


class IcebergLake:
    """A namespace of Iceberg tables in the store ``url``, and an independent reader of them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.prefix = uuid.uuid4().hex
        self._catalog = {
            "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://lake/{self.prefix}", "s3.endpoint": url,
            "s3.region": REGION, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET,
        }  # fmt: skip
        self.settings = 'into = "lake.shop"\ntable_format = "iceberg"\n' + toml("catalog", self._catalog)
        self.environment: dict[str, str] = {}
        load_catalog("lake", **self._catalog).create_namespace("shop")

    def rows(self, name: str) -> Any:
        return load_catalog("lake", **self._catalog).load_table(f"shop.{name}").scan().to_arrow()


def n_rows_of(commit: Mapping[str, Any]) -> int:
    return int((commit.get("operationMetrics") or {}).get("numOutputRows", 0))


def toml(name: str, values: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "".join(f'"{key}" = "{value}"\n' for key, value in values.items())


def await_more(things: Callable[[], int], process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when there are more things than now."""
    n_before, deadline = things(), time.monotonic() + 240
    while things() <= n_before:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_topics_become_tables_in_an_object_store(
    java: None, outside: Any, topic: Any, registry_url: str, object_store: str, tmp_path: Path, kind: Any
) -> None:
    import boto3

    shop, lake = Shop(None, outside, topic, registry_url, tmp_path), kind(object_store, tmp_path)
    name = shop.create("orders").replace(".", "_")
    file, log = tmp_path / "shop.toml", tmp_path / "log"
    file.write_text(
        f'checkpoint = "{tmp_path}/checkpoint"\ntopics = "{shop.prefix}.*"\nregistry = "{registry_url}"\n'
        + lake.settings
        + toml("kafka", {"bootstrap.servers": outside.servers})
    )
    environment = {**os.environ, **lake.environment}
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    store = boto3.client("s3", endpoint_url=object_store, **keys)

    def n_files() -> int:
        found = store.list_objects_v2(Bucket="lake", Prefix=lake.prefix).get("Contents", [])
        return sum(name in entry["Key"] and entry["Key"].endswith(".parquet") for entry in found)

    def kill_at_next_file() -> None:
        """End an ingest when it has written a file, and may have committed it or not."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                [SCRIPT, "ingest", str(file), "--every", "0s"],
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        try:
            await_more(n_files, process, log)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [SCRIPT, *arguments, "--json"], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    shop.send_avro("orders", avro_schema("id int"), [{"id": n} for n in range(N_FIRST)])
    shop.send("orders", [b"damaged"])
    kill_at_next_file()
    shop.send_avro("orders", NEW_COLUMN, [{"id": n, "note": "x"} for n in range(N_FIRST, N_FIRST + 10)])
    kill_at_next_file()
    run("ingest", str(file), "--once")
    rows = lake.rows(name)
    assert sorted(rows["id"].to_pylist()) == list(range(N_FIRST + 10))
    assert rows["note"].null_count == N_FIRST
    assert lake.rows("_rejects")["value"].to_pylist() == [b"damaged"]
    if isinstance(lake, DeltaLake):  # Iceberg's tables nobody but tasks writes: there is no jar of Iceberg's
        lake.check_writers(name)
    shop.send_avro("orders", NEW_COLUMN, [{"id": -1}])
    run("ingest", str(file), "--once")
    for engine in ("duckdb", "spark"):
        counted = f"SELECT count(*) AS n, count(note) AS noted, min(id) AS least FROM {name}"
        assert json.loads(run("query", str(file), counted, "--engine", engine)) == [
            {"n": N_FIRST + 11, "noted": 10, "least": -1}
        ]
    proof = json.loads(run("ingest", str(file), "--verify"))
    assert proof["comparison"]["n_expected"] == N_FIRST + 12
