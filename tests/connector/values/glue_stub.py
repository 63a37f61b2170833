"""A stub of AWS Glue's schema registry: the JSON protocol of its endpoint, over schemas in memory.

Each request and each response is held against the model of the API that AWS publishes, which botocore contains: what the model does
not have is an error of the test.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from tests.http_server import QuietHandler, http_server

REGION, NAME = "eu-west-1", "shop"
URL = f"glue://{REGION}/{NAME}"
SECRET = "wJalrXUtnFEMI-canary"


class RefusedError(Exception):
    """An error that the service responds with."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class GlueStub:
    """Schemas of one registry.

    Attributes:
        refusals: sent instead of what is asked for, the first first.
        asked: the operations, in order.
        versions_asked: the ids of the versions that were asked for by id, in order.
        status: of versions that are registered from now on.
    """

    def __init__(self) -> None:
        self.url = ""
        self.wrong: list[str] = []
        self._model = ServiceModel(Loader().load_service_model("glue", "service-2"), "glue")
        self.reset()

    def reset(self) -> None:
        self.refusals: list[RefusedError] = []
        self.asked: list[str] = []
        self.versions_asked: list[str] = []
        self.status = "AVAILABLE"
        self.schemas: dict[str, list[dict[str, Any]]] = {}
        self.compatibility: dict[str, str] = {}
        self.registries = {NAME}

    def put(self, subject: str, kind: str, text: str) -> uuid.UUID:
        """A version of a schema, as if somebody had registered it."""
        version = uuid.uuid4()
        self.schemas.setdefault(subject, []).append(
            {"id": str(version), "kind": kind, "text": text, "status": self.status}
        )
        return version

    def response(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        model = self._model.operation_model(operation)
        self._check(operation, request, model.input_shape)
        self.asked.append(operation)
        if self.refusals:
            raise self.refusals.pop(0)
        found: dict[str, Any] = getattr(self, f"_{xform_name(operation)}")(request)
        self._check(operation, found, model.output_shape)
        return found

    def _check(self, operation: str, found: dict[str, Any], shape: Any) -> None:
        report = ParamValidator().validate(found, shape)
        unknown = set(found) - set(shape.members)
        if report.has_errors() or unknown:
            self.wrong.append(f"{operation}: {report.generate_report()} {unknown or ''}")

    def _versions(self, schema: dict[str, str]) -> list[dict[str, Any]]:
        if schema["RegistryName"] not in self.registries or schema["SchemaName"] not in self.schemas:
            raise RefusedError("EntityNotFoundException", f"Schema is not found. SchemaName: {schema['SchemaName']}")
        return self.schemas[schema["SchemaName"]]

    def _get_schema_version(self, request: dict[str, Any]) -> dict[str, Any]:
        if "SchemaId" in request:
            assert request["SchemaVersionNumber"] == {"LatestVersion": True}
            found = [(request["SchemaId"]["SchemaName"], self._versions(request["SchemaId"])[-1])]
        else:
            wanted = request["SchemaVersionId"]
            self.versions_asked.append(wanted)
            found = [(n, each) for n, versions in self.schemas.items() for each in versions if each["id"] == wanted]
        if not found:
            raise RefusedError("EntityNotFoundException", f"Schema version is not found. SchemaVersionId: {wanted}")
        ((subject, version),) = found
        arn = f"arn:aws:glue:{REGION}:123456789012:schema/{NAME}/{subject}"
        return {
            "SchemaVersionId": version["id"], "SchemaDefinition": version["text"], "DataFormat": version["kind"],
            "SchemaArn": arn, "VersionNumber": self.schemas[subject].index(version) + 1, "Status": version["status"],
        }  # fmt: skip

    def _get_schema_by_definition(self, request: dict[str, Any]) -> dict[str, Any]:
        for each in self._versions(request["SchemaId"]):
            if each["text"] == request["SchemaDefinition"]:
                return {"SchemaVersionId": each["id"], "DataFormat": each["kind"], "Status": each["status"]}
        raise RefusedError("EntityNotFoundException", "Schema version is not found. For the given definition")

    def _register_schema_version(self, request: dict[str, Any]) -> dict[str, Any]:
        versions = self._versions(request["SchemaId"])
        version = self.put(request["SchemaId"]["SchemaName"], versions[0]["kind"], request["SchemaDefinition"])
        status = "PENDING" if self.status == "FAILURE" else self.status  # a check takes its time
        return {"SchemaVersionId": str(version), "VersionNumber": len(versions), "Status": status}

    def _create_schema(self, request: dict[str, Any]) -> dict[str, Any]:
        name, registry = request["SchemaName"], request["RegistryId"]["RegistryName"]
        if registry not in self.registries:
            raise RefusedError("EntityNotFoundException", f"Registry is not found. RegistryName: {registry}")
        if name in self.schemas:
            raise RefusedError("AlreadyExistsException", f"Schema already exists. SchemaName: {name}")
        self.compatibility[name] = request["Compatibility"]
        version = self.put(name, request["DataFormat"], request["SchemaDefinition"])
        return {"SchemaName": name, "SchemaVersionId": str(version), "SchemaVersionStatus": self.status}

    def _put_schema_version_metadata(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"SchemaVersionId": request["SchemaVersionId"]}

    def _list_schemas(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["RegistryId"]["RegistryName"] not in self.registries:
            raise RefusedError("EntityNotFoundException", "Registry is not found.")
        names = sorted(self.schemas)  # pages of one
        first = names.index(request["NextToken"]) if "NextToken" in request else 0
        page: dict[str, Any] = {"Schemas": [{"SchemaName": name} for name in names[first : first + 1]]}
        return page | ({"NextToken": names[first + 1]} if first + 1 < len(names) else {})


@contextmanager
def glue_stub() -> Iterator[GlueStub]:
    """A stub that listens, and requests and responses that do not follow the model fail the test."""
    stub = GlueStub()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.body()
            service, _, operation = self.headers["X-Amz-Target"].partition(".")
            assert (service, self.headers["Content-Type"]) == ("AWSGlue", "application/x-amz-json-1.1")
            assert self.headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")
            try:
                status, found = 200, stub.response(operation, json.loads(body))
            except RefusedError as refused:
                status, found = refused.status, {"__type": refused.code, "Message": str(refused)}
            self.send(status, json.dumps(found).encode(), {"Content-Type": "application/x-amz-json-1.1"})

    with http_server(Handler) as stub.url:
        yield stub
        assert not stub.wrong, stub.wrong


def use_glue(stub: GlueStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's own settings: this endpoint, and credentials."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", stub.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
