"""Bearer tokens: where they come from, how long one is used, and what a token endpoint may not do to us."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError
from pykafka_wire.wire.security import oauth
from pykafka_wire.wire.security.oauth import TokenSource, fetch_token, token_source
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.secured import CLIENT_ID, CLIENT_SECRET, Issuer, unsecured_token

PROVIDER = {"sasl.oauthbearer.token.provider": f"{__name__}:provide"}
#: What `provide` returns next, and what it was called with.
given: list[Any] = []
asked: list[tuple[Any, ...]] = []


def provide(*arguments: str) -> Any:
    asked.append(arguments)
    value = given.pop(0)
    if isinstance(value, Exception):
        raise value
    return value


@pytest.fixture(autouse=True)
def _fresh() -> None:
    given.clear()
    asked.clear()


@pytest.fixture(scope="module")
def _issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def issuer(_issuer: Issuer) -> Iterator[Issuer]:
    with _issuer.serving() as serving:
        serving.requests.clear()
        serving.responses.clear()
        yield serving


def settings(**options: str) -> ClientSettings:
    return ClientSettings.from_options(
        {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **options}
    )


def credentials(url: str, **options: str) -> ClientSettings:
    return settings(
        **{
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.allow.http.loopback": "true",
            **options,
        }
    )


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_provider_may_say_when_its_token_expires(unit: int) -> None:
    given.append(("abc", (time.time() + 100) * unit))
    token = fetch_token(settings(**PROVIDER))
    assert token.value == "abc"
    assert token.lifetime_s == pytest.approx(100, abs=5)
    assert asked == [()]


def test_a_provider_is_called_with_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_CONFIG", "eu-west-1")
    given.extend(["abc", "abc"])
    fetch_token(settings(**PROVIDER, **{"sasl.oauthbearer.config": "eu-west-2"}))
    fetch_token(settings(**PROVIDER, **{"sasl.oauthbearer.config": "env:THE_CONFIG"}))
    assert asked == [("eu-west-2",), ("eu-west-1",)]


def test_a_token_tells_its_own_expiry_where_the_provider_does_not() -> None:
    given.extend([unsecured_token(50), "opaque", "e30.e30.", "a.!.c"])
    assert fetch_token(settings(**PROVIDER)).lifetime_s == pytest.approx(50, abs=5)
    for _ in range(3):
        assert fetch_token(settings(**PROVIDER)).lifetime_s is None


def test_extensions_come_from_settings_and_from_the_provider() -> None:
    given.append(("abc", None, {"b": "3"}))
    made = fetch_token(settings(**PROVIDER, **{"sasl.oauthbearer.extensions": "a=1, b=2"}))
    assert made.extensions == {"a": "1", "b": "3"}


@pytest.mark.parametrize("value", [None, "", (), ("a", "soon"), (1, 2), b"abc"])
def test_a_provider_that_returns_something_else_is_named(value: Any) -> None:
    given.append(value)
    with pytest.raises(SettingsError, match="must return the token as str"):
        fetch_token(settings(**PROVIDER))


def test_what_a_failing_provider_says_is_not_repeated() -> None:
    given.extend([ValueError("canary"), ConnectionError("canary")])
    with pytest.raises(AuthenticationError, match=r"failed \(ValueError\)") as caught:
        fetch_token(settings(**PROVIDER))
    assert "canary" not in str(caught.value)
    with pytest.raises(TransportError, match=r"failed \(ConnectionError\)"):  # may do better later
        fetch_token(settings(**PROVIDER))


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    made = settings(**{"sasl.oauthbearer.token.endpoint.url": path.as_uri()})
    path.write_text("abc\n")
    assert fetch_token(made).value == "abc"
    path.write_text("def\n")
    assert fetch_token(made).value == "def"


def test_settings_that_say_nothing_of_tokens_are_refused() -> None:
    with pytest.raises(SettingsError, match="no source of tokens is set"):
        fetch_token(settings())


# --- the current token ------------------------------------------------------------------------------------------------


def test_a_token_is_used_for_most_of_its_life_and_then_replaced() -> None:
    source = TokenSource(settings(**PROVIDER))
    given.extend([("one", time.time() + 1.0), ("two", time.time() + 100)])
    assert source.token().value == "one"
    assert source.token().value == "one"
    deadline = time.monotonic() + 5
    while source.token().value == "one" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert source.token().value == "two"
    assert len(asked) == 2


def test_the_old_token_serves_on_where_no_new_one_is_to_be_had(caplog: pytest.LogCaptureFixture) -> None:
    source = TokenSource(settings(**PROVIDER, **{"sasl.login.refresh.window.factor": "0.5"}))
    given.extend([("one", time.time() + 8.0), ConnectionError("gone")])
    assert source.token().value == "one"
    deadline = time.monotonic() + 60
    while len(asked) < 2 and time.monotonic() < deadline:
        assert source.token().value == "one"
        time.sleep(0.01)
    assert "using the old one until it expires" in caplog.text
    assert source.token().value == "one"


def test_a_token_of_unknown_life_serves_one_connection() -> None:
    source = TokenSource(settings(**PROVIDER))
    given.extend(["one", "two"])
    assert [source.token().value, source.token().value] == ["one", "two"]


def test_a_refused_token_is_not_used_again() -> None:
    source = TokenSource(settings(**PROVIDER))
    given.extend([("one", time.time() + 100), ("two", time.time() + 100)])
    first = source.token()
    source.invalidate(first)
    second = source.token()
    assert second.value == "two"
    source.invalidate(first)  # another connection, a moment later
    assert source.token() is second


def test_many_connections_at_once_ask_for_one_token(issuer: Issuer) -> None:
    source = TokenSource(credentials(issuer.url))
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(source.token().value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(issuer.requests) == 1


def test_a_refusal_is_remembered_for_a_moment(issuer: Issuer) -> None:
    source = TokenSource(credentials(issuer.url, **{"sasl.oauthbearer.client.credentials.client.secret": "wrong"}))
    errors = []
    for _ in range(3):
        with pytest.raises(AuthenticationError) as caught:
            source.token()
        errors.append(caught.value)
    assert len(issuer.requests) == 1
    assert len({id(error) for error in errors}) == 3  # an error is changed by whoever raises it


def test_settings_share_a_source_in_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    source = token_source(settings(**PROVIDER))
    assert token_source(settings(**PROVIDER)) is source
    assert token_source(settings(**PROVIDER, **{"client.id": "other"})) is not source
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert token_source(settings(**PROVIDER)) is not source


# --- client credentials -----------------------------------------------------------------------------------------------


def test_what_the_endpoint_says_of_a_tokens_life_counts(issuer: Issuer) -> None:
    issuer.responses.append((200, b'{"access_token":"abc","expires_in":"77"}'))
    issuer.responses.append((200, b'{"access_token":"abc","expires_in":88}'))
    issuer.responses.append((200, b'{"access_token":"abc"}'))
    made = credentials(issuer.url)
    assert [fetch_token(made).lifetime_s for _ in range(3)] == [77, 88, None]


@pytest.mark.parametrize(
    "expires_in", ["1e999", "NaN", "-Infinity", "1" + "0" * 400, '"' + "9" * 5000 + '"', '"soon"', "true", "null", "[]"]
)
def test_a_life_that_is_no_time_is_unknown(issuer: Issuer, expires_in: str) -> None:
    issuer.responses += [(200, f'{{"access_token":"abc","expires_in":{expires_in}}}'.encode())] * 2
    source = TokenSource(credentials(issuer.url))
    assert source.token().lifetime_s is None
    assert source.token().value == "abc"


@pytest.mark.parametrize(
    "claims", ["[" * 100_000, '{"exp":1e999}', '{"exp":NaN}', '{"exp":1' + "0" * 400 + "}", '{"exp":true}']
)
def test_claims_that_are_no_time_are_left_out(claims: str) -> None:
    given.append(f"e30.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.")
    assert fetch_token(settings(**PROVIDER)).lifetime_s is None


@pytest.mark.parametrize("expires_at", [float("nan"), float("inf"), 10**400])
def test_an_expiry_of_a_provider_that_is_no_time_is_unknown(expires_at: float) -> None:
    given.append(("abc", expires_at))
    assert fetch_token(settings(**PROVIDER)).lifetime_s is None


def test_id_and_secret_are_percent_encoded_where_asked(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        issuer, "response", lambda header, form: (seen.append(header), (200, b'{"access_token":"a"}'))[1]
    )
    odd = {"sasl.oauthbearer.client.credentials.client.secret": "a:b/c d"}
    fetch_token(credentials(issuer.url, **odd))
    fetch_token(credentials(issuer.url, **odd, **{"sasl.oauthbearer.header.urlencode": "true"}))
    texts = [base64.b64decode(header.removeprefix("Basic ")).decode() for header in seen]
    assert texts == [f"{CLIENT_ID}:a:b/c d", f"{CLIENT_ID}:a%3Ab%2Fc+d"]


@pytest.mark.parametrize(
    ("response", "error", "said"),
    [
        ((400, b'{"error":"invalid_scope"}'), AuthenticationError, "400 .invalid_scope"),
        ((403, b"<html>"), AuthenticationError, "rejected the client: HTTP 403"),
        ((302, b"http://127.0.0.1:1/elsewhere"), AuthenticationError, "302"),
        ((307, b"http://127.0.0.1:1/elsewhere"), AuthenticationError, "307"),
        ((429, b""), TransportError, "429"),
        ((500, b'{"error":"oops\\u0007"}'), TransportError, "500 .oops "),
        ((200, b"<html>"), AuthenticationError, "something else than a JSON object"),
        ((200, b"[]"), AuthenticationError, "something else than a JSON object"),
        ((200, b"[" * 500_000), AuthenticationError, "something else than a JSON object"),
        ((200, b'{"a":' * 100_000), AuthenticationError, "something else than a JSON object"),
        ((400, b"[" * 60_000), AuthenticationError, "rejected the client: HTTP 400"),
        ((200, b"{}"), AuthenticationError, "no access_token"),
        ((200, b'{"access_token":""}'), AuthenticationError, "no access_token"),
        ((200, b" " * 1_100_000), AuthenticationError, "longer than 1 MiB"),
    ],
)
def test_a_response_that_is_no_token_says_what_it_was(issuer: Issuer, response: Any, error: Any, said: str) -> None:
    issuer.responses.append(response)
    with pytest.raises(error, match=said) as caught:
        fetch_token(credentials(issuer.url))
    assert CLIENT_SECRET not in str(caught.value)
    assert len(issuer.requests) == 1


def test_an_endpoint_that_is_not_there_may_be_there_later() -> None:
    with pytest.raises(TransportError, match="could not be reached"):
        fetch_token(credentials("http://127.0.0.1:1/token"))


def test_an_endpoint_that_says_nothing_is_given_up(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer, "response", lambda *_: (time.sleep(5), (200, b"{}"))[1])
    started = time.monotonic()
    with pytest.raises(TransportError):
        fetch_token(credentials(issuer.url, **{"sasl.login.read.timeout.ms": "100"}))
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("start", [b"", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 400 Bad Request\r\n\r\n"])
def test_an_endpoint_that_sends_byte_after_byte_is_given_up(start: bytes) -> None:
    """Of its headers, of a token, and of the description of an error."""
    given_up = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(start or b"HTTP/1.0 200 OK\r\nX: ")
            while not given_up.wait(0.01):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        timer = threading.Timer(20, given_up.set)
        timer.start()
        started = time.monotonic()
        try:
            with pytest.raises((TransportError, AuthenticationError)):
                fetch_token(
                    credentials(f"http://127.0.0.1:{server.getsockname()[1]}/", **{"sasl.login.read.timeout.ms": "300"})
                )
            assert time.monotonic() - started < 10
        finally:
            timer.cancel()
            given_up.set()
            thread.join()


@pytest.mark.parametrize("url", ["http://login.example/token", "ftp://x/", "token", "http://127.0.0.1.example/"])
def test_a_secret_goes_out_by_https_only(url: str) -> None:
    with pytest.raises(SettingsError, match="does not use https"):
        fetch_token(credentials(url))


def test_credentials_in_the_url_are_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="user or a password") as raised:
        fetch_token(credentials("https://client:canary@login.example/token"))
    assert "canary" not in str(raised.value)
    assert "canary" not in repr(credentials("https://client:canary@login.example/token"))


def test_http_on_this_machine_must_be_asked_for() -> None:
    with pytest.raises(SettingsError, match=r"allow\.http\.loopback"):
        fetch_token(credentials("http://127.0.0.1:1/", **{"sasl.oauthbearer.allow.http.loopback": "false"}))


def test_the_endpoints_certificate_is_checked(_issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    with _issuer.serving(authority.issue_cert("127.0.0.1")) as issuer:
        with pytest.raises(AuthenticationError, match="certificate of the token endpoint"):
            fetch_token(credentials(issuer.url))
        line = f'OAuthBearerLoginModule required ssl.truststore.location="{path}";'
        assert fetch_token(credentials(issuer.url, **{"sasl.jaas.config": line})).value
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        monkeypatch.setattr(oauth, "_tls_context", uncached(oauth._tls_context))
        assert fetch_token(credentials(issuer.url)).value


def uncached(make: Any) -> Any:
    """The environment is read when a context is made, not when it is used."""
    from pykafka_wire.wire.security import tls

    def made(*arguments: Any) -> Any:
        tls._build.cache_clear()
        return make(*arguments)

    return made


@pytest.mark.parametrize("missing", ["client.id", "client.secret"])
def test_missing_client_credentials_are_named(missing: str) -> None:
    name = f"sasl.oauthbearer.client.credentials.{missing}"
    with pytest.raises(SettingsError) as caught:
        fetch_token(credentials("https://login.example/", **{name: ""}))
    assert caught.value.setting == name


def test_a_token_does_not_show_itself() -> None:
    given.append("canary")
    assert "canary" not in repr(fetch_token(settings(**PROVIDER)))
