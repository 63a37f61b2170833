"""A server before a schema registry, or in its place: it passes requests on, remembers them, and fails as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_server import QuietHandler, http_server


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the server sends instead of the registry's response. Without a status the connection is closed without one."""

    status: int | None = 200
    content: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Waits so long before the response, and after each of its bytes where it ``drips``.
    delay_s: float = 0
    drips: bool = False


def schema_response(text: str, kind: str = "AVRO", **more: Any) -> Response:
    return Response(content=json.dumps({"schema": text, "schemaType": kind, **more}).encode())


@dataclass
class RegistryFront:
    """Attributes:
    upstream: the registry's URL; without one, what ``responses`` lacks is "not found".
    responses: by path; "" for every path that has none of its own.
    asked: method and path of each request, in order; ``headers`` the headers of each.
    """

    url: str = ""
    upstream: str | None = None
    responses: dict[str, Response] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    n_connections: int = 0
    #: Ends the waits of slow responses when the test ends.
    over: threading.Event = field(default_factory=threading.Event)

    def n_asked(self, path: str) -> int:
        return sum(each.endswith(path) for each in self.asked)


@contextmanager
def registry_front(upstream: str | None = None, tls: ssl.SSLContext | None = None) -> Iterator[RegistryFront]:
    front = RegistryFront(upstream=upstream)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"  # with connections that serve several requests
        disable_nagle_algorithm = True  # or a response waits 40 ms for the client's acknowledgement of its headers

        def setup(self) -> None:
            super().setup()
            front.n_connections += 1

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (OSError, ValueError):  # the client went away
                self.close_connection = True

        def respond(self) -> None:
            content = self.body() or None
            front.asked.append(f"{self.command} {self.path}")
            front.headers.append(dict(self.headers))
            response = front.responses.get(self.path) or front.responses.get("")
            if response is None and front.upstream is not None:
                response = _passed_on(front.upstream + self.path, self.command, content)
            self._send(
                response or Response(status=404, content=b'{"error_code": 40403, "message": "Schema not found"}')
            )

        def do_CONNECT(self) -> None:  # noqa: N802
            """As an HTTP proxy does for TLS: passes bytes on in both directions."""
            front.asked.append(f"{self.command} {self.path}")
            front.headers.append(dict(self.headers))
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=30) as server:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_relay, args=(server, self.connection))
                back.start()
                _relay(self.connection, server)
                back.join()
            self.close_connection = True

        def _send(self, response: Response) -> None:
            front.over.wait(response.delay_s)
            if response.status is None:
                self.close_connection = True
                return
            self.send_response(response.status)
            for name, value in {"Content-Length": str(len(response.content)), **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            step = 1 if response.drips else max(1, len(response.content))
            for at in range(0, len(response.content), step):
                self.wfile.write(response.content[at : at + step])
                if response.drips:
                    front.over.wait(response.delay_s)

    with http_server(Handler, tls) as url:
        front.url = url.replace("127.0.0.1", "localhost")  # the name in the certificate
        try:
            yield front
        finally:
            front.over.set()


def _relay(source: socket.socket, target: socket.socket) -> None:
    """Everything from one connection to the other, until its end."""
    with contextlib.suppress(OSError):
        while content := source.recv(65_536):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _passed_on(url: str, method: str, content: bytes | None) -> Response:
    headers = {"Content-Type": "application/json"} if content else {}
    deadline = time.monotonic() + 60
    while True:
        try:
            asked = urllib.request.Request(url, content, headers, method=method)
            with urllib.request.urlopen(asked, timeout=30) as response:
                return Response(status=response.status, content=response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(status=error.code, content=error.read())
        except OSError:
            if time.monotonic() > deadline:
                return Response(status=None)
