"""What the settings say of a SASL login: the mechanism, and the options of the JAAS line, checked against each other.

Owns user and password, by setting or by JAAS line. References are resolved here, each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pykafka_wire.wire.cloud_settings import MSK_IAM
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.secret_references import resolve
from pykafka_wire.wire.settings import ClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A SASL mechanism, the settings with this mechanism, and the options of the JAAS line (empty without one)."""

    mechanism: str
    settings: ClientSettings = field(repr=False)
    options: Mapping[str, str] = field(repr=False)

    def user_and_password(self) -> tuple[str, str]:
        """``sasl.username`` and ``sasl.password`` override the JAAS line's.

        Raises:
            SettingsError: one of them is missing or cannot be read.
        """
        username = self.settings.sasl_username or self.options.get("username")
        password = self.settings.sasl_password or self.options.get("password")
        if not username or not password:
            missing = "sasl.username" if not username else "sasl.password"
            raise SettingsError(
                f"{self.mechanism or 'SASL'} needs a user and a password, and {missing} is missing.",
                setting=missing,
                remedy="Set sasl.username and sasl.password, or sasl.jaas.config with a login module that names both.",
            )
        return resolve(username, "sasl.username"), resolve(password, "sasl.password")


def login(settings: ClientSettings) -> Login:
    """The login of a client that uses SASL.

    Raises:
        SettingsError: there is no mechanism, or the JAAS line is malformed or for another one.
        AuthenticationError, TransportError: as :func:`~pykafka_wire.wire.security.clouds.providers.provider`, for a service
            credential whose mechanism only its cloud tells.
    """
    line = settings.sasl_jaas_config
    module = jaas.parse_jaas(resolve(line, jaas.SETTING)) if line else None
    options: Mapping[str, str] = module.options if module is not None else {}
    name = settings.sasl_mechanism
    if name is None and settings.cloud == "databricks":
        from pykafka_wire.wire.security.clouds.providers import provider

        name = provider(settings, options).mechanism
    if name is None and module is not None and len(module.mechanisms) == 1:
        (name,) = module.mechanisms
    if name is None:
        raise SettingsError(
            "sasl.mechanism is missing.", setting="sasl.mechanism", remedy="Set it, as in SCRAM-SHA-512."
        )
    if module is not None and name not in module.mechanisms:
        raise SettingsError(
            f"{jaas.SETTING} names {module.name}, which is not for sasl.mechanism={name}.",
            setting=jaas.SETTING,
            remedy=f"Name the login module of {name}, or set sasl.username and sasl.password instead.",
        )
    if name == MSK_IAM and settings.cloud is None:
        settings = replace(settings, sasl_mechanism=name)  # only the JAAS line names it
    return Login(mechanism=name, settings=settings, options=options)
