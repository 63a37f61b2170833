"""Reads the settings of an ingest from a TOML file, a command line or a program.

An error lists all mistakes of a file, each with its line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.mistakes import NEEDED, OF_ONE_TABLE, Mistake, listed, mistakes_of
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.wire.settings import unknown_settings

#: The settings that only a [[table]] has.
_NOT_OF_DEFAULTS: Final = ("topic", "name", *OF_ONE_TABLE)
#: The settings that are TOML tables of their own.
_SECTIONS: Final = ("kafka", "registry_options", "catalog", "storage")


def read_settings(path: Path, given: Mapping[str, Any] | None = None) -> Settings:
    """Read settings from a TOML file.

    Args:
        given: settings from the command line, which override the file.

    Raises:
        IngestError: the file cannot be read, or has mistakes; the error lists every mistake with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IngestError(f"the settings {path} cannot be read ({error}): name a TOML file.") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found]
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise IngestError(f"the settings {path} are not TOML: {error}{_toml_hint(text, str(error))}.") from error
    mistakes, settings = _from_document(
        document | {name: _merged(value, document.get(name)) for name, value in (given or {}).items()}
    )
    if settings is None:
        lines = _lines(text)
        with_lines = sorted((_line(lines, place), text) for place, text in mistakes)
        raise IngestError(listed([f"line {line}: {text}" for line, text in with_lines], str(path)))
    return settings


def _toml_hint(text: str, error: str) -> str:
    """Return a hint if a backslash is the likely mistake: TOML reads a backslash in double quotes as an escape."""
    number = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(number[1]) - 1] if number is not None else ""
    if not re.search(r"\"[^\"]*\\[^\"]*", line):
        return ""
    return (
        r". In double quotes a backslash is an escape: write regular expressions in single quotes, such as 'shop\..*'"
    )


def _merged(given: Any, lower: Any) -> Any:  # Any: values of TOML
    return {**lower, **given} if isinstance(given, dict) and isinstance(lower, dict) else given


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Return settings from a command line or a program. Raises IngestError with all mistakes."""
    mistakes, settings = _from_document(given)
    if settings is None:
        raise IngestError(listed([text for _, text in mistakes], "the settings"))
    return settings


def _from_document(document: Mapping[str, Any]) -> tuple[list[Mistake], Settings | None]:
    """Return settings from a document; or None, and the mistakes, each with its place."""
    mistakes: list[Mistake] = []
    given = dict(document)
    arrays = given.pop("table", [])
    defaults = given.pop("defaults", {})
    values = _checked_fields((), given, Settings, mistakes, besides=("table", "defaults", "tables"))
    if not isinstance(arrays, list) or not all(isinstance(array, dict) for array in arrays):
        mistakes.append((("table",), "tables must be written as [[table]], one for each topic"))
        arrays = []
    if not isinstance(defaults, dict):
        mistakes.append((("defaults",), "wrong type: defaults must be a table, written as [defaults]"))
        defaults = {}
    base = {"topic": ".*"} | _checked_fields(("defaults",), defaults, Table, mistakes, besides=_NOT_OF_DEFAULTS)
    tables = []
    for number, array in enumerate(arrays):
        if "topic" not in array:
            mistakes.append((("table", str(number)), "a [[table]] has no topic: name it, or give a regular expression"))
        tables.append(base | _checked_fields(("table", str(number)), array, Table, mistakes))
    mistakes += [((name,), f"{name} is missing: {text}") for name, text in NEEDED.items() if name not in document]
    # Substitutes for missing or invalid settings: they keep all other checks running.
    stand_ins = {name: text for name, text in _STAND_INS.items() if name in document or name in NEEDED}
    settings = Settings(
        **(stand_ins | values), defaults=Table(**base), tables=tuple(Table(**table) for table in tables)
    )
    known = {place for place, _ in mistakes}
    for place, text in mistakes_of(settings):
        is_inherited = (
            place[0] == "table" and place[-1] not in arrays[int(place[1])] and ("defaults", place[-1]) in known
        )
        if place not in known and not is_inherited:
            mistakes.append((place, text))
            known |= {place} if place[0] == "defaults" else set()
    return mistakes, None if mistakes else settings


#: Valid values for settings that are missing or invalid.
_STAND_INS: Final[dict[str, Any]] = {
    "checkpoint": "/", "into": "/", "topics": ".*", "kafka": {"bootstrap.servers": "broker:9092"}, "registry": "http://registry",
}  # fmt: skip
_TEXT: Final = (str, "text")
#: By the type of a field: the type in TOML, and its name in an error.
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "str": _TEXT, "str | None": _TEXT, "ModeName": _TEXT, "int": (int, "a whole number"), "bool": (bool, "true or false"),
    "int | str": ((int, str), "a whole number or a text"), "int | str | None": ((int, str), "a whole number or a text"),
    "tuple[str, ...]": (list, "a list of texts"), "Mapping[str, str]": (dict, "a table"),
}  # fmt: skip


def _checked_fields(
    place: tuple[str, ...],
    given: Mapping[str, Any],
    settings_class: type,
    mistakes: list[Mistake],
    besides: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the known settings of one TOML table that have the right type; append mistakes."""
    known = {setting.name: str(setting.type) for setting in fields(settings_class) if setting.name not in besides}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            mistakes.append(((*place, name), _unknown_text(place, name, value, known)))
            continue
        wanted, shown = _TYPES[known[name]]
        if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
            mistakes.append(((*place, name), f"wrong type: {name} must be {shown}"))
        elif wanted is list:
            values[name] = tuple(map(str, value))
        elif wanted is dict:
            values[name] = {str(key): _text(item) for key, item in _flat(value)}
        else:
            values[name] = value
    return values


def _unknown_text(place: tuple[str, ...], name: str, value: Any, known: Iterable[str]) -> str:
    """Return the mistake of a name that is not a setting of its section.

    A setting of another place is sent there, even if a setting of this place has a similar name.

    Args:
        known: the settings of this place.
    """
    import difflib

    of_tables = {setting.name for setting in fields(Table)}
    if not place and name in of_tables:
        where = "a [[table]]" if name in _NOT_OF_DEFAULTS else "[defaults] or a [[table]]"
        return f"{name} is a setting of a table: write it in {where}"
    if place and name in of_tables:
        return f"{name} is a setting of a single table: write it in a [[table]]"
    if place and name in {setting.name for setting in fields(Settings)}:
        where = f"write it as [{name}]" if name in _SECTIONS else "write it above the first [section]"
        return f"{name} is a setting of the whole ingest: {where}"
    if not place and (client := _client_setting(name, value)):
        return f"{client} is a setting of Kafka's clients: write it in [kafka]"
    shown = {each: f"[{each}]" if each in _SECTIONS and not place else each for each in known}
    if not place:
        shown |= {"defaults": "[defaults]", "table": "[[table]]"}
    is_section = isinstance(value, Mapping) or (isinstance(value, list) and value and isinstance(value[0], Mapping))
    choices = [each for each, text in shown.items() if text != each or not is_section]
    near = difflib.get_close_matches(name, choices, 1)
    hint = (
        f"did you mean {shown[near[0]]}?" if near else f"known are {', '.join(shown[each] for each in sorted(shown))}"
    )
    return f"{name} is unknown: {hint}"


def _client_setting(name: str, value: Any) -> str:
    """Return the name of the Kafka setting that was written outside of ``[kafka]``; empty if the name is none."""
    names = [name, *(each for each, _ in _flat(value, f"{name}."))] if isinstance(value, Mapping) else [name]
    clients = (each for each in names if "." in each and not unknown_settings([each.removeprefix("kafka.")]))
    return next(clients, "")


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield nested settings with joined names: TOML reads ``bootstrap.servers = "…"`` without quotes as a nested table."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each name in a TOML file, by its place. The place of a [[table]] includes the table's number."""
    lines: dict[tuple[str, ...], int] = {(): 1}
    place: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.\"-]+)\s*\]", line):
            name = header[2].strip('"')
            place = tuple(name.split("."))
            if header[1] == "[[":
                numbers[name] = numbers.get(name, -1) + 1
                lines.setdefault((name,), number)
                place = (name, str(numbers[name]))
            elif place[0] in numbers:
                place = (place[0], str(numbers[place[0]]), *place[1:])
            lines.setdefault(place, number)
        elif key := re.match(r"\s*(\"[^\"]+\"|'[^']+'|[\w-]+)\s*[.=]", line):
            lines.setdefault((*place, key[1].strip("\"'")), number)
    return lines


def _line(lines: Mapping[tuple[str, ...], int], place: tuple[str, ...]) -> int:
    while place not in lines:
        place = place[:-1]
    return lines[place]
