"""What an option is, and the values that options may have."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from pykafka_wire.columns.value_formats import FORMATS, ValueFormat
from pykafka_wire.errors import OptionError
from pykafka_wire.options.starting_offsets import UNITS_MS, OffsetSpec
from pykafka_wire.task_metrics import StatsdAgent
from pykafka_wire.wire.masking import quoted

T = TypeVar("T")
Mode = Literal["stream", "batch", "sink"]

#: Other names of formats, too far from theirs to be found by their letters.
_SYNONYMS: Final[dict[str, str]] = {"bytes": "binary", "text": "string", "utf8": "string", "utf-8": "string"}


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option.

    Attributes:
        where: what it applies to: S stream, B batch, W write.
        parse: the value of a text that a user gave, and of the option's name for errors; raises OptionError.
        default: its value where it is not given.
        meaning: as docs/options.md shows it.
        unset: the default as docs/options.md shows it, where no text stands for it.
        in_batch: the default of a batch read, where that is another one.
        is_experimental: whether it may change or go in a minor version (docs/public-api.md).
    """

    name: str
    where: str
    parse: Callable[[str, str], T]
    default: T
    meaning: str
    unset: str = "none"
    in_batch: T | None = None
    is_experimental: bool = False

    def default_in(self, mode: Mode) -> T:
        """Return the value without the option."""
        return self.in_batch if mode == "batch" and self.in_batch is not None else self.default

    @property
    def default_text(self) -> str:
        """Return the default as a user would write it, or what it is."""
        if self.in_batch is not None:
            return f"S {self._text(self.default)}, B {self._text(self.in_batch)}"
        return self._text(self.default) or self.unset

    def _text(self, value: object) -> str:
        if self.parse is duration_ms and isinstance(value, int):
            return next(f"{value // size}{unit}" for unit, size in _LARGEST_UNITS if value % size == 0)
        if isinstance(value, OffsetSpec):
            return value.kind
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, int | str) else ""


class Section:
    """Options that docs/options.md shows together, in the order in which they are made."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.options: list[Option[Any]] = []

    def option(
        self, name: str, where: str, parse: Callable[[str, str], T], default: T, meaning: str,
        *, unset: str = "none", in_batch: T | None = None, experimental: bool = False,
    ) -> Option[T]:  # fmt: skip
        """Return a new option of this section."""
        made = Option(name, where, parse, default, meaning, unset, in_batch, experimental)
        self.options.append(made)
        return made


_LARGEST_UNITS: Final = [(unit, UNITS_MS[unit]) for unit in ("d", "h", "m", "s", "ms")]


def text(value: str, _: str) -> str:
    return value


def boolean(value: str, name: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {quoted(value.lower())}: use true or false.")
    return value.lower() == "true"


def positive(value: str, name: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise OptionError(f"{name} is {quoted(value)}: use a whole number above zero.")
    return int(value)


def cache_ttl_ms(value: str, name: str) -> int | None:
    """Return milliseconds, None for -1, as Spark's option of this kind has it (SPARK-49442)."""
    if value == "-1":
        return None
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise OptionError(f"{name} is {quoted(value)}: use a whole number of milliseconds above zero, or -1.")
    return int(value)


def duration_ms(value: str, name: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    unit_ms = None if match is None else UNITS_MS.get(match[2] or "ms")
    if match is None or unit_ms is None:
        raise OptionError(
            f"{name} is {quoted(value)}: use a number with a unit, such as 500ms, 30s, 15m, 2h, 1d, or 10 seconds."
        )
    return int(match[1]) * unit_ms


#: In place of a number, or a duration: by the topic's own rate.
AUTO: Final = "auto"
#: For so many offsets a topic waits at most by its own rate: beside so many rows a commit costs little.
MOST_AUTO_OFFSETS: Final = 10_000


@dataclass(frozen=True, slots=True)
class TopicMinimum:
    """A topic of this pattern waits for so many new offsets, or so long; None where its own rate says it."""

    pattern: str
    min_offsets: int | None
    max_delay_ms: int | None


def topic_minimums(value: str, name: str) -> tuple[TopicMinimum, ...]:
    """Return ``{"orders-.*": {"offsets": 1000, "delay": "5m"}}``: whole names; the first pattern that matches counts. Either may be
    :data:`AUTO`."""
    try:
        minimums = json.loads(value)
        return tuple(
            TopicMinimum(
                re.compile(pattern).pattern,
                None if minimum["offsets"] == AUTO else positive(str(minimum["offsets"]), name),
                None if minimum["delay"] == AUTO else duration_ms(minimum["delay"], name),
            )
            for pattern, minimum in minimums.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError, re.error) as error:
        example = '{"orders": {"offsets": 1000, "delay": "5m"}}'
        raise OptionError(f"{name} is {quoted(value)} ({error}): use JSON such as {example}.") from error


def choice(*choices: str) -> Callable[[str, str], str]:
    """Return one of these words, whatever its case."""

    def parse(value: str, name: str) -> str:
        if value.lower() not in choices:
            raise OptionError(f"{name} is {quoted(value.lower())}: use {' or '.join(choices)}.")
        return value.lower()

    return parse


def column_format(value: str, name: str) -> ValueFormat:
    """Return the format of this name."""
    given = value.lower()
    for known in FORMATS:
        if known == given:
            return known
    near = _SYNONYMS.get(given) or next(iter(difflib.get_close_matches(given, FORMATS, n=1)), None)
    raise OptionError(f"{name} is {quoted(given)}: " + (f"did you mean {near}?" if near else f"use {either(FORMATS)}."))


def either(names: tuple[str, ...]) -> str:
    """Return ``a, b or c``."""
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"


def topic_names(value: str, name: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"{name} names no topic: give topic names, separated by commas.")
    return topics


def type_names(value: str, name: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names or ("*" in names and len(names) > 1):
        raise OptionError(
            f"{name} is {quoted(value)}: give the full names of types, separated by commas, or * for all."
        )
    return names


def schema_id(value: str, name: str) -> int | uuid.UUID:
    """Return a registry's id of a schema: a number, or a UUID."""
    if value.isascii() and value.isdigit():
        return int(value)
    try:
        return uuid.UUID(value)
    except ValueError:
        raise OptionError(f"{name} is {quoted(value)}: give the id of a schema, a number, or a GUID or UUID.") from None


def schema_texts(value: str, name: str) -> tuple[str | None, ...]:
    """Return the texts of a JSON array, whose items are texts that are JSON, and null."""
    with contextlib.suppress(ValueError):
        texts = json.loads(value)
        if isinstance(texts, list) and texts and all(text is None or json.loads(text) for text in texts):
            return tuple(texts)
    raise OptionError(
        f"{name} is {quoted(value)}: give a JSON array of the texts of Kafka Connect's schemas, or of null."
    )


#: The path of a field in backticks or without, before what is chosen for it.
_CHOICE: Final = re.compile(
    r"\s*(?:(?P<path>(?:`[^`]+`|[^`.,=\s][^`.,=]*?)(?:\.(?:`[^`]+`|[^`.,=]+?))*)\s*=\s*)?(?P<choice>\w+)\s*(?:,|$)"
)
#: The end of a field's path, empty for all fields, and what is chosen for it.
FieldChoices = tuple[tuple[tuple[str, ...], str], ...]


def by_field(*choices: str) -> Callable[[str, str], FieldChoices]:
    """Return one of these words for all fields, or for the fields of a name or a path: ``microseconds, born=days``.

    ``days`` may stand beside another word for all fields.
    """

    def parse(value: str, name: str) -> FieldChoices:
        choice_by_field: dict[tuple[tuple[str, ...], bool], str] = {}
        position = 0
        while position < len(value):
            part = _CHOICE.match(value, position)
            choice = part["choice"].lower() if part is not None else ""
            path = _field_path(part["path"] or "") if part is not None else ()
            key = (path, not path and choice == "days")
            if part is None or choice not in choices or key in choice_by_field:
                raise OptionError(
                    f"{name} is {quoted(value)}: use {either(choices)}, for all fields or for one by its name, as in "
                    f"{choices[-1]}, born={choices[0]}. A name with a dot, a comma or = needs backticks."
                )
            choice_by_field[key] = choice
            position = part.end()
        return tuple((path, choice) for (path, _), choice in choice_by_field.items())

    return parse


def _field_path(text: str) -> tuple[str, ...]:
    return tuple(quoted_name or plain.strip() for quoted_name, plain in re.findall(r"`([^`]+)`|([^`.]+)", text))


def regular_expression(value: str, name: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(f"{name} {quoted(value)} is not a regular expression: {error}.") from error
    return value


def task_metrics(value: str, name: str) -> StatsdAgent | Literal["driver"] | None:
    """Return where tasks send their figures."""
    if value.lower() == "none":
        return None
    if value.lower() == "driver":
        return "driver"
    match = re.fullmatch(r"statsd://(\[[0-9a-fA-F:.]+\]|[^\s/:]+):(\d{1,5})", value)
    if match is None or not 0 < int(match[2]) < 65536:
        raise OptionError(f"{name} is {quoted(value)}: use none, driver, or statsd://host:port.")
    return StatsdAgent(match[1].strip("[]"), int(match[2]))
