"""JAAS lines, ``org.apache…PlainLoginModule required username="u" password="p";``, in the syntax of Java's clients.

Owns the grammar, and the login module of each SASL mechanism. It loads no Java class: only the module's name and its options
matter. The line holds secrets, so no error quotes any part of it.
https://kafka.apache.org/documentation/#security_sasl_jaasconfig
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings

SETTING: Final = "sasl.jaas.config"
_REMEDY: Final = 'Use the syntax of Java\'s clients: Module required name="value" …;'
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
#: Quoted texts with backslash escapes, symbols, and words: the tokens of Java's StreamTokenizer, as JaasConfig configures it.
_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([=;])|([^\s"'=;]+))""")
#: StreamTokenizer's escapes. Up to three octal digits are a character; any other character stands for itself.
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class name without the package, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SASL mechanisms that use this module; empty for an unknown module."""
        return _MECHANISMS.get(self.name, ())


class _JaasToken(NamedTuple):
    text: str
    quoted: bool

    def is_symbol(self, symbol: str) -> bool:
        """Return whether the token is this symbol. A quoted text is never a symbol."""
        return not self.quoted and self.text == symbol


def login_module(settings: ClientSettings) -> LoginModule | None:
    """Return the login module in ``sasl.jaas.config``, None without one; a reference is resolved.

    Raises:
        SettingsError: as :func:`parse_jaas`, or the reference cannot be resolved.
    """
    line = settings.sasl_jaas_config
    return parse_jaas(resolve(line, SETTING)) if line else None


def options_of(settings: ClientSettings) -> Mapping[str, str]:
    """Return the options of the login module, none without one. Raises as :func:`login_module`."""
    module = login_module(settings)
    return module.options if module is not None else {}


def parse_jaas(line: str) -> LoginModule:
    """Return the login module of a JAAS line, which has exactly one.

    Raises:
        SettingsError: the line is malformed. The text does not quote it.
    """
    tokens = _tokens(line.strip())
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise SettingsError("{setting} names no login module with a control flag.", setting=SETTING, remedy=_REMEDY)
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest and not rest[0].is_symbol(";"):
        if len(rest) < 3 or not rest[1].is_symbol("=") or rest[2].is_symbol("=") or rest[2].is_symbol(";"):
            n_option = len(options) + 1
            raise SettingsError(
                "{setting}: option {number} does not have the form name=value.",
                setting=SETTING,
                remedy=_REMEDY,
                number=n_option,
            )
        options[rest[0].text] = rest[2].text
        rest = rest[3:]
    if len(rest) > 1:
        raise SettingsError("{setting} has text after its semicolon.", setting=SETTING, remedy="Name one login module.")
    # Databricks and others shade the package; the class name stays.
    return LoginModule(tokens[0].text.rpartition(".")[2], options)


def _tokens(line: str) -> list[_JaasToken]:
    tokens = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise SettingsError("{setting} has an unterminated quote.", setting=SETTING, remedy=_REMEDY)
        double, single, symbol, word = match.groups()
        quoted = double if double is not None else single
        tokens.append(_JaasToken(symbol or word, False) if quoted is None else _JaasToken(_unescape(quoted), True))
        position = match.end()
    return tokens


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
