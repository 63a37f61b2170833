from __future__ import annotations

import io
import json
import logging
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from pykafka_wire.local import java as java_module
from pykafka_wire.local.java import JavaNotFoundError, ensure_java, export_java_home, find_java, parse_version
from tests.http_server import QuietHandler, http_server, server_context


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_372"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_is_the_feature_release(printed: str, version: int | None) -> None:
    assert parse_version(printed) == version


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which no Java is found; its bin folder is the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CJDK_CACHE_DIR", str(tmp_path / "cjdk"))
    monkeypatch.setattr(java_module, "LINUX_JVMS", tmp_path / "jvms")
    monkeypatch.setattr(java_module, "MACOS_JAVA_HOME", tmp_path / "no-such-program")
    return tmp_path


def install(home: Path, version: str) -> Path:
    """A program that says of itself what a Java of that version says."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(
        "#!/bin/sh\n"
        f"[ \"$1\" = -XshowSettings:properties ] && echo '    java.home = {home}' >&2\n"
        f"echo 'openjdk version \"{version}\" 2025-01-01' >&2\n"
    )
    executable.chmod(0o755)
    return home


def test_the_java_that_runs_here_is_found() -> None:
    found = find_java()
    if found is None:
        pytest.skip("this machine has no Java installed; one is downloaded for the brokers")
    assert found.version >= 17
    assert found.executable.exists()


def test_java_home_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(nowhere, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "seventeen", "17.0.2")))
    found = find_java()
    assert found is not None
    assert (found.version, found.origin, found.home) == (17, "JAVA_HOME", nowhere / "seventeen")


def test_one_too_old_in_java_home_is_passed_over_for_a_good_one_on_the_path(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "eleven", "11.0.2")))
    # As a version manager does it: the program on the PATH is a script of its own that runs another.
    home = install(nowhere / "managed" / "twentyone", "21.0.1")
    shim = nowhere / "bin" / "java"
    shim.write_text(f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
    shim.chmod(0o755)
    found = find_java()
    assert found is not None
    assert (found.version, found.origin, found.home) == (21, "the PATH", home)


def test_installed_but_not_on_the_path_is_found_newest_first(nowhere: Path) -> None:
    install(nowhere / "jvms" / "java-17", "17.0.2")
    install(nowhere / "jvms" / "java-11", "11.0.2")
    install(nowhere / "jvms" / "java-21", "21.0.2")
    found = find_java()
    assert found is not None
    assert found.version == 21


def test_none_is_found_where_there_is_none(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_java() is None
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "missing"))
    assert find_java() is None


def test_without_java_and_without_a_network_one_sentence_names_what_to_install(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "eleven", "11.0.2")))
    # Nothing listens on port 1: the download fails at once, as it does behind a firewall.
    monkeypatch.setenv("CJDK_INDEX_URL", "https://127.0.0.1:1/index.json")
    with caplog.at_level(logging.WARNING), pytest.raises(JavaNotFoundError) as raised:
        ensure_java()
    message = str(raised.value)
    assert message.startswith("Java 17 or newer is needed (JAVA_HOME names ")
    assert "which is Java 11" in message
    assert "install a JDK, for example with `" in message
    assert "\n" not in message
    assert "downloading temurin 17" in caplog.text


@pytest.fixture
def jdk_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An HTTPS server that offers a JDK in the way of cjdk's index; yields the paths that were asked for."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        script = b"#!/bin/sh\necho 'openjdk version \"17.0.99\" 2025-01-01' >&2\n"
        program = tarfile.TarInfo("jdk-17.0.99/bin/java")
        program.size, program.mode = len(script), 0o755
        tar.addfile(program, io.BytesIO(script))
    asked: list[str] = []
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    class Site(QuietHandler):
        index: dict[str, object]

        def respond(self) -> None:
            asked.append(self.path)
            self.send(200, json.dumps(self.index).encode() if self.path == "/index.json" else packed.getvalue())

    with http_server(Site, server_context(authority.issue_cert("localhost"))) as url:
        site = url.replace("127.0.0.1", "localhost")  # the name in the certificate
        package = {"jdk@temurin": {"17.0.99": f"tgz+{site}/jdk.tar.gz"}}
        Site.index = {system: dict.fromkeys(("amd64", "arm64"), package) for system in ("linux", "darwin")}
        monkeypatch.setenv("CJDK_INDEX_URL", f"{site}/index.json")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        for proxy in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(proxy, raising=False)
        yield asked


def test_without_java_one_is_downloaded_once_and_said_so(
    nowhere: Path, jdk_site: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        downloaded = ensure_java()
    assert (downloaded.version, downloaded.origin) == (17, "cjdk")
    assert nowhere / "cjdk" in downloaded.home.parents
    assert "no java in JAVA_HOME or on the PATH" in caplog.text
    assert str(downloaded.home) in caplog.text
    assert jdk_site == ["/index.json", "/jdk.tar.gz"]
    assert ensure_java() == downloaded
    assert jdk_site == ["/index.json", "/jdk.tar.gz"]

    monkeypatch.setenv("JAVA_HOME", "/wherever")
    export_java_home(downloaded)
    assert os.environ["JAVA_HOME"] == str(downloaded.home)
