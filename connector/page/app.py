"""The page's HTTP requests: access, response headers, and a limit on waiting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pykafka_wire.page.address import Guard
from pykafka_wire.page.documents import error_document
from pykafka_wire.page.live import LiveDocuments, NotReadyError

#: A browser loads and runs only what comes from this server, and sends data only to it.
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
#: The longest topic name. Each of its characters takes up to 3 in a URL.
_MAX_TOPIC: Final = 249
_JSON: Final = "application/json"
_NO_SUCH_PLACE: Final = "there is nothing at this address: the page is at /, and its data at /api/ingest."


def make_app(documents: LiveDocuments, guard: Guard) -> ASGIApp:
    """Return the application: the page's files for everybody, ``/api`` only for requests that the guard allows."""
    files = {file.name: file.read_bytes() for file in resources.files("pykafka_wire.page").joinpath("static").iterdir()}

    async def static(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind = _MEDIA_TYPES.get(name.rpartition(".")[2])
        if name not in files or kind is None:
            raise HTTPException(404, _NO_SUCH_PLACE)
        return Response(files[name], media_type=kind)

    # Handled without threads, since these never wait.
    async def ingest(_: Request) -> Response:
        return Response(documents.ingest(), media_type=_JSON)

    async def tables(_: Request) -> Response:
        return Response(documents.tables(), media_type=_JSON)

    async def table(request: Request) -> Response:
        return _respond(documents.table(_topic(request)))

    async def history(request: Request) -> Response:
        return _respond(await documents.history(_topic(request)))

    routes = [
        Route("/", static),
        Route("/api/ingest", ingest),
        Route("/api/tables", tables),
        Route("/api/table", table),
        Route("/api/table/history", history),
        Route("/{name}", static),
    ]
    app = Starlette(
        routes=routes, exception_handlers={HTTPException: _refused, NotReadyError: _not_ready, 500: _failed}
    )
    return _Guarded(GZipMiddleware(app, minimum_size=2_000, compresslevel=1), guard)


def _topic(request: Request) -> str:
    topic = request.query_params.get("topic", "")
    if not 0 < len(topic) <= _MAX_TOPIC:
        raise HTTPException(400, "name the topic: ?topic=NAME.")
    return topic


def _respond(document: bytes | None) -> Response:
    if document is None:
        raise HTTPException(404, "the ingest has no such topic.")
    return Response(document, media_type=_JSON)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: _NO_SUCH_PLACE, 405: "the page is read only: use GET."}.get(error.status_code, error.detail)
    return _error(error.status_code, error.detail if error.detail.endswith(".") else text)


async def _not_ready(_: Request, error: Exception) -> Response:
    return _error(503, f"{error}: ask again.", {"retry-after": "2"})


async def _failed(_: Request, error: Exception) -> Response:
    return _error(500, f"the page could not read this ({type(error).__name__}); the ingest is not affected.")


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(error_document(text)), status, headers, _JSON)


class _Guarded:
    """Refuses requests without access, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no web sockets and no lifespan events
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}

        async def with_headers(message: Any) -> None:  # Any: an ASGI message
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((n.encode(), v.encode()) for n, v in _HEADERS.items())]
            await send(message)

        await self._responder(scope, headers)(scope, receive, with_headers)

    def _responder(self, scope: Scope, headers: Mapping[bytes, str]) -> ASGIApp:
        if not self._guard.knows_host(headers.get(b"host", "")):
            return _error(421, "this page is only for this machine: open it as 127.0.0.1 or localhost.")
        if scope["path"].startswith("/api") and not self._guard.allows(headers.get(b"authorization", "")):
            return _error(
                401,
                "the token is missing or wrong: it was printed when the ingest started. Send it as "
                "Authorization: Bearer TOKEN.",
                {"www-authenticate": "Bearer"},
            )
        return self._app
