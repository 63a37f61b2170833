"""Signed requests of AWS_MSK_IAM beside those of Amazon's Java library, for the same second: equal, member by member."""

from __future__ import annotations

import base64
import json
import random
import string
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import botocore.auth
import botocore.credentials
import pytest

from pykafka_wire.local.jars import Coordinate, classpath, kafka_jars, resolve
from pykafka_wire.local.java import ensure_java
from pykafka_wire.wire.security.clouds import aws
from tests.quick_start import JVM_OPTIONS

PROGRAM = Path(__file__).parents[1] / "conformance" / "SignMskIam.java"
MSK_IAM_AUTH = Coordinate("software.amazon.msk", "aws-msk-iam-auth", "2.3.5")
N_REQUESTS = 1_000
REGIONS = ("eu-west-1", "us-east-1", "us-gov-west-1", "ap-southeast-2", "cn-north-1", "me-central-1", "il-central-1")
#: Of access keys, secrets and tokens: base64's characters, and some that have to be percent-encoded.
CHARACTERS = string.ascii_letters + string.digits + "+/=-_.~ %&?äß"


@pytest.fixture(scope="module")
def java() -> Iterator[subprocess.Popen[str]]:
    clients = [jar for jar in kafka_jars() if jar.name.startswith("kafka-clients-")]
    process = subprocess.Popen(
        [
            str(ensure_java().executable),
            *JVM_OPTIONS,
            "-Dfile.encoding=UTF-8",
            "-cp",
            classpath(
                [*resolve(f"aws-msk-iam-auth-{MSK_IAM_AUTH.version}", [MSK_IAM_AUTH], transitive=True), *clients]
            ),
            str(PROGRAM),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # slf4j has no logger
        text=True,
        encoding="utf-8",
    )
    yield process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def random_text(generator: random.Random, alphabet: str, least: int, most: int) -> str:
    return "".join(generator.choices(alphabet, k=generator.randint(least, most)))


@pytest.mark.broker  # it needs Java and its libraries, as brokers do
@pytest.mark.long
def test_signed_requests_equal_those_of_amazons_library(
    java: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert java.stdin is not None and java.stdout is not None
    generator = random.Random(20201022)
    for _ in range(N_REQUESTS):
        region = generator.choice(REGIONS)
        suffix = ".cn" if region.startswith("cn-") else ""
        service = generator.choice(("kafka", "kafka-serverless"))
        name = random_text(generator, string.ascii_lowercase + string.digits, 1, 20)
        host = (
            f"b-{generator.randint(1, 99)}.{name}.c{generator.randint(2, 9)}.{service}.{region}.amazonaws.com{suffix}"
        )
        access_key = random_text(generator, string.ascii_uppercase + string.digits, 16, 24)
        secret_key = random_text(generator, CHARACTERS.strip(), 20, 60).strip() or "secret"
        token = random_text(generator, CHARACTERS, 50, 1000).strip() if generator.random() < 0.7 else None
        parts = (host, access_key, secret_key, token)
        line = " ".join("-" if part is None else base64.b64encode(part.encode()).decode() for part in parts)
        java.stdin.write(f"{line}\n")
        java.stdin.flush()
        theirs = json.loads(java.stdout.readline())
        at = datetime.strptime(theirs["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, at=at: at)
        credentials = botocore.credentials.Credentials(access_key, secret_key, token)
        # 15 minutes, of which the Java library counts whole seconds that are left when it signs.
        lifetime_s = int(theirs["x-amz-expires"])
        assert lifetime_s in (899, 900)
        ours = json.loads(aws.signed_request(credentials, region, host, lifetime_s))
        assert aws.region_of(host, None) == region
        theirs["user-agent"] = ours["user-agent"]  # not signed
        assert ours == theirs, host
