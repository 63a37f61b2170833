"""What a command's options are for the clients that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pykafka_wire.cli.connection import connection_options, kafka_options
from pykafka_wire.cli.ingest import _given_settings, ingest
from pykafka_wire.ingest.settings.settings_file import make_settings


@click.command()
@connection_options
def show() -> None:
    click.echo(json.dumps(kafka_options()))


@pytest.mark.parametrize(
    "text, shown",
    [
        ("", {"kafka.bootstrap.servers": "127.0.0.1:9092"}),
        (
            "bootstrap.servers=h:1\nisolation.level=read_committed\nschema.registry.url=http://r:8081\n"
            "basic.auth.user.info=user:secret\n",
            {"kafka.bootstrap.servers": "h:1", "kafka.isolation.level": "read_committed"},
        ),
    ],
)
def test_options_of_the_source_name_brokers_and_nothing_of_a_registry(
    text: str, shown: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYKAFKA_WIRE_BOOTSTRAP", raising=False)
    file = tmp_path / "client.properties"
    file.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(show, ["--config", str(file)])
    assert json.loads(done.output) == shown


def test_an_ingest_divides_what_is_the_brokers_and_what_is_the_registrys() -> None:
    given = ["-X", "kafka.isolation.level=read_committed", "-X", "schema.registry.ssl.ca.location=/ca.pem", "-b", "h:1"]
    given += ["-X", "schema.registry.url=http://r:8081", "-X", "basic.auth.user.info=user:secret"]
    with ingest.make_context("ingest", [*given, "--topics", "t", "--into", "/lake"]) as context:
        settings = make_settings(_given_settings(None, context.params))
    assert settings.kafka_options == {"kafka.bootstrap.servers": "h:1", "kafka.isolation.level": "read_committed"}
    assert settings.registry == "http://r:8081"
    assert settings.registry_options == {
        "schema.registry.ssl.ca.location": "/ca.pem",
        "basic.auth.user.info": "user:secret",
    }
