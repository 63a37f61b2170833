"""A client's settings under Kafka's own names: those that are supported, those that are not, and what clouds add to them."""

from pykafka_wire.wire.settings.client_settings import (
    SETTINGS,
    Address,
    ClientSettings,
    Setting,
    default_text,
    unknown_settings,
)

__all__ = ["SETTINGS", "Address", "ClientSettings", "Setting", "default_text", "unknown_settings"]
