"""The rack that this process runs in (KIP-392): given, by reference, or by the metadata service of the cloud's instance.

Owns the forms of ``client.rack`` and the requests to the metadata services. A reference (``env:NAME``, ``file:/path``,
``provider:module:function``) and a cloud's name are resolved in the process that reads, so that each Spark executor has a rack of
its own. Must not know: what a rack is used for.

- AWS: the id of the availability zone, as Amazon MSK names its racks, by IMDSv2.
  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
- Azure: ``region-zone``, as the nodes of AKS are labelled. https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
- Google: the zone's name. https://cloud.google.com/compute/docs/metadata/querying-metadata
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from pykafka_wire.wire.security import secret_references
from pykafka_wire.wire.settings import ClientSettings

logger = logging.getLogger(__name__)

_SETTING: Final = "client.rack"
#: Of each request: these services are on the instance's own host, and respond within milliseconds.
_TIMEOUT_S: Final = 1.0
_MAX_BYTES: Final = 65_536
_LINK_LOCAL: Final = "http://169.254.169.254"


def rack_of(settings: ClientSettings) -> str:
    """Return the rack of this process, "" for none. A metadata service is asked once in a process.

    Raises:
        SettingsError: the variable or the file that ``client.rack`` refers to does not exist, or its function fails.
    """
    given = settings.client_rack
    if given in _CLOUDS:
        return _of_cloud(given)
    return secret_references.resolve(given, _SETTING).strip()


@lru_cache
def _of_cloud(name: str) -> str:
    from http.client import HTTPException  # loads what few readers need

    try:
        rack = _CLOUDS[name]()
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        logger.warning(
            "client.rack is %s, and the instance's metadata service does not name its zone (%s: %s): this process reads from the "
            "partitions' leaders, in any rack. Name the rack by env:NAME or file:/path instead",
            name, type(error).__name__, error,
        )  # fmt: skip
        return ""
    logger.info("the rack of this process is %s (%s)", rack, name)
    return rack


def _aws() -> str:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise ValueError("AWS_EC2_METADATA_DISABLED is true")
    service = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _LINK_LOCAL).rstrip("/") + "/latest"
    token = _ask(f"{service}/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    return _word(_ask(f"{service}/meta-data/placement/availability-zone-id", {"X-aws-ec2-metadata-token": token}))


def _azure() -> str:
    service = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", _LINK_LOCAL).rstrip("/")
    compute = json.loads(_ask(f"{service}/metadata/instance/compute?api-version=2021-02-01", {"Metadata": "true"}))
    if not compute["zone"]:
        raise ValueError("the instance is in no zone")
    return _word(f"{compute['location']}-{compute['zone']}")


def _google() -> str:
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    zone = _ask(f"http://{host}/computeMetadata/v1/instance/zone", {"Metadata-Flavor": "Google"})
    return _word(zone.rpartition("/")[2])


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    import urllib.request

    # Never by a proxy: the address means this very machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with opener.open(request, timeout=_TIMEOUT_S) as response:
        return str(response.read(_MAX_BYTES).decode()).strip()


def _word(rack: str) -> str:
    """Return the rack, if it can be one: whatever responds may be no metadata service."""
    if not rack or len(rack) > 100 or not rack.isprintable() or " " in rack or "<" in rack:
        raise ValueError("the response is no zone")
    return rack


_CLOUDS: Final[Mapping[str, Callable[[], str]]] = {"aws": _aws, "azure": _azure, "google": _google}
