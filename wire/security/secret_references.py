"""Secrets by reference, so that neither a query's text nor a pickle holds them.

Owns the forms ``file:/path`` (the file's content, without its last line break), ``env:NAME``, and
``provider:module:function`` (called with the setting's name, returns the text). The prefix ``literal:`` marks a text that only
looks like a reference. A reference is resolved when a connection is opened, on executors too, so that the next connection
uses a rotated secret. No error of this module shows a secret.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.masking import quoted

_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*")
_IMPORT_PATH: Final = re.compile(r"[\w.]+:[\w.]+")


def resolve(value: str, setting: str) -> str:
    """Return the text that ``value`` refers to, or ``value`` itself if it is not a reference.

    Raises:
        SettingsError: the file cannot be read, the variable is not set, or the provider cannot be called or fails.
    """
    kind, colon, rest = value.partition(":")
    if not colon or "\n" in value:
        return value
    if kind == "literal":
        return rest
    if kind == "file":
        return _from_file(rest, setting)
    if kind == "env":
        if rest not in os.environ:
            # A text that is not a valid name may be a secret that only looks like a reference.
            name = rest if _VARIABLE.fullmatch(rest) else "after env:"
            raise SettingsError(
                "{setting} refers to the environment variable {variable}, which is not set.",
                setting=setting,
                remedy="Set it on every machine that runs the query, executors too. "
                "Write a text that begins with env: as literal:env:….",
                variable=name,
            )
        try:
            os.environ[rest].encode()
        except UnicodeEncodeError:
            raise SettingsError(
                "{setting} refers to the environment variable {variable}, which is not UTF-8 text.",
                setting=setting,
                variable=rest,
            ) from None
        return os.environ[rest]
    if kind == "provider":
        if _IMPORT_PATH.fullmatch(rest) is None:
            raise SettingsError(
                "{setting} begins with provider: and names no function.",
                setting=setting,
                remedy="Write provider:module:function. Write a text that begins with provider: as literal:provider:….",
            )
        return _from_provider(rest, setting)
    return value


def load_callable(path: str, setting: str) -> Callable[..., Any]:  # Any: what a user's function takes and returns
    """Return the object that an import path ``module:function`` or ``module:object.method`` names.

    Raises:
        SettingsError: it cannot be imported, or cannot be called.
    """
    module_name, _, attributes = path.strip().partition(":")
    if _IMPORT_PATH.fullmatch(path.strip()) is None:
        # Not shown: it may be a secret that stands in the wrong place.
        raise SettingsError("{setting} names no function.", setting=setting, remedy="Write module:function.")
    try:
        provider: Any = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            provider = getattr(provider, attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            "{setting} names {path}, which cannot be imported: {reason}.",
            setting=setting,
            remedy="Install its package on every machine that runs the query, executors too.",
            path=quoted(path),
            reason=error,
        ) from error
    if not callable(provider):
        raise SettingsError("{setting} names {path}, which cannot be called.", setting=setting, path=quoted(path))
    called: Callable[..., Any] = provider
    return called


def _from_file(path: str, setting: str) -> str:
    # file:///path is a URL of the same file.
    where = Path(path.removeprefix("//") if path.startswith("///") else path)
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        name = (
            where if len(where.parts) > 1 else "after file:"
        )  # the latter may be a secret that only looks like a reference
        raise SettingsError(
            "{setting} refers to the file {file}, which cannot be read: {reason}.",
            setting=setting,
            remedy="The file must exist on every machine that runs the query, executors too. "
            "Write a text that begins with file: as literal:file:….",
            file=name,
            reason=reason,
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def _from_provider(path: str, setting: str) -> str:
    provider = load_callable(path, setting)
    try:
        text = provider(setting)
    except Exception as error:
        # Only the type of the error: the provider's text may hold secrets.
        raise SettingsError(
            "{setting}: the provider {path} failed ({type}).",
            setting=setting,
            path=quoted(path),
            type=type(error).__name__,
        ) from error
    if not isinstance(text, str):
        raise SettingsError(
            "{setting}: the provider {path} returned {type}, not str.",
            setting=setting,
            path=quoted(path),
            type=type(text).__name__,
        )
    return text
