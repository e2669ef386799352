"""The OpenAPI document of /api/v1, made of the routes that this process answers, and of the types
of their answers.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from .. import __version__
from .operation import Operation, SubmitterOperation
from .query import MOST_TEXT, MOST_WORDS, USUAL, Param

Operations = Sequence[Operation | SubmitterOperation]

SUBMITTER: Final = "submitter"
OPERATOR: Final = "operator"
REF: Final = "#/components/schemas/{model}"
ADDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "Event": {"text": {"type": "string"}},
}
"""Fields that JSON has besides those of a data class."""

ABOUT: Final = (
    "Version 1 stays as it is, except that fields may be added. The document describes the paths "
    "of this process. "
    "They depend on its flags."
)


class _Generate(GenerateJsonSchema):
    """All fields of a data class are there; those of other types that have a default may be
    missing.
    """

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return whether a field is always there."""
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)


def make_document(
    operations: Operations, operator: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the document. operator: the security scheme of the pages, None for none."""
    types = {
        one for operation in operations for by in operation.answers.values() for one in by.values()
    }
    ordered = sorted(types, key=str)
    inputs: Any = [(one, "serialization", TypeAdapter(one)) for one in ordered]
    refs, found = TypeAdapter.json_schemas(inputs, ref_template=REF, schema_generator=_Generate)
    schemas = found["$defs"]
    for name, fields in ADDED.items():
        if name in schemas:
            schemas[name]["properties"] |= fields
            schemas[name]["required"] += [*fields]
    shapes = {one: refs[one, "serialization"] for one in ordered}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(operation.path.replace(":path}", "}"), {})
        for method in operation.answers:
            said = _describe(operation, method, shapes)
            path[method.lower()] = (
                _either(path[method.lower()], said) if method.lower() in path else said
            )
    schemes: dict[str, Any] = {}
    if any(operation.token for operation in operations):
        about = "The token of a submitter, as `parsync serve token` prints it."
        schemes[SUBMITTER] = {"type": "http", "scheme": "bearer", "description": about}
    if operator:
        about = (
            "The login of an operator, for the pages under /operator. No operation of this "
            "document asks for it."
        )
        schemes[OPERATOR] = {"type": "apiKey", "description": about, **operator}
    return {
        "openapi": "3.1.0",
        "info": {"title": "parsync serve", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes},
    }


def _describe(
    operation: Operation | SubmitterOperation, method: str, shapes: Mapping[Any, Any]
) -> dict[str, Any]:
    summary = (inspect.getdoc(operation.endpoint) or "").partition("\n")[0]
    words = [word.strip("{}").removesuffix(":path") for word in operation.path.split("/")[3:]]
    words = [word.partition(":")[0].replace(".", "_") for word in words if word]
    found: dict[str, Any] = {
        "operationId": "_".join([method.lower(), *words] if words else ["index"]),
        "summary": summary,
        "parameters": [*_in_path(operation.path), *map(_in_query, operation.params)],
        "responses": {
            str(status): {
                "description": HTTPStatus(status).phrase,
                "content": {"application/json": {"schema": shapes[answer]}},
            }
            for status, answer in sorted(operation.answers[method].items())
        },
        "security": [{SUBMITTER: []}] if operation.token else [{}],
    }
    if operation.body:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return found


def _in_path(path: str) -> Iterator[dict[str, Any]]:
    for word in path.split("/"):
        if word.startswith("{"):
            name, _, whole = word.strip("{}").partition(":")
            about = (
                f"The {name}, percent-encoded; a slash may stay."
                if whole
                else f"The {name}, percent-encoded."
            )
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": about,
                "schema": {"type": "string", "minLength": 1, "maxLength": MOST_TEXT},
            }


def _in_query(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": MOST_TEXT}
    if param.words:
        schema = {"type": "string", "enum": [*param.words]}
    if param.most is not None:
        schema = {"type": "integer", "minimum": param.least, "maximum": param.most}
    if param in USUAL:
        schema["default"] = USUAL[param]
    example: Any = int(param.example) if param.most is not None else param.example
    if param.repeated:
        schema = {"type": "array", "items": schema, "maxItems": MOST_WORDS}
        example = [example]
    return {
        "name": param.name,
        "in": "query",
        "description": param.about,
        "schema": schema,
        "example": example,
    }


def _either(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return one operation for a path that submitters and viewers ask for: the token decides."""
    responses = dict(other["responses"])
    for status, answer in one["responses"].items():
        if status in responses and responses[status] != answer:
            both = [
                found["content"]["application/json"]["schema"]
                for found in (responses[status], answer)
            ]
            answer = {**answer, "content": {"application/json": {"schema": {"anyOf": both}}}}
        responses[status] = answer
    parameters = list(
        {
            parameter["name"]: parameter
            for said in (one, other)
            for parameter in said["parameters"]
        }.values()
    )
    summary = f"{other['summary']} With a token: {one['summary']}"
    security = [*other["security"], *one["security"]]
    return {
        **other,
        "summary": summary,
        "parameters": parameters,
        "responses": responses,
        "security": security,
    }


def operations_of(routes: Iterable[Any]) -> Operations:
    """Return those routes that the document is about."""
    return [route for route in routes if isinstance(route, Operation | SubmitterOperation)]
