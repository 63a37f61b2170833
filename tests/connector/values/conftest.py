from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connector.values.apicurio import apicurio


@pytest.fixture(scope="session")
def registry_url(java: None) -> Iterator[str]:
    """A real schema registry."""
    with apicurio() as url:
        yield url
