"""Service credentials of Unity Catalog, which the runtime of Databricks issues to its own code by their name.

Owns where they are asked for: ``databricks.service_credentials`` in tasks, where there is no ``dbutils``, else ``dbutils``.
Written by what Databricks documents; this project has no workspace to try it in.
https://docs.databricks.com/en/connect/unity-catalog/cloud-services/use-service-credentials.html
"""

from __future__ import annotations

from typing import Any

from pykafka_wire.wire.errors import AuthenticationError


def service_credential(
    name: str,
) -> Any:  # Any: a session of botocore, a credential of azure-identity or of google-auth
    """Return what the runtime issues for the service credential ``name``.

    Raises:
        AuthenticationError: this is no runtime of Databricks, or it does not issue the credential.
    """
    reasons = []
    for where, issue in (("in a task", _in_a_task), ("by dbutils", _by_dbutils)):
        try:
            return issue(name)
        except ImportError:
            reasons.append(f"{where}: not available here")
        except Exception as error:  # whatever the runtime raises; only its type: the text may hold secrets
            reasons.append(f"{where}: {type(error).__name__}")
    raise AuthenticationError(
        f"the service credential {name} was not issued ({'; '.join(reasons)})",
        remedy="It needs Databricks Runtime 16.2 or newer and the privilege ACCESS on the credential; call "
        f"dbutils.credentials.getServiceCredentialsProvider('{name}') in a notebook to see the error.",
    )


def _in_a_task(name: str) -> Any:
    from databricks.service_credentials import getServiceCredentialsProvider

    return getServiceCredentialsProvider(name)


def _by_dbutils(name: str) -> Any:
    from databricks.sdk.runtime import dbutils

    return dbutils.credentials.getServiceCredentialsProvider(name)
