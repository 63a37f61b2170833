"""How every command reaches the cluster: ``--bootstrap``, ``-X kafka.name=value`` and ``--config client.properties``.

Owns those options and the settings they add up to. They may stand before the command's name or after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pykafka_wire.cli.output import Output
from pykafka_wire.cli.properties import parse_properties
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings, unknown_settings

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: A person waits: a call with all its retries takes Java's minute only where the user asks for it.
_PATIENCE: Final = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
#: Used where no --bootstrap and no file names brokers.
BOOTSTRAP_VARIABLE: Final = "PYKAFKA_WIRE_BOOTSTRAP"
_GIVEN: Final = "pykafka_wire.cli.given"


def connection_options(function: FunctionT) -> FunctionT:
    """Adds the options to a command; what they say is had from :func:`settings`."""
    for add in (
        click.option("--json", "json", is_flag=True, help="Print JSON, for machines.", **_remembered()),
        click.option(
            "--config", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A properties file, such as the client.properties of Kafka's tools.", **_remembered(),
        ),
        click.option(
            "-X", "settings", metavar="kafka.NAME=VALUE", multiple=True,
            help="A client setting by Kafka's name; may be repeated.", **_remembered(),
        ),
        click.option(
            "-b", "--bootstrap", metavar="HOST:PORT,…", help=f"Brokers [default: ${BOOTSTRAP_VARIABLE}].", **_remembered()
        ),
    ):  # fmt: skip
        function = add(function)
    return function


def _remembered() -> dict[str, Any]:  # Any: click's own keyword arguments
    return {"expose_value": False, "callback": _remember, "is_eager": True}


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:  # Any: any option's value
    given = context.meta.setdefault(_GIVEN, {"settings": ()})
    if parameter.name == "settings":
        given["settings"] += value
    elif value:
        given[parameter.name] = value


def output() -> Output:
    """Where this command prints, and in which form."""
    return Output(json=bool(click.get_current_context().meta.get(_GIVEN, {}).get("json")))


def settings() -> ClientSettings:
    """The client settings of this command.

    Raises:
        click.UsageError: there is no bootstrap server, or ``-X`` is not ``name=value``.
        SettingsError: a setting is malformed.
    """
    given = click.get_current_context().meta.get(_GIVEN, {"settings": ()})
    options = dict(_PATIENCE)
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
    bootstrap = options.get("bootstrap.servers") or os.environ.get(BOOTSTRAP_VARIABLE, "")
    if not bootstrap:
        raise click.UsageError("No brokers are named: give --bootstrap HOST:PORT, or --config with bootstrap.servers.")
    made = ClientSettings.from_options(options | {"bootstrap.servers": bootstrap})
    if made.unknown:
        click.echo(f"Ignored, for this client does not know them: {unknown_settings(made)}", err=True)
    return made


def _without_prefix(options: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


@contextmanager
def connected() -> Iterator[Cluster]:
    """The cluster, its connections closed at the end."""
    with Cluster(settings()) as cluster:
        yield cluster
