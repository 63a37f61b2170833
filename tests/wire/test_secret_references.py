"""Secrets by reference: resolved when needed, with errors that tell the place and never the secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import load_callable, resolve

CANARY = "canary-4711"


def provide(setting: str) -> str:
    return f"for {setting}"


def provide_nothing(setting: str) -> None:
    return None


def fail(setting: str) -> str:
    raise RuntimeError(CANARY)


@pytest.mark.parametrize("text", ["secret", "a:b", "", "-----BEGIN KEY-----\nfile:x", "https://x"])
def test_a_text_that_is_no_reference_is_itself(text: str) -> None:
    assert resolve(text, "s") == text


def test_a_text_that_looks_like_a_reference_can_be_written() -> None:
    assert resolve("literal:env:HOME", "s") == "env:HOME"


@pytest.mark.parametrize(("content", "text"), [("pw\n", "pw"), ("pw\r\n", "pw"), ("pw", "pw"), ("a\nb\n", "a\nb")])
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_file_is_read_without_its_last_line_break(tmp_path: Path, scheme: str, content: str, text: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content.encode())
    assert resolve(f"{scheme}{path}", "s") == text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"sasl\.password refers to the file .*nowhere, which cannot be read: No such"
    ):
        resolve(f"file:{tmp_path / 'nowhere'}", "sasl.password")


def test_an_environment_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", CANARY)
    assert resolve("env:A_SECRET", "s") == CANARY
    monkeypatch.delenv("A_SECRET")
    with pytest.raises(SettingsError, match="environment variable A_SECRET, which is not set"):
        resolve("env:A_SECRET", "s")


def test_a_provider_is_called_with_the_settings_name() -> None:
    assert resolve(f"provider:{__name__}:provide", "sasl.password") == "for sasl.password"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{__name__}:provide_nothing", "returned NoneType, not str"),
        (f"{__name__}:fail", r"failed \(RuntimeError\)"),
        ("no_such_module_4711:f", "cannot be imported"),
        (f"{__name__}:no_such_function", "cannot be imported"),
        (f"{__name__}:CANARY", "cannot be called"),
        ("just_a_module", "names no function. Write provider:module:function"),
    ],
)
def test_a_provider_that_will_not_do_is_named(path: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        resolve(f"provider:{path}", "sasl.password")
    assert caught.value.setting == "sasl.password"
    assert "canary-4711" not in str(caught.value)


@pytest.mark.parametrize("kind", ["env", "file", "provider"])
def test_a_secret_that_looks_like_a_reference_is_not_shown(kind: str) -> None:
    with pytest.raises(SettingsError, match=f"literal:{kind}:") as caught:
        resolve(f"{kind}:canary-4711", "sasl.password")
    assert "canary-4711" not in str(caught.value)


@pytest.mark.parametrize("path", ["client{acks}:canary-4711", "me:p@canary-4711", "json:", "json"])
def test_what_is_no_path_of_a_function_is_not_shown(path: str) -> None:
    with pytest.raises(SettingsError, match=r"names no function. Write module:function") as caught:
        load_callable(path, "sasl.oauthbearer.token.provider")
    assert path not in str(caught.value)


def test_an_import_path_may_lead_into_an_object() -> None:
    assert load_callable("pathlib:Path.home", "s") == Path.home


def test_a_variable_that_is_not_text_is_named_and_not_shown() -> None:
    os.environb[b"NOT_TEXT"] = b"canary\xff"
    try:
        with pytest.raises(SettingsError, match="NOT_TEXT, which is not UTF-8") as raised:
            resolve("env:NOT_TEXT", "s")
        assert "canary" not in f"{raised.value} {raised.value.__cause__} {raised.value.__context__}"
    finally:
        del os.environb[b"NOT_TEXT"]
