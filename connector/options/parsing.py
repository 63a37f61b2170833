"""Values of options: Spark's strings become booleans, numbers, durations and client settings.

Shared by the source and the sink. Option names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from pykafka_wire.errors import OptionError
from pykafka_wire.options.names import Mode, check_names
from pykafka_wire.options.starting_offsets import UNITS_MS
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.settings import ClientSettings, unknown_settings
from pykafka_wire.wire.unsupported_settings import IGNORED

_log = logging.getLogger(__name__)

#: Settings that would break what the connector promises, with the reason; Spark's own connector refuses them too.
_REFUSED: Final[dict[str, str]] = {
    "kafka.auto.offset.reset": "set startingOffsets instead; the query's checkpoint says where it goes on",
    "kafka.key.deserializer": "keys are binary; cast the column in the query",
    "kafka.value.deserializer": "values are binary; cast the column in the query",
    "kafka.key.serializer": "keys are binary or string; cast the column before the write",
    "kafka.value.serializer": "values are binary or string; cast the column before the write",
    "kafka.enable.auto.commit": "progress is committed per micro-batch; commitOffsets=false turns that off",
    "kafka.interceptor.classes": "interceptors are Java classes, and no Java client runs here",
}


class OptionValues:
    """Reads typed values out of Spark's option strings, whatever the case of their names."""

    def __init__(self, options: Mapping[str, str], mode: Mode) -> None:
        self.mode = mode
        self.given = {name.lower(): value for name, value in options.items()}
        check_names(options, mode)

    def text(self, name: str) -> str | None:
        value = self.given.get(name.lower(), "").strip()
        return value or None

    def boolean(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name} is {value!r}: use true or false.")
        return value == "true"

    def positive(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) == 0:
            raise OptionError(f"{name} is {value!r}: use a whole number above zero.")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", value.lower())
        if match is None:
            raise OptionError(f"{name} is {value!r}: use a number with a unit, such as 500ms, 30s, 15m, 2h or 1d.")
        return int(match[1]) * UNITS_MS[match[2] or "ms"]

    def client_settings(self) -> ClientSettings:
        for name, reason in _REFUSED.items():
            if name in self.given:
                raise OptionError(f"{name} cannot be set here: {reason}.")
        kafka = {name[len("kafka.") :]: value for name, value in self.given.items() if name.startswith("kafka.")}
        if not kafka.get("bootstrap.servers", "").strip():
            raise OptionError(
                "kafka.bootstrap.servers is missing: name at least one broker, as in "
                '.option("kafka.bootstrap.servers", "host:9092").'
            )
        try:
            settings = ClientSettings.from_options(kafka)
        except SettingsError as error:
            raise OptionError(f"{error.text} (given as kafka.*)") from error
        if settings.unknown:
            _log.warning("Kafka settings that this client does not know are ignored: %s", unknown_settings(settings))
        for name in settings.ignored:
            _log.info("kafka.%s has no effect: %s", name, IGNORED[name])
        return settings

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = (self.text(name) or choices[0]).lower()
        if value not in choices:
            raise OptionError(f"{name} is {value!r}: use {' or '.join(choices)}.")
        return value
