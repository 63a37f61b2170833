"""Azure Event Hubs: tokens of Microsoft Entra ID, by the credentials that azure-identity finds.

Owns the scope for a namespace, and the options of Spring Cloud Azure's callback handler. azure-identity looks in the
environment (client secret or certificate), for a workload's federated token, for a managed identity, and for the Azure CLI.
https://learn.microsoft.com/azure/event-hubs/authenticate-application
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError
from pykafka_wire.wire.security.token import AuthToken, SaslIdentity, jwt_claims, printable_line
from pykafka_wire.wire.settings.cloud_credentials import BEARER, cloud_of_host

#: Claims that name who a token is for, the most telling first: a user, an application (v1 and v2 tokens), an object.
_NAMES: Final = ("upn", "unique_name", "appid", "azp", "oid", "sub")
#: Authorities that publish themselves; for any other AZURE_AUTHORITY_HOST, as on Azure Stack, none is asked about it.
_PUBLIC_AUTHORITIES: Final = (
    ".microsoftonline.com",
    ".microsoftonline.us",
    ".chinacloudapi.cn",
    ".partner.microsoftonline.cn",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Azure:
    """Tokens of a credential of azure-identity, which keeps and renews them.

    ``scope`` is None for that of the namespace, and ``source`` "" for what the credential tells of itself.
    """

    credential: Any  # Any: whatever has get_token, as azure-identity's classes
    scope: str | None = None
    source: str = ""
    mechanism: ClassVar[str] = BEARER

    def token(self, host: str) -> AuthToken:
        scope = self.scope or scope_of(host)
        try:
            access = self.credential.get_token(scope)
        except _errors().AzureError as error:
            if _unreachable(error):
                raise TransportError(f"no token of Entra ID: {printable_line(error)}") from error
            raise AuthenticationError(
                f"no token of Entra ID for {scope}: {printable_line(error, 900)}",
                remedy="Check AZURE_TENANT_ID, AZURE_CLIENT_ID and what belongs to them, or the machine's managed identity.",
            ) from error
        claims = jwt_claims(access.token)
        name = next((str(claims[name]) for name in _NAMES if claims.get(name)), "unnamed identity")
        if claims.get("tid"):
            name += f" of tenant {claims['tid']}"
        identity = SaslIdentity(
            name=printable_line(name),
            source=self.source or _source(self.credential),
            expires_at=float(access.expires_on),
        )
        return AuthToken(value=access.token, lifetime_s=access.expires_on - time.time(), identity=identity)

    def identity(self, host: str) -> SaslIdentity:
        return self.token(host).identity


def find_credential(options: Mapping[str, str]) -> Any:  # Any: one of azure-identity's classes
    """Return the credential that the options of a JAAS line describe, under Spring Cloud Azure's names; else azure-identity's own
    search.

    Raises:
        SettingsError: azure-identity is missing, or rejects an option or a variable of the environment.
    """
    azure_identity = _azure_identity()
    secret, tenant = options.get("azure.credential.client-secret"), options.get("azure.profile.tenant-id")
    client_id = options.get("azure.credential.client-id")
    try:
        if client_id and secret and tenant:
            return azure_identity.ClientSecretCredential(tenant, client_id, secret, **_authority())
        if options.get("azure.credential.managed-identity-enabled", "").lower() == "true":
            return azure_identity.ManagedIdentityCredential(client_id=client_id)
        return azure_identity.DefaultAzureCredential(**_authority())
    except ValueError as error:  # such as a tenant id of another form
        raise SettingsError(
            "azure-identity rejects its settings: {reason}.",
            setting="auth",
            remedy="Check azure.profile.tenant-id in {sasl.jaas.config}, or AZURE_TENANT_ID and AZURE_AUTHORITY_HOST.",
            reason=printable_line(error),
        ) from error


def scope_of(host: str) -> str:
    """Return what a token for a namespace of Event Hubs must be asked for with.

    Raises:
        SettingsError: the host is none of Event Hubs'.
    """
    if cloud_of_host(host) != "azure":
        raise SettingsError(
            "{host} is no host name of Azure Event Hubs, so the scope of the token is unknown.",
            setting="sasl.oauthbearer.scope",
            remedy="Set {setting}, as in https://NAMESPACE.servicebus.windows.net/.default.",
            host=host,
        )
    return f"https://{host}/.default"


def _authority() -> dict[str, Any]:  # Any: azure-identity's own arguments
    host = os.environ.get("AZURE_AUTHORITY_HOST", "").removeprefix("https://").split("/")[0].split(":")[0]
    private = bool(host) and not f".{host}".endswith(_PUBLIC_AUTHORITIES)
    return {"disable_instance_discovery": True} if private else {}


def _unreachable(error: BaseException | None) -> bool:
    """Return whether a missing response is the cause: azure-identity wraps that into errors of authentication."""
    errors = _errors()
    while error is not None:
        if isinstance(error, errors.ServiceRequestError | errors.ServiceResponseError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _source(credential: Any) -> str:  # Any: one of azure-identity's classes
    # DefaultAzureCredential tries several, and has no public name for the one that succeeded.
    source = getattr(credential, "_successful_credential", None) or credential
    return f"azure-identity's {type(source).__name__}"


def _azure_identity() -> Any:  # Any: its types are not installed everywhere
    try:
        import azure.identity
    except ImportError as error:
        raise SettingsError(
            "credentials of Azure need the package azure-identity.",
            setting="auth",
            remedy="pip install 'pykafka-wire[azure]' on every machine that runs the query, executors too.",
        ) from error
    return azure.identity


def _errors() -> Any:  # Any: its types are not installed everywhere
    import azure.core.exceptions

    return azure.core.exceptions
