"""Secrets that a user puts into options come out nowhere: not in plans, events, progress, checkpoints, logs, traces or tracebacks.

Nor do those of clouds, which are in options, in files and in the environment, or which a cloud's endpoint has issued.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.connector.cloud_accounts import Accounts, accounts
from tests.connector.searched_program import run_searched
from tests.wire.cloud_stubs import point_here
from tests.wire.secured import PASSWORDS, Secured, pkcs8

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

CONF = Path(__file__).parents[2] / "conf"
PROGRAM = Path(__file__).with_name("canary_program.py")
WRONG_PASSWORD = "canary-of-a-wrong-password"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class Run:
    """What came of it: the text of every file and of both streams, by name, and the secrets that were planted."""

    texts: dict[str, str]
    canaries: dict[str, str]

    def hits(self, *, without: re.Pattern[str] | None = None) -> list[str]:
        """Where secrets are, each with what stands around it."""
        found = []
        for name, text in self.texts.items():
            searched = without.sub("", text) if without else text
            for canary, secret in self.canaries.items():
                for match in re.finditer(re.escape(secret), searched):
                    around = searched[max(0, match.start() - 300) : match.end() + 60]
                    found.append(f"{canary} in {name}: …{around}…")
        return found


@pytest.fixture
def cloud_accounts(
    secured_kafka: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Accounts]:
    """The accounts, with the environment that they need. Their files are not among those that are searched."""
    folder = tmp_path_factory.mktemp("accounts")
    with accounts(secured_kafka, folder) as made:
        point_here(monkeypatch, folder, made.environment)
        yield made


def run(folder: Path, conf: Path, secured: Secured, cloud_accounts: Accounts, topic: Any) -> Run:
    names = [topic(cluster=secured.cluster) for _ in range(2)]
    producer = Producer({"bootstrap.servers": secured.cluster.bootstrap_servers})
    producer.produce(names[0], b"a value")
    assert producer.flush(30) == 0
    key = pkcs8(secured.certificates.client).decode()
    chain = "".join(blob.bytes().decode() for blob in secured.certificates.client.cert_chain_pems)
    jaas = f'{MODULE} required username="bob" password="{PASSWORDS["bob"]}";'
    options = {
        "kafka.bootstrap.servers": secured.cluster.bootstrap("SASLTLS"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(secured.certificates.authority_path),
        "kafka.ssl.keystore.key": key,
        "kafka.ssl.keystore.certificate.chain": chain,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
        # They go before the line's.
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORDS["alice"],
    }
    given = {
        "options": options,
        "topic": names[0],
        "copy": names[1],
        "wrong": {"kafka.sasl.password": WRONG_PASSWORD},
        "accounts": {name: [right, cloud_accounts.wrong[name]] for name, right in cloud_accounts.right.items()},
        "malformed": [
            {"kafka.sasl.jaas.config": jaas.replace("=", " ")},
            {"kafka.ssl.keystore.key": key.replace("BEGIN", "BEGUN")},
        ],
    }
    (folder / "options.json").write_text(json.dumps(given))
    done, texts = run_searched(PROGRAM, folder, {"SPARK_CONF_DIR": str(conf), "PYKAFKA_WIRE_TRACE": "stderr"})
    # It has what the user typed.
    del texts["options.json"]
    said = re.findall(r"^(SUCCEEDED|FAILED) (\S+)$", done.stdout, re.MULTILINE)
    wanted = [("SUCCEEDED", name) for name in ("batch", "stream", "sql")]
    wanted += [("FAILED", name) for name in ("batch", "stream", "sql", "task", "malformed-0", "malformed-1")]
    wanted += [(outcome, name) for name in cloud_accounts.right for outcome in ("SUCCEEDED", "FAILED")]
    assert said == wanted, done.stdout[-3000:] + done.stderr[-6000:]
    assert done.returncode == 0
    # What is searched does tell of the query.
    events = "".join(text for name, text in texts.items() if name.startswith("events/"))
    checkpoints = "".join(text for name, text in texts.items() if "/offsets/" in name)
    for text in (done.stdout, done.stderr, events, checkpoints):
        assert names[0] in text
    assert "CreateTempViewUsing" in events
    return Run(
        texts,
        {
            "password": PASSWORDS["alice"],
            "wrong password": WRONG_PASSWORD,
            "JAAS line": PASSWORDS["bob"],
            # A line out of its middle, as it is in no certificate.
            "PEM key": key.splitlines()[2],
            **cloud_accounts.canaries(),
        },
    )


@pytest.mark.long
def test_with_the_documented_redaction_there_is_no_hit_at_all(
    java: None, secured_kafka: Secured, cloud_accounts: Accounts, topic: Any, tmp_path: Path
) -> None:
    assert run(tmp_path, CONF, secured_kafka, cloud_accounts, topic).hits() == []


@pytest.mark.long
def test_at_sparks_defaults_there_is_none_beyond_the_statement_that_was_typed(
    java: None, secured_kafka: Secured, cloud_accounts: Accounts, topic: Any, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "run").mkdir()
    made = run(tmp_path / "run", tmp_path / "conf", secured_kafka, cloud_accounts, topic)
    # The plan of the statement, in the event log, holds its OPTIONS. Spark's own pattern knows no PEM keys.
    assert {hit.partition(" in events/")[0] for hit in made.hits()} == {"PEM key"}
    assert made.hits(without=re.compile(r"\[tableIdent:.*?HashMap\(.*?\)")) == []
