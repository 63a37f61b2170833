"""The page's server. All its threads are daemons with bounded work, however many requests arrive."""

from __future__ import annotations

import importlib
import logging
import threading
from contextlib import ExitStack
from typing import Any, Final

from pykafka_wire.errors import MissingLibraryError
from pykafka_wire.page.address import Guard, PageSettings, shown
from pykafka_wire.page.live import LiveDocuments
from pykafka_wire.page.sampling import Samples
from pykafka_wire.page.snapshots import PageSource

_log = logging.getLogger(__name__)

_CONNECTIONS: Final = 64
_KEEP_ALIVE_S: Final = 15
_CLOSE_S: Final = 1


class Page:
    """A page at an address. The address is reserved when the object is created, so that mistakes show early; :meth:`serve` starts
    to answer.

    Attributes:
        settings: the page's settings.
        url: the link, with the token if there is one.
        host, port: the address at which the page listens.
    """

    def __init__(self, settings: PageSettings) -> None:
        """Reserve the address. Requests are answered after :meth:`serve`.

        Raises:
            MissingLibraryError: the libraries of the extra ``ui`` are not installed.
            OptionError: the port is in use, or the host does not belong to this machine.
        """
        try:
            importlib.import_module("uvicorn")
            importlib.import_module("starlette")
        except ImportError as error:
            raise MissingLibraryError(
                f"the page needs {error.name}, which is not installed: pip install 'pykafka-wire[ui]'."
            ) from error
        self.settings = settings
        self._guard = Guard(settings)
        self._socket = settings.listen()
        self.host, self.port = settings.host, int(self._socket.getsockname()[1])
        self.url = self._guard.url(self.host, self.port)
        self._closing = ExitStack()
        self._closing.callback(self._socket.close)

    def __repr__(self) -> str:
        return f"Page({shown(self.host, self.port)})"  # without the token

    def serve(self, source: PageSource, samples: Samples | None = None) -> None:
        """Answer requests with data from a source, until :meth:`close` or the end of the program.

        Args:
            samples: earlier samples.
        """
        import uvicorn

        from pykafka_wire.page.app import make_app

        documents = LiveDocuments(source, samples or Samples())
        config = uvicorn.Config(
            make_app(documents, self._guard),
            log_config=None, access_log=False, log_level="error", lifespan="off", ws="none", loop="asyncio", http="h11",
            server_header=False, proxy_headers=False, limit_concurrency=_CONNECTIONS, timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CLOSE_S,
        )  # fmt: skip
        server = uvicorn.Server(config)
        # A daemon thread, so that the page does not keep a program running.
        thread = threading.Thread(target=self._run, args=(server,), name="pykafka-wire-page", daemon=True)
        thread.start()

        def close() -> None:
            server.should_exit = True
            thread.join(2 * _CLOSE_S)
            documents.close()

        self._closing.callback(close)

    def close(self) -> None:
        """Stop answering and listening."""
        self._closing.close()

    def _run(self, server: Any) -> None:  # Any: uvicorn's server; uvicorn is imported only when needed
        try:
            server.run(sockets=[self._socket])
        except Exception:
            _log.exception("The page at %s has ended; the ingest continues.", self.host)
