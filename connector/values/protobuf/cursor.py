"""A position in a .proto file's tokens: what stands there, and what must."""

from __future__ import annotations

from pykafka_wire.values.protobuf.tokens import InvalidProtoError, Token, line_of, tokens, unquoted


class Cursor:
    """One token ahead, never back."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._token: Token = next(self._tokens)

    def line(self) -> int:
        return line_of(self._text, self._token.start)

    def _error(self, expected: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {expected}, found {self._token.text[:40]!r}")

    def _invalid(self, reason: str) -> InvalidProtoError:
        return InvalidProtoError(f"line {self.line()}: {reason}")

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._token = next(self._tokens)
        return token

    def _at(self, text: str) -> bool:
        return self._token.text == text and self._token.kind != "string"

    def _accept(self, text: str) -> bool:
        if not self._at(text):
            return False
        self._next()
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(f"{text!r} is expected")

    def _name(self) -> str:
        if self._token.kind != "name":
            raise self._error("a name is expected")
        return self._next().text

    def _full_name(self) -> str:
        """Names with points between them, and perhaps before them."""
        parts = [""] if self._accept(".") else []
        parts.append(self._name())
        while self._accept("."):
            parts.append(self._name())
        return ".".join(parts)

    def _string(self) -> bytes:
        """Strings that stand side by side are one."""
        parts = []
        while self._token.kind == "string":
            parts.append(unquoted(self._next()))
        if not parts:
            raise self._error("a string is expected")
        return b"".join(parts)

    def _integer(self, least: int, most: int) -> int:
        negative = self._accept("-")
        if self._token.kind != "integer":
            raise self._error("an integer is expected")
        text = self._token.text
        if len(text) > 25:  # longer than any that fits 64 bits, in each notation
            raise self._error(f"an integer from {least} to {most} is expected")
        try:
            number = int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
        except ValueError:
            raise self._error("an integer is expected") from None
        number = -number if negative else number
        if not least <= number <= most:
            raise self._error(f"an integer from {least} to {most} is expected")
        self._next()
        return number
