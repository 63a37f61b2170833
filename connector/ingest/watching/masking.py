"""Hides secrets and data from viewers of the page: settings without secrets, errors without values of records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.format import TableErrors
from pykafka_wire.wire.masking import without_secrets
from pykafka_wire.wire.settings import SETTINGS

_MASK: Final = "***"
_SECRETS: Final = frozenset(setting.name for setting in SETTINGS if setting.secret)
#: Names of secrets in settings for other libraries: the registry, file systems, options and properties.
_SECRET: Final = re.compile(
    r"secret|password|passphrase|token|credential|jaas|user\.info|(?:access|account|api|encryption|shared)[-._]?key|private"
    r"|connection[-_.]?string|authorization|^header\.|(?:\b|_)sas(?:\b|_)",
    re.I,
)
#: Settings with names of other libraries, which may add names. A value is masked unless its name is known to be harmless.
_OF_LIBRARIES: Final = frozenset({"catalog", "storage"})
#: The ends of harmless names. If the value is a URI, its credentials and parameters are still masked.
_HARMLESS: Final = re.compile(
    r"(?:^|[-._])(?:account[-_]name|allow[-_]http|bucket|endpoint|endpoint[-_]url|impl|region|type|uri|url|warehouse)$",
    re.I,
)
#: The prefix of a reference to a secret. A reference itself is not secret.
_REFERENCE: Final = re.compile(r"(env|file|dir|provider):")
#: Errors of Spark that quote values of records, with the text around the values.
_QUOTING: Final = (
    re.compile(
        r"(\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE)[A-Z_.]*\] The value ).*?( of the type | cannot )",
        re.DOTALL,
    ),
)


def without_values(text: str, known: TableErrors) -> str:
    """Return an error's text without values of records, which some errors of Spark and of table formats quote. Errors of this
    package quote none.

    Args:
        known: the errors of the tables' format.
    """
    for pattern in (*known.quoting, *_QUOTING):
        text = pattern.sub(f"\\1{_MASK}\\2", text)
    return text


def masked_settings(settings: Settings) -> dict[str, str]:
    """Return all settings with non-default values as texts, with masked secrets."""
    return dict(_shown(settings, "", ("defaults", "tables"))) | {
        name: text
        for place, table in (
            ("defaults", settings.defaults),
            *((f"table {table.topic}", table) for table in settings.tables),
        )
        for name, text in _shown(table, f"{place}: ", ("topic",))
    }


def _shown(settings: Settings | Table, prefix: str, besides: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for field in fields(settings):
        value: Any = getattr(settings, field.name)
        if field.name in besides or value in (None, "", ()) or value == field.default:
            continue
        if isinstance(value, Mapping):
            for name, text in value.items():
                is_known = field.name not in _OF_LIBRARIES or _HARMLESS.search(name) is not None
                yield f"{prefix}{field.name}.{name}", _masked(name, str(text), is_known=is_known)
        else:
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            yield (
                prefix + field.name,
                without_secrets(text) if field.name in ("checkpoint", "into", "registry") else text,
            )


def _masked(name: str, text: str, *, is_known: bool) -> str:
    if is_secret(name, text) or (not is_known and not _REFERENCE.match(text)):
        return _MASK
    return without_secrets(text) if "://" in text else text


def is_secret(name: str, text: str) -> bool:
    """Return whether a setting holds a secret, and not a reference to a secret."""
    is_of_secret = name.removeprefix("kafka.") in _SECRETS or _SECRET.search(name) is not None
    return is_of_secret and not _REFERENCE.match(text)
