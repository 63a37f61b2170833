"""Servers that tests of several files share: one starts for the first test that asks for it, and ends after the last file in a
row that needs it. An idle broker takes 2 to 4 % of a core: a dozen of them would take a fifth of the tests' time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

Server = TypeVar("Server")
#: Fixtures whose server ends early -> the fixtures that ask for it.
NAMES: Final = {
    "guarded_kafka": {"guarded_kafka"},
    "kafka_tv1": {"kafka_tv1", "transaction_version_brokers"},
    "registry_url": {"registry_url"},
    "secured_kafka": {"secured_kafka"},
    "two_brokers": {"two_brokers"},
    "unreachable_kafka": {"unreachable_kafka"},
}


def fixtures_of(item: pytest.Item) -> Sequence[str]:
    """The names of all fixtures that a test asks for, by others too."""
    return getattr(item, "fixturenames", ())


class SharedServers:
    """The servers that run, by their fixtures' names, and which of them each file of tests needs."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Any, ExitStack]] = {}
        self._needed: dict[Path, set[str]] = defaultdict(set)

    def plan(self, items: Iterable[pytest.Item]) -> None:
        """Learn from all tests which servers their files need."""
        for item in items:
            fixtures = set(fixtures_of(item))
            self._needed[item.path] |= {name for name, asking in NAMES.items() if asking & fixtures}

    def needed(self, file: Path) -> Collection[str]:
        return self._needed[file]

    def get(self, name: str, start: Callable[[], AbstractContextManager[Server]]) -> Server:
        """What `start` gives, from the server that runs or from a new one."""
        if name not in self._running:
            stack = ExitStack()
            self._running[name] = stack.enter_context(start()), stack
        server: Server = self._running[name][0]
        return server

    def end_all_but(self, names: Collection[str]) -> None:
        """End the servers of other names: all of them, even if one raises an error."""
        with ExitStack() as ending:
            for name in [*self._running]:
                if name not in names:
                    ending.callback(self._running.pop(name)[1].close)


SERVERS: Final = pytest.StashKey[SharedServers]()


def shared(request: pytest.FixtureRequest, start: Callable[[], AbstractContextManager[Server]]) -> Server:
    """The server of the fixture that asks."""
    name = request.fixturename
    assert name in NAMES, f"{name} is missing in tests/shared_servers.py"
    return request.config.stash[SERVERS].get(name, start)
