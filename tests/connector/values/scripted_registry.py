"""A schema registry that answers what a test says, for schemas that real registries do not let in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@contextmanager
def scripted_registry(answers: dict[str, Any]) -> Iterator[str]:
    """The URL of a server that answers each path of ``answers``, quoted or not, with its JSON; 404 for others.

    An answer of bytes is sent as it is. Answers may be changed while the server runs.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(unquote(self.path))
            missing = {"error_code": 40403, "message": "not found"}
            content = (
                answer if isinstance(answer, bytes) else json.dumps(missing if answer is None else answer).encode()
            )
            self.send_response(404 if answer is None else 200)
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
