"""The lines of standard input that ``produce`` writes: each without its own line ending, and otherwise as it is."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.cli import produce


class ReadInPieces(io.BytesIO):
    """A pipe whose reads return a few bytes."""

    def __init__(self, content: bytes, n_bytes: int) -> None:
        super().__init__(content)
        self._n_bytes = n_bytes

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(self._n_bytes)


@given(
    lines=st.lists(st.tuples(st.text("a\r", max_size=4), st.sampled_from(["\n", "\r\n"]))),
    rest=st.text("a\r", max_size=3),
    n_bytes=st.integers(1, 9),
)
def test_a_line_loses_its_line_ending_and_nothing_else(lines: list[tuple[str, str]], rest: str, n_bytes: int) -> None:
    text = "".join(line + ending for line, ending in lines) + rest
    *ended, last = text.split("\n")
    expected = [line.removesuffix("\r") for line in ended] + ([last] if last else [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=ReadInPieces(text.encode(), n_bytes)))
        assert [line.decode() for block in produce._blocks(()) for line in block] == expected


def test_an_empty_separator_is_refused() -> None:
    said = CliRunner().invoke(produce.produce, ["topic", "-K", "", "value"])
    assert said.exit_code == 2 and "-K" in said.output


def test_keys_and_separators_have_the_bytes_that_were_typed() -> None:
    typed = b"\xff\xc3".decode(errors="surrogateescape")
    assert produce._split_key(b"value", typed, None) == (b"\xff\xc3", b"value")
    assert produce._split_key(b"a\xff\xc3b", None, typed) == (b"a", b"b")
