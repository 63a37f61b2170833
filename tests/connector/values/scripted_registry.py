"""A schema registry that responds as a test says, for schemas that real registries do not let in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from tests.http_server import QuietHandler, http_server


@contextmanager
def scripted_registry(responses: dict[str, Any]) -> Iterator[str]:
    """The URL of a server that responds to each path of ``responses``, quoted or not, with its JSON; 404 for others.

    A response of bytes is sent as it is. Responses may be changed while the server runs. Each URL is a new one, since ports come
    back, and a process remembers the schemas of a URL.
    """
    folder = f"/{uuid.uuid4().hex}"

    class Handler(QuietHandler):
        def respond(self) -> None:
            response = responses.get(unquote(self.path.removeprefix(folder)))
            if response is None:
                self.send(404, b'{"error_code": 40403, "message": "not found"}')
            else:
                self.send(200, response if isinstance(response, bytes) else json.dumps(response).encode())

    with http_server(Handler) as url:
        yield url + folder
