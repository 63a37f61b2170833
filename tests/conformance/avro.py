"""Apache Avro's Java library, as PySpark ships it: what Avro values are to be read as."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pykafka_wire.local.jars import classpath
from pykafka_wire.local.java import ensure_java
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of, logical_of
from pykafka_wire.values.avro.types import widest

PROGRAM = Path(__file__).with_name("ReadAvro.java")
#: The library, and what it needs.
JARS = (
    "avro-1*",
    "jackson-core-2*",
    "jackson-databind-2*",
    "jackson-annotations-2*",
    "slf4j-api-2*",
    "commons-compress-1*",
)
MICROS = {"timestamp-millis": 1000, "local-timestamp-millis": 1000, "time-micros": 1000}


class Case(NamedTuple):
    """Values of one schema, and the schema that they are read by, or None."""

    written: Any
    read: Any
    payloads: list[bytes]


@contextmanager
def java_library() -> Iterator[Any]:
    """A function from cases to the responses to them: a text for a pair of schemas that is rejected, else for each value a list
    of it, or a text."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    jars = [jar for pattern in JARS for jar in folder.glob(f"{pattern}.jar")]
    process = subprocess.Popen(
        [str(ensure_java().executable), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", classpath(jars), str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # slf4j has no logger
        text=True,
        encoding="utf-8",
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    def ask(cases: Iterable[Case]) -> Iterator[Any]:
        lines = [
            "\t".join(
                [json.dumps(written), "" if read is None else json.dumps(read), *(each.hex() for each in payloads)]
            )
            for written, read, payloads in cases
        ]

        def send() -> None:
            stdin.writelines(f"{line}\n" for line in lines)
            stdin.flush()

        # A thread, since each side would wait for the other once both pipes are full.
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for _ in lines:
            yield json.loads(stdout.readline())
        sender.join()

    try:
        yield ask
    finally:
        stdin.close()
        stdout.close()
        process.terminate()
        process.wait(timeout=30)


def expected(parsed: ParsedSchema, schema: Schema, value: Any) -> Any:
    """A value as the Java library gives it, in the Python form of what a column of the schema's Arrow type stores."""
    definition = parsed.definition(schema)
    kind, logical = kind_of(definition), logical_of(definition)
    if kind == "union":
        branches = [parsed.definition(each) for each in definition]
        branch = branches[value["branch"]]
        columns = [each for each in branches if kind_of(each) != "null"]
        if kind_of(branch) == "null":
            return None
        one = widest(columns)
        if one is not None:
            found = expected(parsed, one if len(columns) == 1 else branch_plain(branch), value["value"])
            return float(found) if one == "double" else found
        found = expected(parsed, branch, value["value"])
        place = [each is branch for each in columns].index(True)
        return {f"member{nth}": found if nth == place else None for nth in range(len(columns))}
    if kind == "record":
        return {field["name"]: expected(parsed, field["type"], value[field["name"]]) for field in definition["fields"]}
    if kind == "array":
        return [expected(parsed, definition["items"], each) for each in value]
    if kind == "map":
        return {key: expected(parsed, definition["values"], each) for key, each in value.items()}
    if kind in ("bytes", "fixed"):
        data = bytes.fromhex(value)
        if logical != "decimal":
            return data
        if not data:
            return None
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(
            -definition.get("scale", 0), Context(prec=1_000)
        )
    if kind == "float":
        return float(np.uint32(int(value) & 0xFFFF_FFFF).view(np.float32))
    if kind == "double":
        return float(np.uint64(int(value) & (2**64 - 1)).view(np.float64))
    return value * MICROS.get(logical, 1) if logical else value


def branch_plain(branch: Schema) -> Any:
    """A branch's type without its logical type, as one column holds several branches."""
    return branch if isinstance(branch, str) else branch["type"]
