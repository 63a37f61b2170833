"""franz-go's kfake: a cluster in a process of its own, built once with Go, and faults that real brokers hardly make.

Owns building and running tests/brokers/kfake_server, and its control. Faults are kfake's own: whichever part of a request
matches gets an error code in response, as a broker would, and not acted on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pykafka_wire.local import NamedCluster
from pykafka_wire.local.jars import cache_dir

SOURCES: Final = Path(__file__).parent / "kfake_server"
#: Where Go's own installer puts it, which is not on everyone's PATH.
_GO_BY_DEFAULT: Final = Path("/usr/local/go/bin/go")
_BUILD_TIMEOUT_S: Final = 900
_CONTROL_TIMEOUT_S: Final = 30


class GoNotFoundError(RuntimeError):
    """There is no Go, or it could not build the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Requests that get an error code in response; an empty selector matches everything.

    Attributes:
        code: 0 to count requests only.
        top_level: set the request's own error code, not those of its partitions.
        skip: matching requests that get their usual response first.
        count: matching requests that get the code; -1 for all.
    """

    api: int
    code: int
    topic: str = ""
    partitions: Sequence[int] = ()
    group: str = ""
    transactional_id: str = ""
    top_level: bool = False
    skip: int = 0
    count: int = 1


class KfakeCluster(NamedCluster):
    """A running kfake cluster."""

    def __init__(self, bootstrap_servers: str, control: str) -> None:
        super().__init__(bootstrap_servers)
        self._control = control

    def inject(self, fault: Fault) -> int:
        """Respond to requests with an error code from now on; returns the fault's number."""
        number: int = self._call("POST", "/faults", asdict(fault))["id"]
        return number

    def end(self, fault: int) -> int:
        """End a fault; returns how many requests it has met."""
        number: int = self._call("DELETE", f"/faults/{fault}")["hits"]
        return number

    def move_leaders(self) -> None:
        """Give every partition a leader chosen at random, with a new epoch."""
        self._call("POST", "/leaders")

    def move_coordinators(self) -> None:
        """Give groups and transactional ids other coordinators."""
        self._call("POST", "/coordinators")

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:  # Any: JSON
        request = urllib.request.Request(f"http://{self._control}{path}", json.dumps(body).encode(), method=method)
        with urllib.request.urlopen(request, timeout=_CONTROL_TIMEOUT_S) as response:
            found: dict[str, Any] = json.load(response)
        return found


def executable() -> Path:
    """The server's program; built once for each version of its sources, into the cache of downloaded jars.

    Raises:
        GoNotFoundError: there is no Go, or it could not build the server, with what it printed.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:12]
    built = cache_dir() / "kfake" / f"kfake-{digest}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        scratch = built.with_name(f".{built.name}.{os.getpid()}")
        command = [go(), "build", "-o", str(scratch), "."]
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
        if done.returncode:
            raise GoNotFoundError(f"{' '.join(command)} failed in {SOURCES}:\n{done.stderr}")
        scratch.rename(built)
    return built


def go() -> str:
    """Go's program.

    Raises:
        GoNotFoundError: there is none.
    """
    found = shutil.which("go") or (str(_GO_BY_DEFAULT) if _GO_BY_DEFAULT.exists() else None)
    if found is None:
        raise GoNotFoundError(
            "Go is not on the PATH: install Go 1.26 or newer (https://go.dev/dl) for franz-go's kfake"
        )
    return found


@contextmanager
def kfake(brokers: int = 1, release: str = "") -> Iterator[KfakeCluster]:
    """A cluster of its own, on ports that were free; it ends with the block, and with this process.

    Args:
        release: of Kafka, whose versions of the APIs it has, such as "3.9"; by default the newest that it knows.
    """
    command = [str(executable()), "-brokers", str(brokers), "-release", release]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        started = json.loads(process.stdout.readline())
        yield KfakeCluster(started["bootstrap"], started["control"])
        process.stdin.close()


def main() -> None:
    """Builds the server before the tests of ``make brokers``, or says what is missing."""
    try:
        executable()
    except GoNotFoundError as error:
        sys.exit(f"make brokers: {error}")


if __name__ == "__main__":
    main()
