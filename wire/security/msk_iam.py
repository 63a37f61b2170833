"""AWS_MSK_IAM, the SASL mechanism of Amazon MSK: one signed request out, one JSON object back.

Owns the exchange. The request comes from :mod:`pykafka_wire.wire.security.clouds.aws`.
https://github.com/aws/aws-msk-iam-auth#message-exchange-with-kafka-broker
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from pykafka_wire.wire.cloud_settings import MSK_IAM
from pykafka_wire.wire.errors import AuthenticationError
from pykafka_wire.wire.security.token import json_object

_REMEDY: Final = (
    "Allow kafka-cluster:Connect on the cluster to this identity (pykafka-wire doctor shows it), "
    "and check this machine's clock."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MskIamExchange:
    """The client's side of the exchange, with its signed request."""

    signed_request: str = field(repr=False)
    #: Called when the broker rejects the request, so that credentials are looked for again.
    on_rejected: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def name(self) -> str:
        return MSK_IAM

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Raises AuthenticationError if the broker rejects the request, or does not respond as MSK does."""
        try:
            response = yield self.signed_request.encode()
        except AuthenticationError as error:
            self.on_rejected()
            error.remedy = _REMEDY
            raise
        try:
            json_object(response)
        except ValueError as error:
            raise AuthenticationError(
                "the broker's response to AWS_MSK_IAM is not a JSON object", remedy=_REMEDY
            ) from error
