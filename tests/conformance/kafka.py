"""Kafka's own message schemas and serializers, out of the kafka-clients jar: what the declarations are judged by."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pykafka_wire.local.jars import KAFKA_VERSION, classpath, kafka_jars
from pykafka_wire.local.java import ensure_java

ORACLE = Path(__file__).with_name("Oracle.java")
PRIMITIVES = ("bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes", "records")


class KafkaField(NamedTuple):
    """A field as Kafka's JSON declares it, its versions bounded by those of the structure around it."""

    name: str  # CamelCase, as Kafka writes it
    type: str  # a primitive, or "struct"
    is_array: bool
    since: int
    until: int
    nullable_since: int | None
    default: str | None  # as text; None where Kafka's JSON gives none
    tag: int | None
    ignorable: bool
    map_key: bool
    fields: tuple[KafkaField, ...]

    @property
    def key(self) -> str:
        """Its name in the JSON form of a message."""
        return self.name[0].lower() + self.name[1:]

    @property
    def attribute(self) -> str:
        """Its name in Python."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.name).lower()

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


class KafkaMessage(NamedTuple):
    name: str
    api_key: int | None
    versions: tuple[int, int]
    flexible: int | None
    fields: tuple[KafkaField, ...]

    @property
    def java_class(self) -> str:
        return self.name if self.name.startswith("ConsumerProtocol") else f"{self.name}Data"


@cache
def jars() -> tuple[Path, ...]:
    return tuple(kafka_jars(KAFKA_VERSION))


@cache
def message(name: str) -> KafkaMessage:
    """The schema of a request, a response, a header or data, such as "FetchRequest"."""
    clients = next(jar for jar in jars() if jar.name == f"kafka-clients-{KAFKA_VERSION}.jar")
    with zipfile.ZipFile(clients) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    schema = json.loads(re.sub(r"(?m)^\s*//.*$|(?<=[,{\[\]}])\s*//.*$", "", text))
    low, high = _range(schema["validVersions"])
    # An unstable version is one that brokers refuse unless told otherwise: InitProducerId 6 (KIP-939).
    unstable = schema.get("latestVersionUnstable", False)
    if name == "InitProducerIdResponse":
        unstable = message("InitProducerIdRequest").versions[1] < high
    versions = (low, high - 1 if unstable else high)
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    flexible = None if schema["flexibleVersions"] == "none" else _range(schema["flexibleVersions"])[0]
    return KafkaMessage(name, schema.get("apiKey"), versions, flexible, _fields(schema["fields"], versions, common))


def _range(text: str) -> tuple[int, int]:
    """ "4" → (4, 4), "4-7" → (4, 7), "4+" → (4, no end)."""
    low, _, high = text.rstrip("+").partition("-")
    return int(low), 0x7FFF if text.endswith("+") else int(high or low)


def _fields(declared: list[dict[str, Any]], bounds: tuple[int, int], common: dict[str, Any]) -> tuple[KafkaField, ...]:
    fields = []
    for one in declared:
        low, high = _range(one["versions"])
        low, high = max(low, bounds[0]), min(high, bounds[1])
        if low > high:
            continue
        kind = one["type"].removeprefix("[]")
        inner: tuple[KafkaField, ...] = ()
        if kind not in PRIMITIVES:
            inner = _fields(one.get("fields") or common[kind], (low, high), common)
            kind = "struct"
        nullable_since = _range(one["nullableVersions"])[0] if one.get("nullableVersions") else None
        assert one.get("taggedVersions", one["versions"]) == one["versions"], "tagged in some versions only"
        fields.append(
            KafkaField(
                name=one["name"],
                type=kind,
                is_array=one["type"].startswith("[]"),
                since=low,
                until=high,
                nullable_since=None if nullable_since is None else max(nullable_since, low),
                default=None if one.get("default") is None else str(one["default"]),
                tag=one.get("tag"),
                ignorable=str(one.get("ignorable", False)).lower() == "true",
                map_key=bool(one.get("mapKey", False)),
                fields=inner,
            )
        )
    return tuple(fields)


class Oracle:
    """A Java process that encodes and decodes with Kafka's own classes. A context manager."""

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen(
            [
                str(ensure_java().executable),
                "-Xmx512m",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classpath(jars()),
                str(ORACLE),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # log4j warns that it has no configuration
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.terminate()
        self._process.wait(timeout=30)

    def ask(self, lines: Sequence[str]) -> list[str]:
        """The response to each line, in order."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None

        def send() -> None:
            stdin.writelines(f"{line}\n" for line in lines)
            stdin.flush()

        # A thread, since each side would wait for the other once both pipes are full.
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        responses = [stdout.readline() for _ in lines]
        sender.join()
        if not all(responses):
            raise RuntimeError(f"the Java oracle ended with {self._process.wait()}")
        return [response.rstrip("\n") for response in responses]
