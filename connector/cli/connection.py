"""How every command connects to the cluster: ``--bootstrap``, ``-X kafka.name=value`` and ``--config client.properties``.

Owns those options and the settings that result from them. They may stand before the command's name or after it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pykafka_wire.cli.output import Output
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings, unknown_settings

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: Shorter than the defaults, since a person waits.
_DEFAULTS: Final = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
#: Used where no --bootstrap and no file names brokers.
BOOTSTRAP_VARIABLE: Final = "PYKAFKA_WIRE_BOOTSTRAP"
_META_KEY: Final = "pykafka_wire.cli.given"
#: In a properties file: a backslash with what it stands for.
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
#: The first blank, ``=`` or ``:`` that no backslash precedes ends the name.
_PAIR: Final = re.compile(r"((?:\\.|[^\\\s=:])+)\s*[=:]?\s*(.*)", re.DOTALL)
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def connection_options(function: FunctionT) -> FunctionT:
    """Add the options to a command; :func:`settings` returns their values."""
    for add in (
        click.option("--json", "json", is_flag=True, help="Print JSON.", **_stored_in_context()),
        click.option(
            "--config", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A properties file, such as the client.properties of Kafka's tools.", **_stored_in_context(),
        ),
        click.option(
            "-X", "settings", metavar="kafka.NAME=VALUE", multiple=True,
            help="A client setting by Kafka's name; may be repeated.", **_stored_in_context(),
        ),
        click.option(
            "-b", "--bootstrap", metavar="HOST:PORT,…", help=f"Brokers [default: ${BOOTSTRAP_VARIABLE}].", **_stored_in_context()
        ),
    ):  # fmt: skip
        function = add(function)
    return function


def _stored_in_context() -> dict[str, Any]:  # Any: click's own keyword arguments
    return {"expose_value": False, "callback": _store_in_context, "is_eager": True}


def _store_in_context(
    context: click.Context, parameter: click.Parameter, value: Any
) -> None:  # Any: any option's value
    given = context.meta.setdefault(_META_KEY, {"settings": ()})
    if parameter.name == "settings":
        given["settings"] += value
    elif value:
        given[parameter.name] = value


def output() -> Output:
    """The output of this command, as text or JSON."""
    return Output(json=bool(click.get_current_context().meta.get(_META_KEY, {}).get("json")))


def names_brokers() -> bool:
    """Whether this command's options, or the environment, name brokers."""
    return bool(_options().get("bootstrap.servers"))


def settings() -> ClientSettings:
    """The client settings of this command.

    Raises:
        click.UsageError: there is no bootstrap server, or ``-X`` is not ``name=value``.
        SettingsError: a setting is malformed.
    """
    options = _options()
    if not options.get("bootstrap.servers"):
        raise click.UsageError(
            "No brokers are named: give --bootstrap HOST:PORT, --config FILE with bootstrap.servers, or set the environment "
            f"variable {BOOTSTRAP_VARIABLE} to HOST:PORT."
        )
    parsed = ClientSettings.from_options(options)
    if parsed.unknown:
        click.echo(f"Unknown settings are ignored: {unknown_settings(parsed)}", err=True)
    return parsed


def _options() -> dict[str, str]:
    """Client settings as they were given, and this command's defaults."""
    given = click.get_current_context().meta.get(_META_KEY, {"settings": ()})
    options = dict(_DEFAULTS)
    if "config" in given:
        path: Path = given["config"]
        options |= _without_prefix(parse_properties(path.read_text(encoding="utf-8")))
    for each in given["settings"]:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"-X {each}: write -X kafka.NAME=VALUE.")
        options |= _without_prefix({name.strip(): value})
    if "bootstrap" in given:
        options["bootstrap.servers"] = given["bootstrap"]
    if not options.get("bootstrap.servers"):
        options["bootstrap.servers"] = os.environ.get(BOOTSTRAP_VARIABLE, "")
    return options


def _without_prefix(options: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


@contextmanager
def connected() -> Iterator[Cluster]:
    """The cluster, its connections closed at the end."""
    with Cluster(settings()) as cluster:
        yield cluster


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a properties file, the last of each name."""
    found = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a line that ends with a backslash continues in the next."""
    begun = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        n_backslashes = len(line) - len(line.rstrip("\\"))
        if n_backslashes % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2]), text)
