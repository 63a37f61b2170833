"""How every command connects to the cluster: ``--bootstrap``, ``-X kafka.name=value`` and ``--config client.properties``.

Owns these options and the resulting settings. The options may stand before or after the command's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pykafka_wire.cli.output import Output, parse_pair
from pykafka_wire.registry_settings import REGISTRY_PREFIX, REGISTRY_SETTINGS
from pykafka_wire.wire.errors import TransportError

if TYPE_CHECKING:  # --help needs none of these
    from pykafka_wire.wire.cluster import Cluster
    from pykafka_wire.wire.settings import ClientSettings

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: Shorter than the defaults, since a person waits.
_DEFAULTS: Final = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
#: The environment variable with brokers, used if neither --bootstrap nor a file names any.
BOOTSTRAP_VARIABLE: Final = "PYKAFKA_WIRE_BOOTSTRAP"
#: Used if nothing names brokers or a registry: the addresses of ``pykafka-wire cluster --registry``.
_LOCAL_BROKER: Final = "127.0.0.1:9092"
_LOCAL_REGISTRY: Final = "http://127.0.0.1:8081/apis/ccompat/v7"
_REGISTRY_VARIABLE: Final = "PYKAFKA_WIRE_REGISTRY"
_REGISTRY_URL: Final = "schema.registry.url"
_META_KEY: Final = "pykafka_wire.cli.given"
#: A logical line of a properties file that is no comment. A line that ends with a backslash continues on the next line.
_LINE: Final = re.compile(r"^(?![ \t\f]*[#!])(?:\\[\s\S]|[^\\\n])+", re.MULTILINE)
_CONTINUED: Final = re.compile(r"\\\n[ \t\f]*|(\\.)")
#: The first space, ``=`` or ``:`` without a preceding backslash ends the name.
_PAIR: Final = re.compile(r"\s*((?:\\.|[^\\\s=:])+)\s*[=:]?\s*(.*)", re.DOTALL)
#: A backslash escape.
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _store_in_context(
    context: click.Context, parameter: click.Parameter, value: Any
) -> None:  # Any: any option's value
    given = context.meta.setdefault(_META_KEY, {"settings": ()})
    if parameter.name == "settings":
        given["settings"] += value
    elif value:
        given[parameter.name] = value


#: How click hands over the options that every command of a kind has.
_STORED: Final[Mapping[str, Any]] = {"expose_value": False, "callback": _store_in_context, "is_eager": True}


def command(
    short_help: str | None = None, *, group: click.Group | None = None, **attributes: Any
) -> Callable[[Callable[..., None]], click.Command]:  # Any: click's own keyword arguments
    """Return a decorator that makes a function a command, or a subcommand, with the connection options."""
    make = click.command if group is None else group.command
    return lambda function: make(short_help=short_help, **attributes)(connection_options(function))


def connection_options(function: FunctionT) -> FunctionT:
    """Add ``--json`` and the connection options to a command; :func:`settings` returns their values."""
    add = partial(click.option, **_STORED)
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    default = f"[default: ${BOOTSTRAP_VARIABLE}, or {_LOCAL_BROKER}, where pykafka-wire cluster listens]"
    for option in (
        json_option,
        add("--config", metavar="FILE", type=file, help="A properties file, such as the client.properties of Kafka's tools."),
        add("-X", "settings", metavar="kafka.NAME=VALUE", multiple=True,
            help="A client setting by Kafka's name; may be repeated."),
        add("-b", "--bootstrap", metavar="HOST:PORT,…", help=f"Brokers {default}."),
    ):  # fmt: skip
        function = option(function)
    return function


def json_option(function: FunctionT) -> FunctionT:
    """Add ``--json`` to a command; :func:`output` returns its value."""
    return click.option("--json", is_flag=True, help="Print JSON.", **_STORED)(function)


def output() -> Output:
    """Return the output of this command, as text or JSON."""
    return Output(json=bool(click.get_current_context().meta.get(_META_KEY, {}).get("json")))


def named_brokers() -> str:
    """Return the brokers named by this command's options or by the environment."""
    return given_options().get("bootstrap.servers") or os.environ.get(BOOTSTRAP_VARIABLE, "")


def settings() -> ClientSettings:
    """Return the client settings of this command.

    Raises:
        click.UsageError: ``-X`` is not ``name=value``.
        SettingsError: a setting is malformed.
    """
    from pykafka_wire.wire.settings import ClientSettings, unknown_settings

    parsed = ClientSettings.from_options(split_settings(_options())[0])
    if parsed.unknown:
        click.echo(f"Unknown settings are ignored: {unknown_settings(parsed.unknown)}", err=True)
    return parsed


def source_options(registry: str | None) -> dict[str, str]:
    """Return the settings as options of the data source. The registry is ``registry``; if it is None, the registry in the settings,
    or else the default.
    """
    options = _options()
    url = registry or options.get(_REGISTRY_URL) or os.environ.get(_REGISTRY_VARIABLE) or _LOCAL_REGISTRY
    return {(name if _is_of_registry(name) else f"kafka.{name}"): value for name, value in options.items()} | {
        _REGISTRY_URL: url
    }


def registry_option(function: FunctionT) -> FunctionT:
    """Add the option ``--registry URL`` to a command; pass its value to :func:`source_options`."""
    text = (
        f"The schema registry [default: ${_REGISTRY_VARIABLE}, or that of pykafka-wire cluster --registry]; credentials by "
        "-X schema.registry.NAME=VALUE or --config."
    )
    return click.option("--registry", metavar="URL", help=text)(function)


def split_settings(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options into client settings and registry settings."""
    of_registry = {name: value for name, value in options.items() if _is_of_registry(name)}
    return {name: value for name, value in options.items() if name not in of_registry}, of_registry


def _is_of_registry(name: str) -> bool:
    return name.startswith(REGISTRY_PREFIX) or name in REGISTRY_SETTINGS


def kafka_options() -> dict[str, str]:
    """Return this command's client settings as options of the Spark source, without the short timeouts for interactive use.

    Raises:
        click.UsageError, SettingsError: as :func:`settings`.
    """
    settings()
    given, _ = split_settings(_options())
    return {f"kafka.{name}": value for name, value in given.items() if value != _DEFAULTS.get(name)}


def _options() -> dict[str, str]:
    """Return the given client settings, completed by this command's defaults."""
    return _DEFAULTS | given_options() | {"bootstrap.servers": named_brokers() or _LOCAL_BROKER}


def given_options() -> dict[str, str]:
    """Return the client and registry settings on the command line.

    Raises:
        click.UsageError: ``-X`` is not ``name=value``, or the name is unknown.
    """
    given = click.get_current_context().meta.get(_META_KEY, {"settings": ()})
    options: dict[str, str] = {}
    if "config" in given:
        path: Path = given["config"]
        options |= _without_prefix(parse_properties(path.read_text(encoding="utf-8")))
    pairs = (parse_pair("-X", setting, "kafka.NAME=VALUE") for setting in given["settings"])
    typed = _without_prefix({name.strip(): value for name, value in pairs})
    _check_known(typed)
    options |= typed
    if "bootstrap" in given:
        options["bootstrap.servers"] = given["bootstrap"]
    return options


def _check_known(typed: Mapping[str, str]) -> None:
    """Raise click.UsageError for unknown setting names: with a misspelt name a client might connect in plaintext.

    A file for another client (``--config``) may have more settings; unknown ones are only reported.
    """
    from pykafka_wire.wire.settings import unknown_settings

    if unknown := unknown_settings(split_settings(typed)[0]):
        raise click.UsageError(f"-X names settings that do not exist: {unknown}. Correct their names.")


def _without_prefix(options: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


@contextmanager
def connected(**changes: Any) -> Iterator[Cluster]:  # Any: fields of ClientSettings
    """Yield the connected cluster; close its connections at the end.

    Args:
        changes: fields of the settings that this command requires, whatever the user gives.
    """
    from pykafka_wire.wire.cluster import Cluster

    try:
        with Cluster(replace(settings(), **changes)) as cluster:
            yield cluster
    except TransportError:
        if not named_brokers():
            click.echo(
                f"No brokers are named, so the default {_LOCAL_BROKER} was tried. Start a cluster there (pykafka-wire cluster), "
                f"or give --bootstrap HOST:PORT, --config FILE with bootstrap.servers, or set {BOOTSTRAP_VARIABLE}.",
                err=True,
            )
        raise


def parse_properties(text: str) -> dict[str, str]:
    """Return the names and values in a properties file. The last value of a name counts."""
    lines = (_CONTINUED.sub(lambda escape: escape[1] or "", line) for line in _LINE.findall(text))
    return {_unescape(pair[1]): _unescape(pair[2]) for line in lines if (pair := _PAIR.fullmatch(line))}


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2]), text)
