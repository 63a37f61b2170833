"""Amazon MSK's access control by IAM: credentials that botocore finds, and requests signed with them (Signature Version 4).

Owns the options of Java's ``IAMLoginModule``, the region, and the two forms of a signed request: the JSON object of the SASL
mechanism AWS_MSK_IAM, and the presigned URL that is the token of OAUTHBEARER. botocore signs; no secret key leaves the process.
https://github.com/aws/aws-msk-iam-auth describes the first, https://github.com/aws/aws-msk-iam-sasl-signer-python the second.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError, WireError
from pykafka_wire.wire.security import jaas
from pykafka_wire.wire.security.token import AuthToken, SaslIdentity, printable_line
from pykafka_wire.wire.settings.cloud_credentials import BEARER, MSK_IAM

logger = logging.getLogger(__name__)

#: The version of the JSON object, and how long a signature is valid: those of Java's library.
_PAYLOAD_VERSION: Final = "2020_10_22"
_LIFETIME_S: Final = 900
_ACTION: Final = "kafka-cluster:Connect"
_SERVICE: Final = "kafka-cluster"
_USER_AGENT: Final = "pykafka-wire"
_SESSION_NAME: Final = "pykafka-wire"
#: The region in the host name of a broker.
_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.")
#: A region's id as a part of any other host name, such as a private endpoint's: eu-west-1, us-gov-east-1, ap-southeast-2.
_REGION: Final = re.compile(
    r"(?<![a-z0-9-])[a-z]{2}(?:-gov|-isob?|-isoe|-isof)?-(?:central|(?:north|south)(?:east|west)?|east|west)-\d(?![a-z0-9-])"
)
#: How long STS may take to name the caller, for people who ask.
_STS_TIMEOUT_S: Final = 3
#: The options of Java's IAMLoginModule that have an effect here.
_KNOWN: Final = frozenset(
    {"awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion", "awsDebugCreds"}
    | {"awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken"}
)
#: The others: botocore retries by itself, and the given source of credentials is the only one that is tried.
_WITHOUT_EFFECT: Final = frozenset({"awsMaxRetries", "awsMaxBackOffTimeMs", "awsAddDefaultProviders"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MskIam:
    """Signed requests, by the credentials of a botocore session; they renew themselves.

    ``role`` is the one that is assumed, if any, and ``source`` where the credentials come from, "" if they know it themselves.
    """

    session: Any  # Any: botocore has no types
    credentials: Any
    is_bearer: bool = False
    role: str = ""
    source: str = ""

    @property
    def mechanism(self) -> str:
        return BEARER if self.is_bearer else MSK_IAM

    def token(self, host: str) -> AuthToken:
        region = region_of(host, self.session)
        with _botocore_calls():
            frozen = self.credentials.get_frozen_credentials()
            value = presigned_url(frozen, region) if self.is_bearer else signed_request(frozen, region, host)
        # Set by botocore where credentials end; it has no public name for it.
        ends = getattr(self.credentials, "_expiry_time", None)
        expires_at = ends.timestamp() if isinstance(ends, datetime) else None
        lifetime_s: float = _LIFETIME_S
        if expires_at is not None:  # a signature is not valid for longer than the session token in it
            lifetime_s = max(0.0, min(lifetime_s, expires_at - time.time()))
        name = self.role or f"access key {frozen.access_key}"
        source = self.source or f"AWS {self.credentials.method}"
        return AuthToken(
            value=value, lifetime_s=lifetime_s, identity=SaslIdentity(name=name, source=source, expires_at=expires_at)
        )

    def identity(self, host: str) -> SaslIdentity:
        known = self.token(host).identity
        return replace(known, name=self.caller() or known.name)

    def caller(self) -> str:
        """Return the ARN that AWS knows these credentials by, from STS; "" where STS does not respond in time."""
        from botocore.config import Config

        limits = Config(connect_timeout=_STS_TIMEOUT_S, read_timeout=_STS_TIMEOUT_S, retries={"total_max_attempts": 1})
        try:
            with _botocore_calls():
                frozen = self.credentials.get_frozen_credentials()
                client = self.session.create_client(
                    "sts",
                    region_name=region_setting(self.session) or "us-east-1",
                    aws_access_key_id=frozen.access_key,
                    aws_secret_access_key=frozen.secret_key,
                    aws_session_token=frozen.token,
                    config=limits,
                )
                return printable_line(client.get_caller_identity()["Arn"])
        except WireError as error:
            logger.debug("STS does not name the caller: %s", error)
            return ""


def from_options(options: Mapping[str, str], *, is_bearer: bool = False) -> MskIam:
    """Return credentials by the options of a JAAS line, else by botocore's own search: environment, profile, web identity, SSO,
    container, instance.

    Raises:
        SettingsError: botocore is missing, or an option is unknown.
        AuthenticationError: no credentials were found, or the role may not be assumed.
        TransportError: the service that issues them could not be reached.
    """
    unknown = sorted(name for name in options if name.startswith("aws") and name not in _KNOWN | _WITHOUT_EFFECT)
    if unknown:
        raise SettingsError(
            "{setting} has the option {option}, which this client does not support.",
            setting=jaas.SETTING,
            remedy=f"Supported are {', '.join(sorted(_KNOWN))}.",
            option=unknown[0],
        )
    session_module = _botocore()
    profile = options.get("awsProfileName")
    session = session_module.Session(profile=profile) if profile else session_module.Session()
    role = options.get("awsRoleArn", "")
    with _botocore_calls():
        credentials = _assume_role(session, role, options) if role else session.get_credentials()
    made = _check(MskIam(session=session, credentials=credentials, is_bearer=is_bearer, role=role))
    if options.get("awsDebugCreds", "").lower() == "true" and logger.isEnabledFor(logging.DEBUG):
        logger.debug("the identity of the AWS credentials is %s", made.caller() or "unknown")
    return made


def from_session(session: Any, source: str, *, is_bearer: bool = False) -> MskIam:  # Any: botocore has no types
    """Return the credentials of a session that somebody else has made, described by ``source``. Raises as :func:`from_options`."""
    with _botocore_calls():
        credentials = session.get_credentials()
    return _check(MskIam(session=session, credentials=credentials, is_bearer=is_bearer, source=source))


def _check(made: MskIam) -> MskIam:
    if made.credentials is None:
        raise AuthenticationError(
            "no AWS credentials were found: not in the environment, a profile, a container's or an instance's metadata",
            remedy="Give this machine (executors too) a role, or set AWS_PROFILE, or awsProfileName in {sasl.jaas.config}.",
        )
    return made


def _assume_role(session: Any, role: str, options: Mapping[str, str]) -> Any:  # Any: botocore has no types
    """Return credentials of the role, which renew themselves."""
    from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials

    key, secret = options.get("awsRoleAccessKeyId"), options.get("awsRoleSecretAccessKey")
    credentials = (
        Credentials(key, secret, options.get("awsRoleSessionToken")) if key and secret else session.get_credentials()
    )
    if credentials is None:
        return None
    region = options.get("awsStsRegion") or region_setting(session) or "us-east-1"
    arguments = {"RoleSessionName": options.get("awsRoleSessionName", _SESSION_NAME)}
    if "awsRoleExternalId" in options:
        arguments["ExternalId"] = options["awsRoleExternalId"]

    def create_client(service: str, **more: Any) -> Any:  # Any: botocore's own arguments
        return session.create_client(service, region_name=region, **more)

    fetcher = AssumeRoleCredentialFetcher(create_client, credentials, role, extra_args=arguments)
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)


def region_of(host: str, session: Any) -> str:  # Any: botocore has no types
    """Return the region in a broker's host name, else the configured one: AWS_REGION, AWS_DEFAULT_REGION, or the profile's.

    Raises:
        SettingsError: there is none.
    """
    broker, part = _BROKER.search(host.lower()), _REGION.search(host.lower())
    region = broker[1] if broker else part[0] if part else region_setting(session)
    if not region:
        raise SettingsError(
            "no AWS region is in the host name {host}, and none is configured.",
            setting="bootstrap.servers",
            remedy="Set AWS_REGION on every machine that runs the query, executors too.",
            host=host,
        )
    return region


def region_setting(session: Any) -> str | None:  # Any: botocore has no types
    """Return the configured region. Java's library reads AWS_REGION; botocore reads AWS_DEFAULT_REGION and the profile."""
    region: str | None = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    return region


def signed_request(credentials: Any, region: str, host: str, lifetime_s: int = _LIFETIME_S) -> str:
    """Return the JSON object of AWS_MSK_IAM for a broker: a presigned GET, its query parameters as members."""
    signed = urllib.parse.urlsplit(_presign(credentials, region, host, lifetime_s))
    members = {name.lower(): value for name, value in urllib.parse.parse_qsl(signed.query, keep_blank_values=True)}
    return json.dumps({"version": _PAYLOAD_VERSION, "host": host, "user-agent": _USER_AGENT, **members})


def presigned_url(credentials: Any, region: str, lifetime_s: int = _LIFETIME_S) -> str:
    """Return the token of OAUTHBEARER: a presigned URL of the region's endpoint, in base64url without padding."""
    url = _presign(credentials, region, f"kafka.{region}.amazonaws.com", lifetime_s)
    text = f"{url}&{urllib.parse.urlencode({'User-Agent': _USER_AGENT})}"
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _presign(credentials: Any, region: str, host: str, lifetime_s: int) -> str:  # Any: botocore has no types
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest(method="GET", url=f"https://{host}/", params={"Action": _ACTION})
    SigV4QueryAuth(credentials, _SERVICE, region, expires=lifetime_s).add_auth(request)
    url: str = request.url
    return url


def _botocore() -> Any:  # Any: botocore has no types
    try:
        import botocore.session
    except ImportError as error:
        raise SettingsError(
            "credentials of AWS need the package botocore.",
            setting="auth",
            remedy="pip install 'pykafka-wire[aws]' on every machine that runs the query, executors too.",
        ) from error
    return botocore.session


class _Quiet(logging.Filter):
    """Drops what botocore logs at DEBUG while this thread is in :func:`quiet_botocore`: session tokens and signatures."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG or not getattr(_thread, "in_calls", False)


_thread: Final = threading.local()
_quiet: Final = _Quiet()
#: The loggers of botocore that write down requests, responses or what is signed.
_LOGGERS: Final = (
    "auth",
    "awsrequest",
    "credentials",
    "endpoint",
    "hooks",
    "httpsession",
    "parsers",
    "retryhandler",
    "utils",
)


@contextmanager
def quiet_botocore() -> Iterator[None]:
    """Keep secrets out of botocore's log."""
    for name in _LOGGERS:
        logging.getLogger(f"botocore.{name}").addFilter(_quiet)  # once: a filter is not added twice
    _thread.in_calls = True
    try:
        yield
    finally:
        _thread.in_calls = False


@contextmanager
def _botocore_calls() -> Iterator[None]:
    """Turn botocore's errors into this package's, and keep secrets out of its log."""
    import botocore.exceptions as errors

    try:
        with quiet_botocore():
            yield
    except WireError:
        raise
    except errors.ClientError as error:
        reason = error.response.get("Error", {})
        what = printable_line(f"{reason.get('Code')}: {reason.get('Message')}")
        raise AuthenticationError(
            f"AWS refused credentials ({error.operation_name}): {what}",
            remedy="Check the role's trust policy and the permissions of whoever assumes it.",
        ) from error
    except (errors.HTTPClientError, errors.MetadataRetrievalError, errors.CredentialRetrievalError) as error:
        raise TransportError(f"AWS credentials could not be renewed: {printable_line(error)}") from error
    except (errors.BotoCoreError, RuntimeError) as error:  # RuntimeError: what was fetched has already expired
        raise AuthenticationError(
            f"AWS credentials could not be loaded: {printable_line(error)}",
            remedy="Check the profile (AWS_PROFILE, awsProfileName) and this machine's clock.",
        ) from error
