"""Parsers of client settings: the text of a value in, the value out.

Owns what each kind of value may look like. A parser raises ValueError with the remedy as its text; which setting has which kind
is :mod:`~pykafka_wire.wire.settings`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pykafka_wire.wire.masking import quoted

#: Host and port. Kafka has a default port, and a bootstrap server must still name one, as with Java's client.
Address = tuple[str, int]
NumberT = TypeVar("NumberT", int, float)


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("Use true or false.")
    return value.lower() == "true"


def whole(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    return _number(int, "a whole number", minimum, maximum)


def share(minimum: float, maximum: float) -> Callable[[str], float]:
    return _number(float, "a number", minimum, maximum)


def _number(kind: Callable[[str], NumberT], name: str, minimum: NumberT, maximum: NumberT) -> Callable[[str], NumberT]:
    def parse(value: str) -> NumberT:
        try:
            number = kind(value)
        except ValueError:
            raise ValueError(f"Use {name}.") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"Use {name} from {minimum} to {maximum}.")
        return number

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise ValueError(f"Use one of {', '.join(choices)}.")

    return parse


def comma_separated(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


#: The assignment strategies, by the last part of their Java class names in small letters and by what goes over the wire.
_STRATEGIES: Final = {
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "cooperativestickyassignor": "cooperative-sticky",
}


def strategies(value: str) -> tuple[str, ...]:
    # Other strategies are left out: the members of a group agree on one that all of them name, and where no group is joined none is
    # used.
    names = (name.rpartition(".")[2].lower() for name in comma_separated(value))
    known = (_STRATEGIES.get(name, name) for name in names)
    return tuple(dict.fromkeys(name for name in known if name in _STRATEGIES.values()))


def tls_versions(value: str) -> tuple[str, ...]:
    # The old ones are in many a file, as Kafka's default once was, and stay off: 1.2 is the oldest that is spoken.
    old, spoken = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"), ("TLSv1.2", "TLSv1.3")
    names = comma_separated(value)
    wanted = tuple(name for name in spoken if name in names)
    if not wanted or not set(names) <= {*old, *spoken}:
        raise ValueError("Use TLSv1.2, TLSv1.3 or both.")
    return wanted


def identification(value: str) -> str:
    if value.lower() not in ("https", ""):
        raise ValueError("Use https; an empty value turns the check of host names off.")
    return value.lower()


def addresses(value: str) -> tuple[Address, ...]:
    """``host:port`` pairs separated by commas; IPv6 hosts in brackets. Raises ValueError with the remedy."""
    if "@" in value:
        raise ValueError("An address has no user and no password: give these by sasl.mechanism and sasl.jaas.config.")
    addresses = []
    for part in comma_separated(value):
        host, colon, port = part.rpartition(":")
        # Java's client also accepts a listener's name in front, as in Kafka's setting listeners.
        host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"{quoted(part)} is no host:port; write for example broker1:9092,broker2:9092.")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError("Name at least one broker, as in broker1:9092.")
    return tuple(dict.fromkeys(addresses))
