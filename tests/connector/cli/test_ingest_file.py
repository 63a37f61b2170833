"""The file of settings that an ingest writes which is started with options alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.cli.ingest import _given_settings, ingest
from pykafka_wire.cli.ingest_file import keep_settings
from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.settings.settings_file import make_settings, read_settings

OPTIONS = (
    "-b", "h:1", "-X", "kafka.sasl.jaas.config=user:secret", "-X", "security.protocol=SASL_SSL", "--topics", r"shop\..*",
    "-X", "basic.auth.user.info=user:hush", "--registry", "http://user:hush@r:8081", "--mode", "upsert", "--format", "json",
    "--every", "1 minute", "--ui", "0", "--ui-values", "--metrics-port", "127.0.0.1:9464",
)  # fmt: skip


def given(into: str | Path, *more: str) -> dict[str, Any]:
    with ingest.make_context("ingest", [*OPTIONS, "--into", str(into), *more]) as context:
        return _given_settings(None, context.params)


@pytest.mark.unit
def test_the_file_has_every_option_but_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = given(tmp_path / "lake")
    file = tmp_path / "lake" / "ingest.toml"
    assert keep_settings(options) == f"settings: {file}"
    text = file.read_text()
    assert "secret" not in text and "hush" not in text and file.stat().st_mode & 0o077 == 0
    assert '"sasl.jaas.config" = "env:SASL_JAAS_CONFIG"  # set this variable' in text
    assert 'registry = "http://r:8081"' in text and '"basic.auth.user.info" = "env:BASIC_AUTH_USER_INFO"' in text
    monkeypatch.setenv("SASL_JAAS_CONFIG", "user:secret")
    stored, asked = read_settings(file), make_settings(options)
    differ = [name for name in Settings.__slots__ if getattr(stored, name) != getattr(asked, name)]
    assert sorted(differ) == ["kafka", "registry", "registry_options"]  # which have the secrets
    assert (stored.defaults.mode, stored.every_ms, stored.metrics_address) == ("upsert", 60_000, ("127.0.0.1", 9464))
    page = stored.page()
    assert page is not None and (page.port, page.shows_values) == (0, True)


@pytest.mark.unit
def test_a_start_with_other_options_replaces_the_file_unless_it_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "ingest.toml"
    keep_settings(given(tmp_path))
    keep_settings(given(tmp_path, "--every", "5s"))
    assert read_settings(file).every == "5s"
    other = given(tmp_path) | {"checkpoint": str(tmp_path / "other")}
    assert "another checkpoint, so it is not replaced" in keep_settings(other)
    assert read_settings(file).every == "5s"
    file.write_text(file.read_text() + "# mine\n")
    edited = file.read_text()
    assert "was edited, so it is not replaced" in keep_settings(given(tmp_path, "--every", "7s"))
    assert file.read_text() == edited
    file.write_bytes("# für mich\n".encode("latin-1"))
    assert "was edited, so it is not replaced" in keep_settings(given(tmp_path, "--every", "7s"))


@pytest.mark.unit
@pytest.mark.parametrize("text", ["a 😀", "a\x7fb", "(?x)a\\.b\n|c", r"a\.'b|c\"d", r"shop\..*"])
def test_the_file_has_each_text_as_it_was_given(tmp_path: Path, text: str) -> None:
    keep_settings(given(tmp_path) | {"topics": text})
    assert read_settings(tmp_path / "ingest.toml").topics == text


@pytest.mark.unit
def test_a_folder_whose_name_is_no_utf_8_gets_no_file(tmp_path: Path) -> None:
    assert "cannot be written (its settings are not UTF-8)" in keep_settings(given(f"{tmp_path}/\udcff"))
    assert not list(tmp_path.rglob("ingest.toml"))


@pytest.mark.unit
def test_tables_that_are_in_no_folder_of_this_machine_have_no_file(tmp_path: Path) -> None:
    for into in ("s3://bucket/lake", "main.shop"):
        assert keep_settings(given(into, "--checkpoint", str(tmp_path))) == ""


@pytest.mark.unit
def test_commands_take_the_folder_in_place_of_the_file(tmp_path: Path, command: Callable[..., Any]) -> None:
    assert "has no ingest.toml" in command("query", str(tmp_path), code=2).stderr
    assert "name the settings file of the ingest" in command("query", "s3://bucket/shop", code=2).stderr
    assert "or give --topics and --into" in command("ingest", code=2).stderr
    keep_settings(given(tmp_path))
    assert json.loads(command("query", str(tmp_path), "--json").stdout) == []
