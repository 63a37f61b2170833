"""A JSON Schema and all that it refers to, parsed. No URL that a schema names is fetched."""

from __future__ import annotations

from typing import Any

from pykafka_wire.errors import ENVIRONMENT_ERRORS, ConnectorError, DecodeError
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import look_up_references
from pykafka_wire.values.single_json.text import parse_json


def schema_documents(registry: Registry | None, schema: Schema) -> tuple[Any, Any]:
    """Return the schema as Python values, and a ``referencing.Registry`` of those that it refers to.

    Raises:
        DecodeError: a text is not JSON, or the registry lacks a schema.
        RegistryError: the registry does not respond.
    """
    library("jsonschema", "JSON Schema")
    from referencing import Registry as References
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    try:
        # An explicit set of references: without one the validator would fetch URLs that a schema names.
        known: Any = References()
        for name, text in look_up_references(registry, schema).items():
            known = known.with_resource(name, Resource.from_contents(parse_json(text), default_specification=DRAFT7))
        return parse_json(schema.text), known
    except (ConnectorError, DecodeError, *ENVIRONMENT_ERRORS):
        raise
    except Exception as error:  # a reference that is no schema
        raise DecodeError(f"its schema is not valid ({type(error).__name__})") from error
