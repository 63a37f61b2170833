"""JAAS lines, ``org.apache…PlainLoginModule required username="u" password="p";``, as Java's clients are configured.

Owns the grammar, and which login module goes with which SASL mechanism. No Java class is looked for: only the module's name
and its options count. No error here shows a part of the line, which holds secrets.
https://kafka.apache.org/documentation/#security_sasl_jaasconfig
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykafka_wire.wire.errors import SettingsError

SETTING: Final = "sasl.jaas.config"
_FORM: Final = 'Write it as Java\'s clients have it: Module required name="value" …;'
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
#: Quoted texts with escapes by a backslash, the marks, and words: Java's StreamTokenizer as JaasConfig sets it up.
_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([=;])|([^\s"'=;]+))""")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class name without the package, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that it is for; none where it is not known."""
        return _MECHANISMS.get(self.name, ())


class _Token(NamedTuple):
    text: str
    quoted: bool

    def is_mark(self, mark: str) -> bool:
        """Whether it is this mark itself, not a quoted text that reads like it."""
        return not self.quoted and self.text == mark


def parse_jaas(line: str) -> LoginModule:
    """The one login module of a JAAS line.

    Raises:
        SettingsError: it is not one; without quoting it.
    """
    tokens = _tokens(line.strip())
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise SettingsError(f"{SETTING} names no login module with a control flag.", setting=SETTING, remedy=_FORM)
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest and not rest[0].is_mark(";"):
        if len(rest) < 3 or not rest[1].is_mark("=") or rest[2].is_mark("=") or rest[2].is_mark(";"):
            n_option = len(options) + 1
            raise SettingsError(f"{SETTING}: option {n_option} is no name=value.", setting=SETTING, remedy=_FORM)
        options[rest[0].text] = rest[2].text
        rest = rest[3:]
    if len(rest) > 1:
        raise SettingsError(f"{SETTING} goes on after its semicolon.", setting=SETTING, remedy="Name one login module.")
    # Databricks and others shade the package; the class name stays.
    return LoginModule(tokens[0].text.rpartition(".")[2], options)


def _tokens(line: str) -> list[_Token]:
    found = []
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise SettingsError(f"{SETTING} has a quote that does not end.", setting=SETTING, remedy=_FORM)
        double, single, mark, word = match.groups()
        quoted = double if double is not None else single
        found.append(_Token(mark or word, False) if quoted is None else _Token(_unescaped(quoted), True))
        at = match.end()
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
