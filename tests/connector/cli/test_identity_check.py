"""What doctor says of who signs in: whose token it is, when it ends, and what the broker makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.cli.checks import span
from tests.wire.cloud_stubs import CloudStub, point_here
from tests.wire.secured import AUDIENCE, CLIENT_ID, Secured


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (3_540, "59 min"), (7_300, "2 h"), (172_800, "2 days")],
)
def test_a_span_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.broker
def test_whose_token_it_is_and_what_the_broker_makes_of_it(
    doctor: Callable[..., dict[str, Any]], secured_kafka: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    issuer = secured_kafka.issuer
    issued: list[str] = []

    def token(_: str) -> str:
        issued.append(issuer.token())
        return issued[-1]

    with CloudStub(token).serving() as stub:
        point_here(monkeypatch, tmp_path, stub.environment_of_a_managed_identity())
        options = secured_kafka.options("OAUTHJ", auth="azure", sasl_oauthbearer_scope="api://kafka/.default")
        report = doctor(options)
        found = report["by_name"]["identity"]["found"]
        assert re.fullmatch(
            rf"{CLIENT_ID}, from azure-identity's ManagedIdentityCredential; ends .* UTC, in (59|60) min", found
        )
        assert re.search(
            r"authenticated by OAUTHBEARER for 3[56]\d\d s, then again", report["by_name"]["sasl"]["found"]
        )
        issuer.audience = "somebody-else"
        try:
            refused = doctor({**options, "client.id": "another"}, code=4)
        finally:
            issuer.audience = AUDIENCE
        assert refused["by_name"]["identity"]["result"] == "ok"
        assert "invalid_token" in refused["failed"]["sasl"]["found"]
        monkeypatch.delenv("IDENTITY_ENDPOINT")
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
        nobody = doctor({**options, "client.id": "a-third"}, code=4)["failed"]["identity"]
        assert "AZURE_TENANT_ID" in nobody["remedy"]
    said = json.dumps([report, refused, nobody])
    assert issued
    assert not any(each in said for each in issued)
