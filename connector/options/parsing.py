"""Values of options out of Spark's strings, and of Kafka's client settings among them.

Shared by the source and the sink. Option names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pykafka_wire.errors import OptionError
from pykafka_wire.options.logged_once import is_first
from pykafka_wire.options.names import MODES, PREFIX, REFUSED_IN_SPARK, SPARKS_OWN, check_names
from pykafka_wire.options.option import Mode, Option
from pykafka_wire.options.option_table import (
    DATABRICKS_SERVICE_CREDENTIAL,
    DATABRICKS_SERVICE_CREDENTIAL_SCOPE,
    TASK_METRICS,
)
from pykafka_wire.task_metrics import StatsdAgent
from pykafka_wire.wire.errors import SettingsError, fill_in
from pykafka_wire.wire.masking import without_secrets
from pykafka_wire.wire.settings import ClientSettings, unknown_settings
from pykafka_wire.wire.settings.unsupported import IGNORED

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seen on Spark 4.2 and 4.3, in reads and in INSERT INTO. The options of a temporary view and of WITH (…) arrive.
TABLE_OPTIONS: Final = (
    "Spark passes the OPTIONS of a table to no Python data source. Use CREATE TEMPORARY VIEW … USING `pykafka-wire` OPTIONS (…), "
    "or give the options in each query: SELECT … FROM t WITH (`kafka.bootstrap.servers` = 'host:9092', subscribe = 'orders')"
)


class OptionValues:
    """Reads typed values out of Spark's option strings, whatever the case of their names.

    Attributes:
        warnings: options that have no effect, sentence by sentence, for :func:`log_warnings`.
    """

    def __init__(self, options: Mapping[str, str], mode: Mode) -> None:
        self.mode = mode
        self.given = {name.lower(): value for name, value in options.items()}
        self.warnings = check_names(options, mode)

    def __getitem__(self, option: Option[T]) -> T:
        """Return the option's value, its default where it is not given or empty."""
        given = self.given.get(option.name.lower(), "").strip()
        return option.parse(given, option.name) if given else option.default_in(self.mode)

    def has(self, option: Option[Any]) -> bool:
        """Return whether the option is given, be it empty."""
        return option.name.lower() in self.given

    def client_settings(self) -> ClientSettings:
        for name, reason in REFUSED_IN_SPARK.items():
            if PREFIX + name in self.given:
                raise OptionError(f"{PREFIX}{name} cannot be set here: {reason}.")
        settings = {name[len(PREFIX) :]: value for name, value in self.given.items() if name.startswith(PREFIX)}
        if not settings.get("bootstrap.servers", "").strip():
            raise OptionError(_no_brokers(self.given))
        self._add_service_credential(settings)
        try:
            client = ClientSettings.from_options(settings)
        except SettingsError as error:
            raise OptionError(error.with_prefix(PREFIX).text) from error
        if client.unknown:
            self.warnings.append(
                f"Unknown Kafka settings of a {MODES[self.mode]} are ignored: {unknown_settings(client.unknown, PREFIX)}"
            )
        self.warnings += client.warnings(PREFIX)
        for name in client.ignored:
            _log.info("%s%s has no effect: %s", PREFIX, name, fill_in(IGNORED[name], PREFIX))
        return client

    def _add_service_credential(self, settings: dict[str, str]) -> None:
        """Add Databricks' own names for ``kafka.auth`` and the scope."""
        credential, scope = self[DATABRICKS_SERVICE_CREDENTIAL], self[DATABRICKS_SERVICE_CREDENTIAL_SCOPE]
        given = {"auth": f"databricks:{credential}" if credential else None, "sasl.oauthbearer.scope": scope}
        for name, value in given.items():
            if value is not None and settings.setdefault(name, value) != value:
                raise OptionError(
                    f"{DATABRICKS_SERVICE_CREDENTIAL.name} contradicts {PREFIX}{name}={without_secrets(settings[name])}: "
                    "leave out one of the two."
                )


def statsd_agent(values: OptionValues) -> StatsdAgent | None:
    """Return where tasks of a batch read or a write send their figures."""
    agent = values[TASK_METRICS]
    if agent == "driver":
        raise OptionError(
            "taskMetrics=driver is for streaming reads, whose process on the driver receives the figures: use "
            "statsd://host:port, or remove taskMetrics."
        )
    return agent


def _no_brokers(given: Mapping[str, str]) -> str:
    text = 'kafka.bootstrap.servers is missing: name at least one broker, as in .option("kafka.bootstrap.servers", "host:9092").'
    if given.keys() <= SPARKS_OWN:  # so does a table of the catalog come here, too (Spark 4.0 to 4.3)
        text += f" No other option is given either. If this is a table made by CREATE TABLE: {TABLE_OPTIONS}."
    return text


def log_warnings(warnings: Sequence[str], query: str = "") -> None:
    """Log what has no effect or is not safe, each sentence once for a streaming query, or once in a process.

    Spark builds a query's readers and writers in two or three processes on the driver, and each task has the options, too. So the
    parser returns the warnings, and only these log them: ``reader()``, ``writer()``, the process of a streaming query, and
    ``streamWriter()`` in the process where Spark plans the write, not where it commits.

    Args:
        query: identifies a streaming query, such as its checkpoint.
    """
    for warning in warnings:
        if is_first(query, warning):
            _log.warning("%s", warning)
