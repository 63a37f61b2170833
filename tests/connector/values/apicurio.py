"""A real schema registry, Apicurio's, in memory: its archive from Maven Central once, then from the cache of downloads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pykafka_wire.local import cache_dir, ensure_java
from pykafka_wire.local.cluster import free_ports
from pykafka_wire.local.jars import downloading, ivy_jar
from pykafka_wire.local.process import SupervisedProcess, Watchdog

_NAME: Final = "apicurio-registry-app"
_VERSION: Final = "2.6.13.Final"
_DOWNLOAD_TIMEOUT_S: Final = 900
_START_TIMEOUT_S: Final = 240
_IVY: Final = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="pykafka-wire" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="{_NAME}" rev="{_VERSION}" conf="default->default" transitive="false">
      <artifact name="{_NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@contextmanager
def apicurio() -> Iterator[str]:
    """The URL of a registry that speaks Confluent's API, empty, gone with the context."""
    home = unpacked()
    folder = Path(tempfile.mkdtemp(prefix="pykafka-wire-registry-"))
    (port,) = free_ports(1)
    command = [str(ensure_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    command += ["-jar", str(home / f"{_NAME}-{_VERSION}-runner.jar")]
    watchdog = Watchdog(folder)
    try:
        server = SupervisedProcess("the schema registry", command, folder / "log", watchdog)
        server.spawn()
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            server.wait_ready(lambda _: _answers(url), _START_TIMEOUT_S)
            yield url
        finally:
            server.kill()
    finally:
        watchdog.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=5) as answer:
            return json.load(answer) == []
    except (urllib.error.URLError, OSError, ValueError):
        return False


def unpacked() -> Path:
    """The registry's folder in the cache. Several processes may ask at the same time: one downloads, the others wait for it."""
    home = cache_dir() / "registry" / f"{_NAME}-{_VERSION}"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with downloading():
            if not home.is_dir():
                _download(home)
    return home


def _download(home: Path) -> None:
    """Download into a scratch folder, then rename it to ``home``: a folder that exists is complete."""
    print(f"Fetching the schema registry {_NAME} {_VERSION} (140 MB) …", file=sys.stderr, flush=True)
    scratch = Path(tempfile.mkdtemp(prefix=".download-", dir=home.parent))
    try:
        (scratch / "ivy.xml").write_text(_IVY, encoding="utf-8")
        command = [str(ensure_java().executable), "-cp", str(ivy_jar()), "org.apache.ivy.Main"]
        command += ["-cache", str(cache_dir() / "ivy"), "-ivy", str(scratch / "ivy.xml"), "-confs", "default"]
        command += ["-types", "tar.gz", "-retrieve", f"{scratch}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S)
        archive = scratch / f"{_NAME}-{_VERSION}-all.tar.gz"
        assert archive.exists(), done.stdout[-3000:] + done.stderr[-3000:]
        with tarfile.open(archive) as packed:
            # The argument came with security releases of Python 3.10 and 3.11.
            packed.extractall(scratch / "home", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        (scratch / "home").rename(home)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
