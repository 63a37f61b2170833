"""Protobuf into columns: the values of Protobuf's JSON mapping, in memory in proportion to the bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from pykafka_wire.errors import DecodeError
from pykafka_wire.values import Registry
from pykafka_wire.values.arrow_conversion import conversion_to
from pykafka_wire.values.converter import Converter
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.protobuf.linker import link
from pykafka_wire.values.registry.framing import encode_frame
from tests.connector.values.protobuf_samples import length_delimited, normal, parsed, with_dicts
from tests.connector.values.scripted_registry import scripted_registry

#: `make conformance-values` tries 20,000.
N_MESSAGES = int(os.environ.get("CONFORMANCE_VALUES", "200"))
SEED = int(os.environ.get("PROTO_SEED", "0")) or random.SystemRandom().randrange(2**32)
MAX_GROWTH_BYTES = 64 << 20
N_FIELDS = 300
WIDE = pa.struct([(f"f{number}", pa.int64()) for number in range(N_FIELDS)])
BOMBS = f"""syntax = "proto3"; import "google/protobuf/any.proto";
message Root {{ int64 id = 1; repeated Wide wides = 2; repeated Node nodes = 3; google.protobuf.Any any = 4;
  repeated int64 numbers = 6; map<int32, Wide> map = 7; }}
message Wide {{ {" ".join(f"int64 f{number} = {number + 1};" for number in range(N_FIELDS))} }}
message Node {{ int64 a = 1; string b = 2; bytes c = 3; repeated Node nodes = 4; double d = 5; }}
"""
REQUIRED = f"""syntax = "proto2"; message Root {{ optional int64 id = 1; repeated Wide wides = 2; }}
message Wide {{ {" ".join(f"required int64 f{number} = {number + 1};" for number in range(60))} }}
"""
NODE = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.binary()), ("d", pa.float64())])
ID = pa.struct([("id", pa.int64())])

KINDS = """syntax = "proto3";
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
import "google/protobuf/empty.proto";
message M {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6; fixed32 x32 = 7;
  sfixed64 x64 = 8; float f = 9; double d = 10; bool b = 11; string s = 12; bytes raw = 13; Color color = 14;
  optional int32 maybe = 15; optional string text = 16; oneof one { int64 left = 17; M right = 18; Color tint = 19; }
  repeated int32 i32s = 20; repeated int64 i64s = 21; repeated string ss = 22; repeated Color colors = 23; repeated M ms = 24;
  repeated float fs = 25; repeated bytes raws = 26; map<string, int64> counts = 27; map<int32, M> by_id = 28;
  map<bool, Color> flags = 29; map<int64, double> by_long = 30; google.protobuf.Timestamp at = 31;
  google.protobuf.Duration took = 32; google.protobuf.FieldMask mask = 33; google.protobuf.Struct struct = 34;
  google.protobuf.Value value = 35; google.protobuf.ListValue list = 36; google.protobuf.Int64Value w64 = 37;
  google.protobuf.StringValue ws = 38; google.protobuf.BytesValue wraw = 39; google.protobuf.FloatValue wf = 40;
  google.protobuf.NullValue null = 41; google.protobuf.Empty empty = 42; google.protobuf.Any any = 43;
  repeated google.protobuf.Value values = 44; optional int32 HasField = 46; int32 from = 47;
}
enum Color { RED = 0; GREEN = 1; BLUE = -5; }
"""
LEAVES = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.string(), pa.binary(), pa.bool_()),
    *(pa.decimal128(30, 9), pa.timestamp("us", tz="UTC"), pa.date32()),
)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    schemas = enumerate((BOMBS, REQUIRED, KINDS, 'syntax = "proto3"; message M { float f = 1; }'), 1)
    responses: Any = {f"/schemas/ids/{number}": {"schemaType": "PROTOBUF", "schema": text} for number, text in schemas}
    with scripted_registry(responses) as url:
        yield Registry(url)


def memory_bytes(field: str) -> int:
    return int(Path("/proc/self/status").read_text("ascii").partition(f"{field}:")[2].split()[0]) * 1024


def nested_anys(n_levels: int, content: bytes) -> bytes:
    for _ in range(n_levels):
        content = length_delimited(1, b"/google.protobuf.Any") + length_delimited(2, content)
    return content


@pytest.mark.parametrize(
    ("schema_id", "content", "wanted", "reason"),
    [
        (1, b"\x12\x00" * 20_000, pa.struct([("wides", pa.list_(WIDE))]), "too many fields for its size"),
        (1, b"\x12\x00" * 20_000, pa.struct([("wides", pa.string())]), "too many fields for its size"),
        (1, b"\x12\x00" * 20_000, pa.string(), "too many fields for its size"),
        (1, b"\x12\x00" * 200_000, ID, "too many fields for its size"),
        (1, b"\x1a\x00" * 100_000, pa.struct([("nodes", pa.list_(NODE))]), None),
        (1, b"\x1a\x00" * 200_000, pa.struct([("nodes", pa.list_(NODE))]), "too many fields for its size"),
        (1, b"\x1a\x00" * 200_000, pa.struct([("nodes", pa.string())]), "too many fields for its size"),
        (1, b"\x1a\x02\x22\x00" * 100_000, pa.struct([("nodes", pa.string())]), "too many fields for its size"),
        (1, length_delimited(6, b"\x01" * 300_000), pa.struct([("numbers", pa.list_(pa.int64()))]), None),
        (1, length_delimited(6, b"\x01" * 900_000), pa.struct([("numbers", pa.string())]), "too many fields"),
        (
            1,
            length_delimited(4, nested_anys(200, b"x" * 1_000_000)),
            pa.struct([("any", pa.string())]),
            "too many fields",
        ),
        (2, b"\x12\x00" * 200_000, ID, "too many fields for its size"),
        (2, b"\x12\x00" * 20_000, ID, "required fields are missing: wides[0].f0, wides[0].f1"),
    ],
)
def test_no_value_takes_memory_out_of_proportion(
    schema_id: int, content: bytes, wanted: pa.DataType, reason: str | None, registry: Registry
) -> None:
    converter = Converter(format=Protobuf(registry=registry), type=wanted, on_error="divert")
    converter(pa.array([encode_frame(schema_id, b"\0")], pa.binary()))  # what is loaded and cached once
    rows = pa.array([encode_frame(schema_id, b"\0" + content)], pa.binary())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_bytes("VmRSS")
    (found,) = converter(rows).field("error").to_pylist()
    growth = memory_bytes("VmHWM") - before
    print(f"{growth / 2**20:.0f} MiB")
    assert growth < MAX_GROWTH_BYTES + len(content), f"{growth / 2**20:.0f} MiB for {len(content)} bytes"
    assert (found is None) if reason is None else (reason in found), found


def test_messages_of_usual_size_are_read(registry: Registry) -> None:
    wanted = pa.struct([("wides", pa.list_(WIDE)), ("nodes", pa.list_(NODE))])
    content = b"\x12\x02\x08\x05" * 1_000 + length_delimited(3, b"\x08\x07\x12\x20" + b"t" * 32) * 20_000
    (found,) = Converter(format=Protobuf(registry=registry), type=wanted)(
        pa.array([encode_frame(1, b"\0" + content)], pa.binary())
    ).to_pylist()
    assert (len(found["wides"]), len(found["nodes"])) == (1_000, 20_000)
    assert found["wides"][999] == {f"f{number}": 5 if number == 0 else 0 for number in range(N_FIELDS)}
    assert found["nodes"][0] == {"a": 7, "b": "t" * 32, "c": b"", "d": 0.0}


def test_a_float_is_widened_in_a_double_and_shortest_in_text(registry: Registry) -> None:
    for wanted, expected in (
        (pa.float64(), 0.10000000149011612),
        (pa.string(), "0.1"),
        (pa.decimal128(9, 2), pa.scalar("0.10").cast(pa.decimal128(9, 2)).as_py()),
    ):
        rows = pa.array([encode_frame(4, b"\0\x0d\xcd\xcc\xcc\x3d")], pa.binary())
        column = Converter(format=Protobuf(registry=registry), type=pa.struct([("f", wanted)]))(rows)
        assert column.to_pylist() == [{"f": expected}]


def test_random_messages_are_what_the_json_mapping_makes_of_them(registry: Registry) -> None:
    print(f"PROTO_SEED={SEED}")
    rng = random.Random(SEED)
    descriptor = link("kinds", {"kinds": KINDS}).descriptor.message_types_by_name["M"]
    cls = GetMessageClass(descriptor)
    n_read = 0
    for _ in range(N_MESSAGES):
        message = cls()
        fill(rng, message, 3)
        content = message.SerializeToString()
        wanted = struct_of(rng, descriptor, 3)
        value = MessageToDict(
            cls.FromString(content),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=descriptor.file.pool,
        )
        try:
            expected = pa.array([conversion_to(wanted)(with_microseconds(value, wanted))], wanted).to_pylist()[0]
        except (DecodeError, pa.ArrowInvalid, OverflowError):
            expected = None
        column = Converter(format=Protobuf(registry=registry), type=wanted, on_error="divert")(
            pa.array([encode_frame(3, b"\0" + content)], pa.binary())
        )
        (found,) = column.to_pylist()
        one, other = (normal(parsed(with_dicts(each, wanted))) for each in (found["value"], expected))
        assert one == other, (found["error"], value, wanted)
        n_read += expected is not None
    assert n_read > N_MESSAGES / 4


def with_microseconds(value: Any, wanted: pa.DataType) -> Any:
    """``value`` with the microseconds of each duration that is wanted as BIGINT: the JSON mapping has its seconds, as text."""
    if pa.types.is_list(wanted) and isinstance(value, list):
        return [with_microseconds(item, wanted.value_type) for item in value]
    if pa.types.is_map(wanted) and isinstance(value, dict):
        return {key: with_microseconds(item, wanted.item_type) for key, item in value.items()}
    if not (pa.types.is_struct(wanted) and isinstance(value, dict)):
        return value
    changed = {field.name: with_microseconds(value[field.name], field.type) for field in wanted if field.name in value}
    if "took" in changed and wanted.field("took").type == pa.int64():
        changed["took"] = int(Decimal(changed["took"].removesuffix("s")).scaleb(6))
    return value | changed


def fill(rng: random.Random, message: Any, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.6:
            continue
        name, kind = field.name, field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            for _ in range(rng.randrange(3)):
                entry = kind.fields_by_name
                key = scalar(rng, entry["key"])
                if entry["value"].message_type is None:
                    getattr(message, name)[key] = scalar(rng, entry["value"])
                elif depth:
                    fill(rng, getattr(message, name)[key], depth - 1)
        elif field.is_repeated:
            for _ in range(rng.randrange(3)):
                if kind is None:
                    getattr(message, name).append(scalar(rng, field))
                elif depth:
                    fill_message(rng, getattr(message, name).add(), depth - 1)
        elif kind is None:
            setattr(message, name, scalar(rng, field))
        elif depth:
            getattr(message, name).SetInParent()
            fill_message(rng, getattr(message, name), depth - 1)


def fill_message(rng: random.Random, message: Any, depth: int) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Any":
        inner = GetMessageClass(message.DESCRIPTOR.file.pool.FindMessageTypeByName("M"))()
        fill(rng, inner, 0)
        message.Pack(inner)
    elif name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds, message.nanos = rng.randrange(10**9), rng.choice((0, 5_000_000, 123_456_000))
    elif name == "google.protobuf.FieldMask":
        message.paths.extend(rng.choices(("a", "b.c"), k=2))
    elif name == "google.protobuf.Value":
        fill_value(rng, message)
    elif name == "google.protobuf.Struct":
        fill_value(rng, message.fields["a"])
    elif name == "google.protobuf.ListValue":
        fill_value(rng, message.values.add())
    else:
        fill(rng, message, depth)


def fill_value(rng: random.Random, message: Any) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        message.number_value = rng.choice((1.0, 2.5, -7.0))
    elif kind == 1:
        message.string_value = rng.choice(("x", "7", "2026-01-02"))
    elif kind == 2:
        message.bool_value = True
    elif kind == 3:
        fill_value(rng, message.struct_value.fields["a"])
    else:
        fill_value(rng, message.list_value.values.add())


def scalar(rng: random.Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_ENUM:
        return rng.choice((0, 1, -5, 9)) if field.enum_type.name == "Color" else 0
    if kind == field.CPPTYPE_STRING:
        return (
            rng.choice((b"", b"\xff\0", b"raw!"))
            if field.type == field.TYPE_BYTES
            else rng.choice(("", "é", "17", "YQ=="))
        )
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        # 1e10 is a float32 as it is. The JSON mapping's text of another one is not what it is as a double, which is read.
        large = 1e10 if kind == field.CPPTYPE_FLOAT else 1e30
        return rng.choice((0.0, -0.0, 1.0, 2.5, large, float("inf"), float("nan"), -7.25))
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return rng.choice((0, 1, 200, 2**31, 2**32 - 1))
    return rng.choice((0, 1, -1, 200, 2**31 - 1, -(2**31)))


def struct_of(rng: random.Random, descriptor: Any, depth: int) -> pa.DataType:
    names = rng.sample([each.name for each in descriptor.fields], min(len(descriptor.fields), rng.randrange(1, 7)))
    fields = [(name, type_of(rng, descriptor.fields_by_name[name], depth), rng.random() < 0.95) for name in names]
    return pa.struct([pa.field(*each) for each in [*fields, ("absent", pa.int32(), True)]])


def type_of(rng: random.Random, field: Any, depth: int) -> pa.DataType:
    kind = field.message_type
    if rng.random() < 0.1:
        return rng.choice(LEAVES)
    if kind is not None and kind.GetOptions().map_entry:
        key = rng.choice((pa.string(), natural(kind.fields_by_name["key"])))
        return pa.map_(key, type_of(rng, kind.fields_by_name["value"], depth - 1))
    item = natural(field) if kind is None else message_type(rng, kind, depth)
    return pa.list_(item) if field.is_repeated else item


def message_type(rng: random.Random, kind: Any, depth: int) -> pa.DataType:
    if kind.file.name == "google/protobuf/wrappers.proto":
        return natural(kind.fields_by_name["value"])
    if kind.name == "Timestamp":
        return pa.timestamp("us", tz="UTC")
    if kind.name in ("Struct", "Any"):
        return rng.choice((pa.map_(pa.string(), pa.string()), pa.struct([("a", pa.string()), ("@type", pa.string())])))
    if kind.name == "ListValue":
        return pa.list_(pa.string())
    return struct_of(rng, kind, depth - 1) if kind.name == "M" and depth > 0 else pa.string()


def natural(field: Any) -> pa.DataType:
    if field.type == field.TYPE_BYTES:
        return pa.binary()
    return {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_STRING: pa.string(),
        field.CPPTYPE_ENUM: pa.string(),
    }.get(field.cpp_type, pa.int64())
