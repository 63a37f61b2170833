"""Google's Managed Service for Apache Kafka: access tokens of the application's default credentials, by google-auth.

Owns the token's form, which Java's ``GcpLoginCallbackHandler`` defines: the three parts of a JSON web token, with the access
token in the place of the signature. The service rejects a bare access token.
https://cloud.google.com/managed-service-for-apache-kafka/docs/authentication-kafka
"""

from __future__ import annotations

import base64
import json
import threading
import time
from calendar import timegm
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pykafka_wire.wire.errors import AuthenticationError, SettingsError, TransportError
from pykafka_wire.wire.security.token import AuthToken, SaslIdentity, jwt_claims, printable_line
from pykafka_wire.wire.settings.cloud_credentials import BEARER

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_REMEDY: Final = (
    "Run where a service account is attached, or set GOOGLE_APPLICATION_CREDENTIALS; see `gcloud auth list`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Google:
    """Tokens of google-auth's credentials, which are renewed when they are about to end.

    ``source`` is "" for what the credentials tell of themselves.
    """

    credentials: Any  # Any: any of google-auth's classes
    source: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    mechanism: ClassVar[str] = BEARER

    def token(self, host: str) -> AuthToken:
        with self._lock:  # google-auth's credentials are not thread-safe
            self._refresh()
            access, ends = self.credentials.token, self.credentials.expiry
        subject = self._subject()
        now = time.time()
        # google-auth's times are in UTC, without a zone. Credentials without an end are those of a short-lived test.
        expires_at = float(timegm(ends.timetuple())) if ends is not None else None
        claims = {"exp": int(expires_at or now + 3600), "iat": int(now), "scope": "kafka", "sub": subject}
        value = ".".join(_base64(part) for part in (json.dumps(_HEADER), json.dumps(claims), access))
        source = self.source or f"google-auth ({type(self.credentials).__module__})"
        identity = SaslIdentity(name=subject, source=source, expires_at=expires_at)
        return AuthToken(value=value, lifetime_s=None if expires_at is None else expires_at - now, identity=identity)

    def identity(self, host: str) -> SaslIdentity:
        return self.token(host).identity

    def _refresh(self) -> None:
        import google.auth.exceptions
        import google.auth.transport.requests

        if self.credentials.valid:
            return
        try:
            self.credentials.refresh(google.auth.transport.requests.Request())
        except google.auth.exceptions.GoogleAuthError as error:
            what = f"no access token of Google: {printable_line(error)}"
            # A metadata server that does not respond is the cause of a RefreshError that is not called retryable.
            unreachable = any(
                isinstance(cause, google.auth.exceptions.TransportError) for cause in (error, error.__cause__)
            )
            if unreachable or error.retryable:
                raise TransportError(what) from error
            raise AuthenticationError(what, remedy=_REMEDY) from error

    def _subject(self) -> str:
        """Return the e-mail address of the account, which the service requires."""
        account = getattr(self.credentials, "service_account_email", None) or getattr(self.credentials, "account", None)
        if not account:
            account = jwt_claims(getattr(self.credentials, "id_token", None) or "").get("email")
        if not account:
            raise AuthenticationError(
                f"google-auth's {type(self.credentials).__name__} do not tell the account's e-mail address, "
                "which Google's managed Kafka requires",
                remedy="Use a service account, or impersonate one: gcloud auth application-default login "
                "--impersonate-service-account=ACCOUNT",
            )
        return printable_line(account)


def find_credentials() -> Any:  # Any: any of google-auth's classes
    """Return the application's default credentials: GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the machine's service account.

    Raises:
        SettingsError: google-auth is missing.
        AuthenticationError: there are none.
    """
    google_auth = _google_auth()
    try:
        credentials, _ = google_auth.default(scopes=[_SCOPE])
    except google_auth.exceptions.GoogleAuthError as error:
        raise AuthenticationError(f"no credentials of Google: {printable_line(error)}", remedy=_REMEDY) from error
    return credentials


def with_scopes(credentials: Any) -> Any:  # Any: any of google-auth's classes
    """Return credentials that somebody else has made, for the scope that the service requires."""
    _google_auth()
    from google.auth.credentials import with_scopes_if_required

    return with_scopes_if_required(credentials, [_SCOPE])


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _google_auth() -> Any:  # Any: its types are not installed everywhere
    try:
        import google.auth
        import google.auth.transport.requests
    except ImportError as error:
        raise SettingsError(
            "credentials of Google need the packages google-auth and requests.",
            setting="auth",
            remedy="pip install 'pykafka-wire[google]' on every machine that runs the query, executors too.",
        ) from error
    return google.auth
