"""The settings file of an ingest: the file that a command line names, and the file that an ingest without one writes.

An ingest without a settings file writes its options as ``ingest.toml`` into the folder of its tables, so that ``query``,
``--verify`` and the next start can name the folder. Secrets are not written: the file contains references instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from pykafka_wire.places import is_spark_s_to_resolve, local_folder
from pykafka_wire.registry_settings import REGISTRY_PREFIX, USER_INFO, USER_SOURCE
from pykafka_wire.wire.masking import without_secrets

_NAME: Final = "ingest.toml"
#: The first line of a file that nobody has edited; it ends with a digest of the other lines.
_HEAD: Final = "# Options of pykafka-wire ingest. A start with options replaces this file, unless it was edited. "


class _SettingsFile(click.Path):
    """A parameter that is an ingest's settings file, or the folder of its tables."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:  # Any: click's
        if "://" in os.fsdecode(value):
            self.fail(
                f"{without_secrets(os.fsdecode(value))} is not on this machine: name the settings file of the ingest, which "
                "pykafka-wire ingest --init writes.",
                parameter,
                context,
            )
        path = Path(os.fsdecode(super().convert(value, parameter, context)))
        if not path.is_dir():
            return path
        if not (path / _NAME).is_file():
            self.fail(
                f"the folder {path} has no {_NAME}, the settings of an ingest that was started with options: name a settings file.",
                parameter,
                context,
            )
        return path / _NAME


SETTINGS_FILE: Final = _SettingsFile()


def keep_settings(given: Mapping[str, Any]) -> str:
    """Write settings into the folder of the tables, unless the file there was edited; return a line that says what was done.

    Args:
        given: the settings, as in a settings file.

    Returns an empty text if the tables are not in a folder of this machine.
    """
    into = given["into"]
    folder = None if is_spark_s_to_resolve(into) or not ("/" in into or ":" in into) else local_folder(into)
    if folder is None:
        return ""
    path, text = Path(folder, _NAME), "\n".join(_lines(with_registry_user_apart(given))) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
        if held is not None and not _is_unedited(held):
            return f"settings: {path} was edited, so it is not replaced; pykafka-wire ingest {path} uses it"
        if held is not None and _checkpoint_line(held) != _checkpoint_line(text):
            return f"settings: {path} belongs to an ingest with another checkpoint, so it is not replaced"
        content = f"{_HEAD}{_digest(text)}\n{text}".encode()
        with open(path, "wb", opener=_open_private) as file:
            file.write(content)
    except (OSError, UnicodeEncodeError) as error:  # TOML must be UTF-8, but a folder's name may have other bytes
        reason = error.strerror if isinstance(error, OSError) else "its settings are not UTF-8"
        return f"settings: {path} cannot be written ({reason})"
    return f"settings: {path}"


def with_registry_user_apart(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which the registry's user is moved from the URL to its own option, which is known to be secret."""
    from pykafka_wire.values.registry.settings import without_user

    url, user = without_user(given.get("registry") or "")
    if user is None:
        return dict(given)
    options = {
        name: value
        for name, value in given.get("registry_options", {}).items()
        if name.lower().removeprefix(REGISTRY_PREFIX) != USER_SOURCE
    }
    return {**given, "registry": url, "registry_options": {**options, USER_INFO: user}}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _checkpoint_line(text: str) -> str | None:
    return next((line for line in text.splitlines() if line.startswith("checkpoint = ")), None)


def _is_unedited(text: str) -> bool:
    head, _, rest = text.partition("\n")
    return head == _HEAD + _digest(rest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _lines(given: Mapping[str, Any]) -> Iterator[str]:
    sections = {name: value for name, value in given.items() if isinstance(value, Mapping)}
    for name, value in given.items():
        if name not in sections:
            yield f"{name} = {toml_value(without_secrets(value) if name == 'registry' else value)}"
    for name, values in sections.items():
        yield from ("", f"[{name}]")
        yield from (setting_line(key, value) for key, value in values.items())


def setting_line(name: str, value: str) -> str:
    """Return a line of a section. A secret is replaced by a reference."""
    from pykafka_wire.ingest.watching.masking import is_secret

    if not is_secret(name, value):
        return f"{toml_name(name)} = {toml_value(value)}"
    variable = re.sub("[^A-Z0-9]", "_", name.removeprefix("kafka.").upper())
    return f"{toml_name(name)} = {toml_value(f'env:{variable}')}  # set this variable"


def toml_name(name: str) -> str:
    """Return a TOML key, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def toml_value(value: Any) -> str:  # Any: a value of TOML
    """Return a value in TOML; a text with backslashes, such as a regular expression, as a literal string if possible."""
    is_literal = isinstance(value, str) and "\\" in value and "'" not in value and value.isprintable()
    return f"'{value}'" if is_literal else _quoted(value)


def _quoted(value: Any) -> str:  # Any: a value of TOML
    # JSON escapes characters beyond 16 bits as two surrogates, which TOML refuses; TOML requires one more escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
