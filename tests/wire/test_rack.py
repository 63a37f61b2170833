"""The rack of a process: given, by reference, or from a cloud's metadata service, which loopback stands for."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykafka_wire.wire.cluster import rack
from pykafka_wire.wire.cluster.rack import rack_of
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings
from tests.http_server import QuietHandler, http_server

POINT_HERE = {
    "aws": "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "azure": "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "google": "GCE_METADATA_HOST",
}


def of(given: str) -> str:
    return rack_of(ClientSettings.from_options({"bootstrap.servers": "broker:9092", "client.rack": given}))


class MetadataServices(QuietHandler):
    """Those of the three clouds, with what each demands of a request."""

    asked: list[str]
    zone = "2"

    def respond(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        status, response = self.response()
        self.send(status, response.encode())

    def response(self) -> tuple[int, str]:
        if self.command == "PUT":
            lives = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, "imds-v2") if lives and self.path == "/latest/api/token" else (400, "")
        if self.path == "/latest/meta-data/placement/availability-zone-id":
            return (200, "euc1-az2") if self.headers.get("X-aws-ec2-metadata-token") == "imds-v2" else (401, "")
        if self.path == "/metadata/instance/compute?api-version=2021-02-01":
            known = json.dumps({"location": "westeurope", "zone": self.zone})
            return (200, known) if self.headers.get("Metadata") == "true" else (400, "")
        if self.path == "/computeMetadata/v1/instance/zone":
            return (
                (200, "projects/1/zones/europe-west3-a")
                if self.headers.get("Metadata-Flavor") == "Google"
                else (403, "")
            )
        return 404, ""


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[MetadataServices]]:
    class Services(MetadataServices):
        asked = []  # noqa: RUF012  # a new list for each test

    rack._of_cloud.cache_clear()
    with http_server(Services) as url:
        for name in ("aws", "azure"):
            monkeypatch.setenv(POINT_HERE[name], url)
        monkeypatch.setenv(POINT_HERE["google"], url.removeprefix("http://"))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # is not used
        yield Services
    rack._of_cloud.cache_clear()


@pytest.mark.parametrize(
    ("cloud", "zone", "n_requests"),
    [("aws", "euc1-az2", 2), ("azure", "westeurope-2", 1), ("google", "europe-west3-a", 1)],
)
def test_a_clouds_metadata_service_is_asked_for_the_zone_once(
    services: type[MetadataServices], cloud: str, zone: str, n_requests: int
) -> None:
    assert [of(cloud) for _ in range(3)] == [zone] * 3
    assert len(services.asked) == n_requests


@pytest.mark.parametrize("cloud", POINT_HERE)
def test_a_metadata_service_that_is_not_there_or_silent_means_no_rack_and_one_warning(
    services: object, cloud: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never responds
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(rack, "_TIMEOUT_S", 0.05)
        monkeypatch.setenv(POINT_HERE[cloud], address if cloud == "google" else f"http://{address}")
        started = time.monotonic()
        assert [of(cloud) for _ in range(3)] == ["", "", ""]
        assert time.monotonic() - started < 2
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"client.rack is {cloud}" in warning and "reads from the partitions' leaders" in warning


def test_what_is_no_zone_is_no_rack(services: type[MetadataServices], caplog: pytest.LogCaptureFixture) -> None:
    services.zone = ""
    assert of("azure") == ""
    assert "the instance is in no zone" in caplog.text
    services.zone = "<html>sign in</html>"
    rack._of_cloud.cache_clear()
    assert of("azure") == ""
    assert "the response is no zone" in caplog.text


def test_awss_own_switch_turns_it_off(services: type[MetadataServices], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert of("aws") == ""
    assert services.asked == []


def test_a_rack_is_a_name_or_a_reference_that_is_resolved_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rack").write_text("rack-b\n")
    assert [of(given) for given in ("", "rack-a", f"file:{tmp_path}/rack", "literal:aws")] == [
        "",
        "rack-a",
        "rack-b",
        "aws",
    ]
    with pytest.raises(
        SettingsError, match=r"client\.rack refers to the environment variable NODE_RACK, which is not set"
    ):
        of("env:NODE_RACK")
    with pytest.raises(SettingsError, match=r"client\.rack refers to the file .*none, which cannot be read"):
        of(f"file:{tmp_path}/none")
    monkeypatch.setenv("NODE_RACK", "rack-c")
    assert of("env:NODE_RACK") == "rack-c"
