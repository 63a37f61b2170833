"""A schema registry that responds as a test says, for schemas that real registries do not let in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@contextmanager
def scripted_registry(responses: dict[str, Any]) -> Iterator[str]:
    """The URL of a server that responds to each path of ``responses``, quoted or not, with its JSON; 404 for others.

    A response of bytes is sent as it is. Responses may be changed while the server runs.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            response = responses.get(unquote(self.path))
            missing = {"error_code": 40403, "message": "not found"}
            content = (
                response
                if isinstance(response, bytes)
                else json.dumps(missing if response is None else response).encode()
            )
            self.send_response(404 if response is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
