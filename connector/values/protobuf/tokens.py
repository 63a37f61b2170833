"""The tokens of a .proto file, one after the other (https://protobuf.dev/reference/protobuf/proto2-spec/#lexical_elements)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["name", "integer", "float", "string", "symbol", "end"]

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<integer>0[xX][0-9a-fA-F]+|[0-9]+)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<symbol>[{}\[\]()<>=;,.:+/-])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_PLAIN_ESCAPES: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"?": b"?",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
}


class InvalidProtoError(ValueError):
    """Text that is not a .proto file of proto2 or proto3."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``start`` and ``end`` are its bounds in the text."""

    kind: Kind
    text: str
    start: int
    end: int


def tokens(text: str) -> Iterator[Token]:
    """Each token in turn, lazily; the last one has the kind ``end``.

    Raises:
        InvalidProtoError: a character that begins no token, a string or a comment without an end.
    """
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        # A comment without an end does not match the pattern of comments, and its slash would be a symbol.
        if found is None or (found.group() == "/" and text.startswith("/*", position)):
            raise InvalidProtoError(
                f"line {line_of(text, position)}: {text[position : position + 1]!r} begins no token"
            )
        kind, start, position = found.lastgroup, position, found.end()
        if kind != "space":
            yield Token(kind, found.group(), start, position)  # type: ignore[arg-type]  # the groups are the kinds
    yield Token("end", "", position, position)


class TokenReader:
    """The tokens of a text in turn: what stands there, and what must; one token ahead, never back.

    Attributes:
        token: the next one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self.token = next(self._tokens)

    def text(self, start: int, end: int) -> str:
        return self._text[start:end]

    def line(self) -> int:
        return line_of(self._text, self.token.start)

    def error(self, expected: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {expected}, found {self.token.text[:40]!r}")

    def invalid(self, reason: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {reason}")

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self._tokens)
        return token

    def at(self, text: str) -> bool:
        return self.token.text == text and self.token.kind != "string"

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"{text!r} is expected")

    def name(self) -> str:
        if self.token.kind != "name":
            raise self.error("a name is expected")
        return self.next().text

    def full_name(self) -> str:
        """Names with points between them, and perhaps before them."""
        parts = [""] if self.accept(".") else []
        parts.append(self.name())
        while self.accept("."):
            parts.append(self.name())
        return ".".join(parts)

    def string(self) -> bytes:
        """Strings that stand side by side are one."""
        parts = []
        while self.token.kind == "string":
            parts.append(unquoted(self.next()))
        if not parts:
            raise self.error("a string is expected")
        return b"".join(parts)

    def integer(self, least: int, most: int) -> int:
        negative = self.accept("-")
        if self.token.kind != "integer":
            raise self.error("an integer is expected")
        text = self.token.text
        if len(text) > 25:  # longer than any that fits 64 bits, in each notation
            raise self.error(f"an integer from {least} to {most} is expected")
        try:
            number = int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
        except ValueError:
            raise self.error("an integer is expected") from None
        number = -number if negative else number
        if not least <= number <= most:
            raise self.error(f"an integer from {least} to {most} is expected")
        self.next()
        return number


def line_of(text: str, position: int) -> int:
    """The number of the line of a position, from 1."""
    return text.count("\n", 0, position) + 1


def unquoted(token: Token) -> bytes:
    """What a string token stands for. Bytes, as escapes may make what is no UTF-8.

    Raises:
        InvalidProtoError: an escape that does not exist.
    """
    return _ESCAPE.sub(_unescaped, token.text[1:-1].encode())


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, plain = found.groups()
    try:
        if octal:
            return bytes([int(octal, 8)])
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if short or long:
            return chr(int(short or long, 16)).encode()
        return _PLAIN_ESCAPES[plain]
    except (KeyError, ValueError, OverflowError):
        raise InvalidProtoError(f"{found.group().decode('utf-8', 'replace')} is not an escape of a string") from None


def escaped(content: bytes) -> str:
    """Bytes as a ``bytes`` field's default value is kept in a descriptor: C's escapes, octal for what is not printable."""
    found = []
    for byte in content:
        if byte in b"\n\r\t\"'\\":
            found.append({10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}[byte])
        else:
            found.append(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
    return "".join(found)
