"""The OpenAPI document of /api/v1, made from the routes of this process and their answers."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from .. import __version__
from .operation import Operation, SubmitterOperation
from .query import DEFAULT_NUMBERS, MOST_CHARACTERS, MOST_REPEATS, Param

Operations = Sequence[Operation | SubmitterOperation]

SUBMITTER_SCHEME: Final = "submitter"
OPERATOR_SCHEME: Final = "operator"
REF: Final = "#/components/schemas/{model}"
COMPUTED_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Event": {"text": {"type": "string"}},
}
"""Fields of an answer that its data class does not have."""

DESCRIPTION: Final = (
    "Version 1 stays as it is, except that fields may be added. The document describes the paths "
    "of this process. They depend on its flags."
)


class _SchemaGenerator(GenerateJsonSchema):
    """Makes schemas in which all fields of a data class are required.

    A field of another type is not required if it has a default.
    """

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return whether an answer always has the field."""
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)


def make_document(
    operations: Operations, operator: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the document.

    operator: the security scheme of the pages of operators; None if there are no such pages.
    """
    types = {
        answer
        for operation in operations
        for answer_by_status in operation.answers.values()
        for answer in answer_by_status.values()
    }
    ordered = sorted(types, key=str)
    inputs: Any = [(type, "serialization", TypeAdapter(type)) for type in ordered]
    refs, generated = TypeAdapter.json_schemas(
        inputs, ref_template=REF, schema_generator=_SchemaGenerator
    )
    schemas = generated["$defs"]
    for name, fields in COMPUTED_FIELDS.items():
        if name in schemas:
            schemas[name]["properties"] |= fields
            schemas[name]["required"] += [*fields]
    shapes = {type: refs[type, "serialization"] for type in ordered}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(operation.path.replace(":path}", "}"), {})
        for method in operation.answers:
            description = _describe(operation, method, shapes)
            present = path.get(method.lower())
            path[method.lower()] = _merged(present, description) if present else description
    schemes: dict[str, Any] = {}
    if any(operation.token for operation in operations):
        about = "The token of a submitter, as `parsync serve token` prints it."
        schemes[SUBMITTER_SCHEME] = {"type": "http", "scheme": "bearer", "description": about}
    if operator:
        about = (
            "The login of an operator, for the pages under /operator. No operation of this "
            "document asks for it."
        )
        schemes[OPERATOR_SCHEME] = {"type": "apiKey", "description": about, **operator}
    return {
        "openapi": "3.1.0",
        "info": {"title": "parsync serve", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes},
    }


def _describe(
    operation: Operation | SubmitterOperation, method: str, shapes: Mapping[Any, Any]
) -> dict[str, Any]:
    summary = (inspect.getdoc(operation.endpoint) or "").partition("\n")[0]
    words = [word.strip("{}").removesuffix(":path") for word in operation.path.split("/")[3:]]
    words = [word.partition(":")[0].replace(".", "_") for word in words if word]
    description: dict[str, Any] = {
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
        "security": [{SUBMITTER_SCHEME: []}] if operation.token else [{}],
    }
    if operation.body:
        description["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return description


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
                "schema": {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS},
            }


def _in_query(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": MOST_CHARACTERS}
    if param.words:
        schema = {"type": "string", "enum": [*param.words]}
    if param.most is not None:
        schema = {"type": "integer", "minimum": param.least, "maximum": param.most}
    if param in DEFAULT_NUMBERS:
        schema["default"] = DEFAULT_NUMBERS[param]
    example: Any = int(param.example) if param.most is not None else param.example
    if param.repeated:
        schema = {"type": "array", "items": schema, "maxItems": MOST_REPEATS}
        example = [example]
    return {
        "name": param.name,
        "in": "query",
        "description": param.about,
        "schema": schema,
        "example": example,
    }


def _merged(with_token: Mapping[str, Any], public: Mapping[str, Any]) -> dict[str, Any]:
    """Return one operation of two for the same path and method; a token decides between them.

    with_token: the operation of submitters.
    public: the operation of viewers.
    """
    responses = dict(public["responses"])
    for status, answer in with_token["responses"].items():
        if status in responses and responses[status] != answer:
            schemas = [
                response["content"]["application/json"]["schema"]
                for response in (responses[status], answer)
            ]
            answer = {**answer, "content": {"application/json": {"schema": {"anyOf": schemas}}}}
        responses[status] = answer
    parameters = list(
        {
            parameter["name"]: parameter
            for operation in (with_token, public)
            for parameter in operation["parameters"]
        }.values()
    )
    summary = f"{public['summary']} With a token: {with_token['summary']}"
    security = [*public["security"], *with_token["security"]]
    return {
        **public,
        "summary": summary,
        "parameters": parameters,
        "responses": responses,
        "security": security,
    }


def operations_of(routes: Iterable[Any]) -> Operations:
    """Return the routes that the document describes."""
    return [route for route in routes if isinstance(route, Operation | SubmitterOperation)]
