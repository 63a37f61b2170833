"""Option names: which ones a read or a write accepts, and what happens to the others.

A name near one that applies is refused, with that name; any other unknown name is ignored with a warning, since programs
written for Spark's own connector carry such options. The connector's own options are listed in
:mod:`pykafka_wire.options.option_table`; the values of client settings, ``kafka.*``, are checked by
:mod:`pykafka_wire.wire.settings`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from pykafka_wire.errors import OptionError
from pykafka_wire.options.option import Mode
from pykafka_wire.options.option_table import OPTIONS
from pykafka_wire.registry_settings import REGISTRY_PREFIX, REGISTRY_SETTINGS
from pykafka_wire.wire.errors import fill_in
from pykafka_wire.wire.settings import SETTINGS
from pykafka_wire.wire.settings.unsupported import IGNORED, REJECTED

PREFIX: Final = "kafka."

#: Options that Spark itself adds to a source's, for tables, views and streaming writers (seen on 4.0 to 4.3).
SPARKS_OWN: Final = frozenset(
    {"path", "paths", "provider", "owner", "location", "external", "is_managed_location", "comment", "collation"}
    | {"serialization.format", "checkpointlocation", "queryname", "outputmode"}
)

#: Client settings that would break what the connector promises, with the reason; Spark's own connector refuses them too.
REFUSED_IN_SPARK: Final[dict[str, str]] = {
    "auto.offset.reset": "use startingOffsets; a query that was started before continues from its checkpoint",
    "key.deserializer": "keys are binary; use keyFormat, or cast the column in the query",
    "value.deserializer": "values are binary; use valueFormat, or cast the column in the query",
    "key.serializer": "keys are binary or string; use keyFormat, or cast the column before the write",
    "value.serializer": "values are binary or string; use valueFormat, or cast the column before the write",
    "enable.auto.commit": "progress is committed after each micro-batch; commitOffsets=false turns that off",
    "interceptor.classes": "interceptors are Java classes, and no Java client runs here",
}

#: Confluent's serializers have these names for options of ours.
ALIASES: Final[dict[str, str]] = {"auto.register.schemas": "schema.registry.auto.register"}

_LETTERS: Final[dict[Mode, str]] = {"stream": "S", "batch": "B", "sink": "W"}
MODES: Final[dict[Mode, str]] = {"stream": "streaming read", "batch": "batch read", "sink": "write"}
#: What an option applies to, by its letters.
_APPLIES_TO: Final = {"SB": "reads", "S": "streaming reads", "B": "batch reads", "W": "writes"}
_READ_SETTINGS, _WRITE_SETTINGS = ("reads", "groups"), ("writes",)

#: Refused rather than ignored: without them the query would do something else.
_NO_END: Final = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "microbatch")
#: Names from other connectors and Kafka's tools that are too far from ours to be found by their letters.
_SYNONYMS: Final[dict[str, str]] = {
    "brokers": "kafka.bootstrap.servers",
    "servers": "kafka.bootstrap.servers",
    "brokerlist": "kafka.bootstrap.servers",
    "metadata.broker.list": "kafka.bootstrap.servers",
    "offset": "startingOffsets",
    "offsets": "startingOffsets",
    "consumergroup": "kafka.group.id",
    "registry.url": "schema.registry.url",
    "schemaregistry": "schema.registry.url",
    "schemaregistryaddress": "schema.registry.url",
    "schema.registry": "schema.registry.url",
    "schema.registry.uri": "schema.registry.url",
    "format": "valueFormat",
    "schema": "valueSchema",
    "avroschema": "valueSchema",
}
#: What stands for an option of the other direction.
_COUNTERPARTS: Final[dict[str, str]] = {
    "topic": "subscribe names the topics of a read",
    "topics": "subscribe names the topics of a read",
    "subscribe": "topic names the topic of a write",
    "subscribepattern": "topic names the topic of a write",
    "assign": "topic names the topic of a write",
}
#: How alike two names are, by difflib, for one to be a typing error of the other. ``numPartitions`` and ``minPartitions`` (0.85)
#: are, ``stopGracefullyOnShutdown`` and any name of ours (at most 0.47) are not.
_SIMILAR: Final = 0.7
#: Options of Spark's file sources that are like ours by their letters only.
_FOREIGN: Final = frozenset({"inferschema", "mergeschema"})


def check_names(options: Iterable[str], mode: Mode) -> list[str]:
    """Return warnings about options that have no effect on this kind of read or write, sentence by sentence.

    Raises:
        OptionError: a name that looks like a typing error, or like a client setting without its prefix.
    """
    known = {spec.name.lower(): spec for spec in OPTIONS}
    warnings: list[str] = []
    useless_settings: list[str] = []
    for name in options:
        lowered = name.lower()
        if lowered in SPARKS_OWN or lowered.startswith("option."):
            continue
        spec = known.get(ALIASES.get(lowered, lowered))
        if spec is not None and _LETTERS[mode] not in spec.where:
            warnings.append(_of_another_mode(spec.name, spec.where, mode))
        elif spec is not None or _is_of_registry(lowered):
            continue
        elif lowered.startswith(PREFIX):
            setting = lowered.removeprefix(PREFIX)
            if setting in known:
                raise OptionError(
                    f"unknown option {name!r}: it is no setting of Kafka's. Use {known[setting].name}, without kafka."
                )
            if setting in _settings_of(_WRITE_SETTINGS if mode != "sink" else _READ_SETTINGS):
                useless_settings.append(PREFIX + setting)
        else:
            warnings.append(_unknown(name, mode, known))
    if useless_settings:
        other = "reads" if mode == "sink" else "writes"
        warnings.append(
            f"These settings apply to {other}, and a {MODES[mode]} ignores them: {', '.join(useless_settings)}"
        )
    return warnings


def _is_of_registry(lowered: str) -> bool:
    """Return whether a name is a registry's credential or proxy, or a setting of TLS to the registry."""
    name = lowered.removeprefix(REGISTRY_PREFIX)
    return name in REGISTRY_SETTINGS or (name != lowered and name in _settings_of(("TLS",)))


def _of_another_mode(name: str, where: str, mode: Mode) -> str:
    """Return the warning about an option of the table that does not apply to ``mode``."""
    if name.lower() in _NO_END and mode == "stream":
        raise OptionError(
            f"{name} applies to batch reads only, since a stream has no end: use a batch read, or trigger(availableNow=True)."
        )
    counterpart = _COUNTERPARTS.get(name.lower())
    hint = f" ({counterpart})" if counterpart and (mode == "sink") != (where == "W") else ""
    return f"The option {name} applies to {_APPLIES_TO[where]}, and a {MODES[mode]} ignores it{hint}"


def _unknown(name: str, mode: Mode, known: Mapping[str, object]) -> str:
    """Return the warning about a name that is not in the table; raises OptionError where another name was probably meant."""
    lowered = name.lower()
    if lowered in _settings_of(("all", "SASL", "TLS", *(_WRITE_SETTINGS if mode == "sink" else _READ_SETTINGS))):
        if lowered == "auto.offset.reset":
            raise OptionError(f"unknown option {name!r}: {REFUSED_IN_SPARK[lowered]}.")
        if lowered not in REFUSED_IN_SPARK:
            raise OptionError(
                f"unknown option {name!r}: Kafka's settings need the prefix kafka., so use kafka.{lowered}."
            )
    if lowered in REJECTED:
        raise OptionError(
            f"unknown option {name!r}: {PREFIX}{lowered} is not supported either. {fill_in(REJECTED[lowered].remedy, PREFIX)}"
        )
    reason = REFUSED_IN_SPARK.get(lowered) or fill_in(IGNORED.get(lowered, ""), PREFIX)
    if reason:
        return f"The option {name} is ignored: {reason}"
    if lowered in _settings_of(("reads", "writes", "groups")):
        other = "reads" if mode == "sink" else "writes"
        return f"The option {name} is ignored: the Kafka setting kafka.{lowered} applies to {other}, not to a {MODES[mode]}"
    nearest = _nearest(lowered, mode)
    if nearest is not None:
        raise OptionError(f"unknown option {name!r}: did you mean {nearest}?")
    return f"The option {name} is unknown, and a {MODES[mode]} ignores it; the documentation's page Options lists all"


def _nearest(lowered: str, mode: Mode) -> str | None:
    """Return the option that applies to ``mode`` and that ``lowered`` was probably meant to be."""
    applicable = {spec.name.lower(): spec.name for spec in OPTIONS if _LETTERS[mode] in spec.where}
    if lowered in _FOREIGN:
        return None
    if lowered == "topics":
        return "topic" if mode == "sink" else "subscribe"
    synonym = _SYNONYMS.get(lowered)
    if synonym is not None and synonym.lower() in applicable:
        return synonym
    where = ("all", "SASL", "TLS", *(_WRITE_SETTINGS if mode == "sink" else _READ_SETTINGS))
    candidates = {name: PREFIX + name for name in _settings_of(where) if name not in REFUSED_IN_SPARK} | applicable
    candidates |= {name: name for name in REGISTRY_SETTINGS}
    if lowered.startswith(REGISTRY_PREFIX):  # compared without the prefix, which makes any two names alike
        lowered = lowered.removeprefix(REGISTRY_PREFIX)
        candidates = {
            name.removeprefix(REGISTRY_PREFIX): shown for name, shown in applicable.items() if name[-1] != "*"
        }
        candidates |= {name: REGISTRY_PREFIX + name for name in (*REGISTRY_SETTINGS, *_settings_of(("TLS",)))}
    near = difflib.get_close_matches(lowered, candidates, n=1, cutoff=_SIMILAR)
    return candidates[near[0]] if near else None


def _settings_of(where: tuple[str, ...]) -> list[str]:
    return [setting.name for setting in SETTINGS if setting.scope in where]
