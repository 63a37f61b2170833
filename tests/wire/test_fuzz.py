"""Damaged bytes into every decoder: each ends in a value or in one of our errors, soon, within its memory.

`make test` tries some thousands of frames, `make fuzz` a million (FUZZ_FRAMES). The seed is printed and can be given by
FUZZ_SEED, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pykafka_wire.wire.arrow.varints import read_varints
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.fetch.batch_scan import scan_batches
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.compression import Codec, compress, decompress
from pykafka_wire.wire.records.decode import Columns, decode
from pykafka_wire.wire.security.jaas import parse_jaas
from pykafka_wire.wire.security.scram import Scram
from tests.conformance import generate, kafka
from tests.wire.test_conformance import CLASSES, encode, trees, versions

N_FRAMES = int(os.environ.get("FUZZ_FRAMES", "12000"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(2**32)
#: Of processor time: a wait for the processor is no hang.
MAX_S = 1.0
MAX_DECOMPRESSED_BYTES = 1 << 20
#: Resident growth over the whole run, with responses of at most 1 MiB decompressed and frames of some KiB.
MAX_GROWTH_BYTES = 256 << 20

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a\\"b";'

Case = tuple[str, bytes, Callable[[bytes], object]]


def mutated(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = generate.mutate(rng, data)
    return data


def of_messages(rng: random.Random) -> Iterator[Case]:
    """Every message of every version in turn, for ever."""
    corpus = []
    for name, cls in CLASSES.items():
        schema = kafka.message(name)
        for version in versions(schema):
            samples = [
                encode(generate.to_struct(cls, schema.fields, tree), version)
                for tree in islice(trees(schema, version), 4)
            ]  # type: ignore[arg-type]
            corpus.append((f"{name} v{version}", cls, version, [each for each in samples if len(each) < 20_000]))
    while True:
        for name, cls, version, samples in corpus:
            yield (
                name,
                mutated(rng, rng.choice(samples)),
                lambda data, cls=cls, version=version: cls.decode(data, version),
            )


def of_batches(rng: random.Random) -> Iterator[Case]:
    """What brokers stored, of each magic and codec; the CRC is looked at one time in ten, or little else would be."""
    corpus = [(path.stem, path.read_bytes()) for path in sorted(GOLDEN.glob("*.bin"))]
    while True:
        for name, batch in corpus:
            check = rng.random() < 0.1

            def read(data: bytes, check: bool = check) -> object:
                walked = scan_batches(memoryview(data), 0, 2**62)
                records = memoryview(data)[: walked.n_bytes]
                pieces = [RecordSlice(records, 0, 2**62, [(1, 0)], walked.batch_starts)]
                return decode(
                    pieces,
                    Columns(headers=True),
                    read_committed=True,
                    check_crc=check,
                    max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
                )

            yield name, mutated(rng, batch), read


def of_codecs(rng: random.Random) -> Iterator[Case]:
    plain = b"".join(b"record %d of the same text, " % i for i in range(60))
    corpus = [(codec, compress(codec, plain)) for codec in Codec if codec is not Codec.NONE]
    while True:
        for codec, packed in corpus:
            yield (
                codec.name,
                mutated(rng, packed),
                lambda data, codec=codec: decompress(codec, data, MAX_DECOMPRESSED_BYTES),
            )


def of_texts(rng: random.Random) -> Iterator[Case]:
    """SCRAM's challenges and verdicts, JAAS lines, varints."""

    def challenge(data: bytes) -> None:
        exchange = Scram(name="SCRAM-SHA-256", username="u", password="p", nonce="abc").exchange()
        next(exchange)
        exchange.send(data)

    def verdict(data: bytes) -> None:
        exchange = Scram(name="SCRAM-SHA-256", username="u", password="p", nonce="abc").exchange()
        next(exchange)
        exchange.send(b"r=abcd,s=c2FsdA==,i=4096")
        exchange.send(data)

    def varints(data: bytes) -> None:
        buffer = np.frombuffer(data, dtype=np.uint8)
        read_varints(buffer, np.arange(len(buffer), dtype=np.int64))

    while True:
        # An iteration count that is accepted costs what it says: digits are left alone most of the time.
        yield "challenge", mutated(rng, b"r=abcd,s=c2FsdA=="), challenge
        yield "verdict", mutated(rng, b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="), verdict
        yield "JAAS", mutated(rng, JAAS.encode()), lambda data: parse_jaas(data.decode("utf-8", "replace"))
        yield "varints", mutated(rng, bytes(range(120, 140))), varints


@pytest.mark.parametrize("kind", [of_messages, of_batches, of_codecs, of_texts])
@pytest.mark.timeout(6 * 3600)
def test_damaged_bytes_end_in_a_value_or_a_typed_error(kind: Callable[[random.Random], Iterator[Case]]) -> None:
    share = {of_messages: 0.6, of_batches: 0.25, of_codecs: 0.1, of_texts: 0.05}[kind]
    cases = kind(random.Random(f"{SEED} {kind.__name__}"))
    next(cases)  # what is made once, and compiled when first used, is no growth
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, slowest, n_frames = 0, 0.0, int(N_FRAMES * share)
    for name, data, read in islice(cases, n_frames):
        started = time.thread_time()
        try:
            read(data)
        except WireError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name}, seed {SEED}: {type(error).__name__} {error} for {data.hex()}") from error
        took = time.thread_time() - started
        slowest = max(slowest, took)
        assert took < MAX_S, f"{name}, seed {SEED}: {took:.1f} s for {data.hex()}"
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"\n{kind.__name__}: {n_frames} frames, {refused} refused, slowest {slowest * 1000:.1f} ms, grown {growth >> 20} MiB"
    )
    assert 0 < refused < n_frames
    assert growth < MAX_GROWTH_BYTES
