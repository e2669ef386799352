"""The envelope of a task's message, as kombu's Redis transport puts it on a list.

{"body": base64, "content-type": ..., "content-encoding": ..., "headers": {protocol 2},
"properties": {...}}
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from kombu.utils import json as kombu_json

from ..errors import BrokenContract, InvalidInput
from ..model.limits import MAX_MESSAGE

to_json: Final = kombu_json.JSONEncoder().encode
"""One encoder for all calls; kombu's dumps makes an encoder for each call."""
_from_json: Final[Any] = kombu_json.loads


def envelope(
    body: bytes | str,
    content_type: str,
    content_encoding: str,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    exchange: str = "",
    routing_key: str = "",
) -> bytes:
    """Return the message of a serialized body.

    The message has what kombu's transport adds when it publishes: body_encoding, delivery_tag (the
    task's id), delivery_info. Raises InvalidInput if headers or properties are not JSON, or if the
    message is too large.
    """
    raw = body.encode("utf-8") if isinstance(body, str) else body
    packed = base64.b64encode(raw).decode()
    try:
        id = str(headers.get("id", ""))
        wrapped = wrap(
            packed, content_type, content_encoding, headers, properties, id, exchange, routing_key
        )
        return not_too_large(headers.get("task"), to_json(wrapped).encode())
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the headers of task {headers.get('task')} cannot be packed as json: {error}"
        ) from None


def wrap(
    body: str,
    content_type: str,
    content_encoding: str,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    tag: str,
    exchange: str,
    routing_key: str,
) -> dict[str, Any]:
    """Return the payload of a message; `body` is base64, `tag` the task's id."""
    return {
        "body": body,
        "content-encoding": content_encoding,
        "content-type": content_type,
        "headers": headers,
        "properties": {
            "delivery_mode": 2,
            "priority": 0,
            **properties,
            "body_encoding": "base64",
            "delivery_tag": tag,
            "delivery_info": {"exchange": exchange, "routing_key": routing_key},
        },
    }


def open_envelope(message: bytes) -> dict[str, Any]:
    """Return the payload of a message, for `kombu.transport.virtual.Message(payload, channel=...)`.

    Raises BrokenContract for bytes that are no task message.
    """
    try:
        payload: Any = _from_json(message)
    except (ValueError, RecursionError) as error:
        raise BrokenContract(f"not a task message: {error!s:.200}") from None
    if not isinstance(payload, dict) or not {"body", "headers", "properties"} <= payload.keys():
        raise BrokenContract(f"not a task message: {message[:80]!r}")
    return payload


def pack_envelope(payload: Mapping[str, Any]) -> bytes:
    """Return the message of a payload from `open_envelope`."""
    return to_json(payload).encode()


class Decoder:
    """The part of a channel that kombu's Message needs to open a body from a task's record."""

    no_ack_consumers = None

    @staticmethod
    def decode_body(body: str, encoding: str | None = None) -> bytes:
        """Return the bytes of a body."""
        return base64.b64decode(body) if encoding == "base64" else body.encode()


def not_too_large(name: object, message: bytes) -> bytes:
    """Return the message; raises InvalidInput if the message is larger than MAX_MESSAGE."""
    if len(message) > MAX_MESSAGE:
        raise InvalidInput(
            f"the message of task {name} is too large: {len(message):,} bytes, {MAX_MESSAGE:,} are "
            "allowed; put large data where the worker can fetch it, and pass its address"
        )
    return message
