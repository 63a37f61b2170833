"""Our descriptors of .proto files against protoc's: the same for whatever it takes, and a refusal where it refuses."""

from __future__ import annotations

import os
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from pykafka_wire.values.protobuf.linker import link, resolve
from pykafka_wire.values.protobuf.parser import InvalidProtoError, parse

POOL = DescriptorPool()
POOL.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
PLAIN = GetMessageClass(POOL.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
CORPUS = Path(__file__).parent / "proto"
SITE = Path(sysconfig.get_path("purelib"))
#: Protobuf's own files, and Google's, which their packages bring along as text.
INSTALLED = (SITE / "grpc_tools/_proto", SITE)
N_RANDOM = int(os.environ.get("PROTO_FILES", "60"))
SEED = int(os.environ.get("PROTO_SEED", "0")) or random.SystemRandom().randrange(2**32)


def of_protoc(folders: tuple[Path, ...], names: list[str], into: Path) -> dict[str, FileDescriptorProto]:
    """What protoc makes of the files and of all that they import, by name."""
    arguments = ["protoc", *(f"-I{folder}" for folder in folders), "--include_imports", f"--descriptor_set_out={into}"]
    assert protoc.main([*arguments, *names]) == 0
    return {file.name: file for file in FileDescriptorSet.FromString(into.read_bytes()).file}


def of_ours(texts: dict[str, str]) -> dict[str, FileDescriptorProto]:
    known: dict[str, FileDescriptorProto] = {}

    def load(name: str) -> None:
        if name not in known:
            file = parse(name, texts[name]).descriptor
            for each in file.dependency:
                load(each)
            resolve(file, known)
            known[name] = file

    for name in texts:
        load(name)
    return known


def comparable(file: FileDescriptorProto) -> Any:
    """Without custom options, of which other tests may have told the default pool."""
    again = PLAIN.FromString(file.SerializeToString())
    again.DiscardUnknownFields()
    return again


def compare(folders: tuple[Path, ...], names: list[str], into: Path) -> dict[str, str]:
    theirs = of_protoc(folders, names, into)
    texts = {
        name: next(folder / name for folder in folders if (folder / name).exists()).read_text("utf-8")
        for name in theirs
    }
    ours = of_ours(texts)
    for name, file in theirs.items():
        assert comparable(ours[name]) == comparable(file), name
    return texts


def test_every_installed_file_becomes_protocs_descriptor(tmp_path: Path) -> None:
    names = sorted(
        {path.relative_to(folder).as_posix() for folder in INSTALLED for path in folder.glob("google/**/*.proto")}
    )
    assert len(names) > 70
    compare(INSTALLED, names, tmp_path / "set")


def test_every_feature_of_proto2_and_proto3_becomes_protocs_descriptor(tmp_path: Path) -> None:
    names = [path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("**/*.proto")]
    texts = compare((CORPUS, *INSTALLED), names, tmp_path / "set")
    # All of them in a pool, with what comes from the packages protobuf and googleapis-common-protos.
    registered: dict[str, str | bytes] = {
        name: text for name, text in texts.items() if not name.startswith(("google/", "confluent/"))
    }
    assert (
        link("no_package.proto", registered)
        .descriptor.message_types_by_name["Order"]
        .fields_by_name["price"]
        .message_type
    )
    three = link("proto3_everything.proto", registered).descriptor.message_types_by_name["Everything"]
    assert three.fields_by_name["public_one"].message_type.full_name == "corpus.shared.Shared"


def test_random_files_become_protocs_descriptors(tmp_path: Path) -> None:
    print(f"PROTO_SEED={SEED}", file=sys.stderr)
    rng = random.Random(SEED)
    for number in range(N_RANDOM):
        imported = [f"f{rng.randrange(number)}.proto"] if number and rng.random() < 0.6 else []
        (tmp_path / f"f{number}.proto").write_text("\n".join(random_file(rng, number, imported)), "utf-8")
    compare((tmp_path,), [f"f{number}.proto" for number in range(N_RANDOM)], tmp_path / "set")


SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
    *("sfixed32", "sfixed64", "bool", "string", "bytes"),
)


def random_file(rng: random.Random, number: int, imported: list[str]) -> Iterator[str]:
    proto3 = rng.random() < 0.5
    yield f'syntax = "proto{3 if proto3 else 2}"; package p{number}{rng.choice(["", ".q", ".q.r"])};'
    for name in imported:
        yield f'import {rng.choice(["", "public "])}"{name}";'
    yield '// a comment; with "quotes" and { braces'
    for which in range(rng.randrange(1, 4)):
        yield from random_message(rng, f"M{which}", proto3, 0, ["M0"])
    yield f"enum E {{ E_{number}_ZERO = 0; E_{number}_ONE = {rng.choice(['1', '0x1', '01'])}; }}"


def random_message(rng: random.Random, name: str, proto3: bool, depth: int, types: list[str]) -> Iterator[str]:
    yield f"message {name} {{"
    types = [*types, name]
    for which in range(rng.randrange(3) if depth < 3 else 0):
        inner = rng.choice((f"N{which}", f"M{which}"))  # which may hide an outer one
        if inner not in types[-1:]:
            yield from random_message(rng, f"{inner}{depth}", proto3, depth + 1, types)
            types = [*types, f"{inner}{depth}"]
    yield "enum Kind { K0 = 0; K1 = -5; }" if rng.random() < 0.3 else "/* no\nenum */"
    numbers = iter(rng.sample([*range(1, 15_000), *range(20_000, 20_100), 536_870_911], 30))
    for which in range(rng.randrange(9)):
        field = f"{rng.choice(['f', 'camelCase', 'snake_case', '_x', 'UP_'])}{which}_{rng.randrange(2)}"
        choice = rng.random()
        kind = rng.choice(SCALARS) if rng.random() < 0.6 else rng.choice(types)
        label = rng.choice(("", "optional ", "repeated ") if proto3 else ("optional ", "required ", "repeated "))
        if choice < 0.1:
            yield f"map<{rng.choice(('string', 'int32', 'bool', 'fixed64'))}, {kind}> {field} = {next(numbers)};"
        elif choice < 0.2:
            yield f"oneof o{which} {{ {kind} {field} = {next(numbers)}; string {field}b = {next(numbers)}; }}"
        elif choice < 0.3 and not proto3:
            yield f"{label}group G{which} = {next(numbers)} {{ optional {kind} {field} = 1; }}"
        elif choice < 0.5 and not proto3 and label == "optional ":
            default = rng.choice((str(rng.uniform(-1e9, 1e9)), repr(rng.gauss(0, 1)), "1e30", "-inf", "5", "1e-7"))
            yield f"optional {rng.choice(('float', 'double'))} {field} = {next(numbers)} [default = {default}];"
        else:
            yield f"{label}{kind} {field} = {next(numbers)} [deprecated = true];"
    yield "}"


REFUSED = {
    "an edition": 'edition = "2023"; message M {}',
    "an unknown syntax": 'syntax = "proto4";',
    "no message": "hello",
    "an open message": "message M {",
    "an open string": 'syntax = "proto3',
    "an open comment": "/* message M {}",
    "a number twice": "message M { optional int32 a = 1; optional int32 b = 1; }",
    "a name twice": "message M { optional int32 a = 1; optional int32 a = 2; }",
    "a type twice": "message M {} message M {}",
    "number 0": "message M { optional int32 a = 0; }",
    "a number above the limit": "message M { optional int32 a = 536870912; }",
    "Protobuf's own number": "message M { optional int32 a = 19000; }",
    "a reserved number": "message M { reserved 1 to 5; optional int32 a = 3; }",
    "a reserved name": 'message M { reserved "a"; optional int32 a = 3; }',
    "no label": "message M { int32 a = 1; }",
    "required in proto3": 'syntax = "proto3"; message M { required int32 a = 1; }',
    "a default in proto3": 'syntax = "proto3"; message M { int32 a = 1 [default = 1]; }',
    "a group in proto3": 'syntax = "proto3"; message M { optional group G = 1 {} }',
    "an enum without 0": 'syntax = "proto3"; enum E { A = 1; }',
    "an enum without values": "enum E {}",
    "a number of two values": "enum E { A = 1; B = 1; }",
    "an enum's number above 32 bits": "enum E { A = 2147483648; }",
    "a type that is not there": "message M { optional Nothing a = 1; }",
    "a hidden type": "package a.b; message M { message a { } optional a.b.M m = 1; }",
    "a map with a float's key": "message M { map<float, int32> a = 1; }",
    "a map with a label": "message M { repeated map<string, int32> a = 1; }",
    "an empty oneof": "message M { oneof o { } }",
    "an import that is not there": 'import "nothing.proto";',
    "an import of itself": 'import "root.proto";',
    "a default that does not fit": "message M { optional int32 a = 1 [default = 2147483648]; }",
    "a default of another type": 'message M { optional int32 a = 1 [default = "x"]; }',
    "a default of a message": "message M { optional M a = 1 [default = x]; }",
    "a default that the enum lacks": "message M { optional E a = 1 [default = X]; } enum E { A = 0; }",
    "an extension that is not in range": "message M { } extend M { optional int32 a = 1; }",
    "a method's type that is an enum": "enum E { A = 0; } service S { rpc F (E) returns (E); }",
    "a missing semicolon": "message M { optional int32 a = 1 }",
    "messages nested too deep": 40 * "message M { " + 40 * "}",
    "a NUL": "message M\0 {}",
    "an unknown escape": 'message M { optional string a = 1 [default = "\\q"]; }',
    "a package twice": "package a; package b;",
    "a range that ends before it begins": "message M { extensions 5 to 3; }",
    "a huge number": f"message M {{ optional int32 a = {'9' * 10_000}; }}",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_protoc_refuses_is_refused(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "root.proto").write_text(text, "utf-8")
    into = tmp_path / "set"
    is_valid = protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={into}", "root.proto"]) == 0
    assert not is_valid or text.startswith("edition"), "protoc takes it"
    with pytest.raises(InvalidProtoError):
        link("root.proto", {"root.proto": text})


def test_the_line_of_an_error_is_named() -> None:
    with pytest.raises(InvalidProtoError, match=r"'root\.proto', line 3: ';' is expected, found '}'"):
        link("root.proto", {"root.proto": 'syntax = "proto3";\nmessage M {\n  int32 a = 1 }\n'})


def test_any_damage_to_a_file_is_refused_or_harmless() -> None:
    print(f"PROTO_SEED={SEED}", file=sys.stderr)
    rng = random.Random(SEED)
    whole = (CORPUS / "proto2_everything.proto").read_text("utf-8")
    texts = {path.relative_to(CORPUS).as_posix(): path.read_text("utf-8") for path in CORPUS.glob("**/*.proto")}
    for _ in range(150):
        start, length = rng.randrange(len(whole)), rng.choice((1, 1, 2, 30, 1000))
        damage = rng.choice(("", "{", "}", '"', "\0", "/*", "9" * 50, "\ud800", ";", "message", whole[:50]))
        texts["proto2_everything.proto"] = whole[:start] + damage + whole[start + length :]
        try:
            link("proto2_everything.proto", dict(texts))
        except InvalidProtoError:
            pass


def test_many_files_that_import_each_other_are_read_once() -> None:
    texts: dict[str, str | bytes] = {
        f"f{n}.proto": f'import "f{n + 1}.proto"; import "f{n + 2}.proto";' for n in range(60)
    }
    texts |= {"f60.proto": 'import "f61.proto";', "f61.proto": "message M {}"}
    assert link("f0.proto", texts).descriptor.name == "f0.proto"
    with pytest.raises(InvalidProtoError, match="more than 1000 files"):
        link("f0.proto", {f"f{n}.proto": f'import "f{n + 1}.proto";' for n in range(2000)})


@pytest.mark.parametrize(
    "text",
    [
        "enum E {{ A = 0; reserved {ranges}; {values} }}",
        "message M {{ reserved {ranges}; {values} }}",
        "message M {{ reserved {names}; {values} }}",
    ],
)
def test_many_reserved_ranges_take_time_in_proportion_to_the_text(text: str) -> None:
    n = 30_000
    made = text.format(
        ranges=", ".join(str(100_000 + 2 * number) for number in range(n)),
        names=", ".join(f'"r{number}"' for number in range(n)),
        values=" ".join(
            ("" if text.startswith("enum") else "int32 ") + f"v{number} = {number + 1};" for number in range(15_000)
        ),
    )
    began = time.process_time()
    parse("x.proto", 'syntax = "proto3"; ' + made)
    assert time.process_time() - began < 20  # one range after the other for each value: minutes


@pytest.mark.parametrize(
    ("ranges", "number", "is_refused"),
    [
        ("5, 1 to 3, 2 to 10, 4", 9, True),
        ("5, 1 to 3, 2 to 10, 4", 10, True),
        ("5, 1 to 3, 2 to 10, 4", 11, False),
        ("1 to 20, 3 to 4", 15, True),
        ("20 to max", 19, False),
        ("20 to max", 536_870_911, True),
    ],
)
def test_a_number_in_any_of_the_reserved_ranges_is_refused(ranges: str, number: int, is_refused: bool) -> None:
    text = f'syntax = "proto3"; message M {{ reserved {ranges}; int32 a = {number}; }}'
    if is_refused:
        with pytest.raises(InvalidProtoError, match="reserved"):
            parse("x.proto", text)
    else:
        assert parse("x.proto", text).descriptor.message_type[0].field[0].number == number
