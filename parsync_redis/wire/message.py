"""A task's message: what Celery would have published, as kombu's Redis transport puts it on a list.

    {"body": base64, "content-type": ..., "content-encoding": ..., "headers": {protocol 2}, "properties": {...}}

`make_message` makes one without the user's app; `envelope` wraps what a Celery app has already serialized. What a
header means and how content is packed is Celery's and kombu's own code. For the usual task, of a name and plain
arguments, that code runs once a name: it makes a template, of which each message differs in id, arguments and expiry.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from celery import Celery
from celery.utils.saferepr import saferepr
from celery.utils.time import maybe_make_aware
from kombu import serialization
from kombu.exceptions import EncodeError, SerializerNotInstalled
from kombu.utils import json as kombu_json

from ..errors import BrokenContract, InvalidInput
from ..model.ids import shown
from ..model.limits import MAX_DEPTH, MAX_MESSAGE
from ..model.options import CELERY_OPTIONS, is_seconds

_IN_TEMPLATE: Final = frozenset(("time_limit", "soft_time_limit", "ignore_result"))
_BODY, _ID, _ARGS, _KWARGS, _EXPIRES = "\0body", "\0id", "\0args", "\0kwargs", "\0expires"
_NO_EMBED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_PLAIN: Final = frozenset((int, float, bool, type(None)))
_TEXT: Final = (str, "text")
_RIGHT: Final[Mapping[str, tuple[type, str]]] = {
    "ignore_result": (bool, "True or False"),
    "shadow": _TEXT,
    "serializer": _TEXT,
    "headers": (Mapping, "a mapping"),
    "reply_to": _TEXT,
    "root_id": _TEXT,
    "parent_id": _TEXT,
}
_encode: Final = kombu_json.JSONEncoder().encode
_to_json: Final[Any] = kombu_json.dumps
_from_json: Final[Any] = kombu_json.loads
_pack: Final[Any] = serialization.dumps
_app: Final = Celery("parsync", set_as_current=False)


def make_message(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None, id: str, queue: str = "", **options: Any
) -> bytes:
    """The message of a task; `options` are those of CELERY_OPTIONS, with Celery's meaning and units (seconds).

    queue: the Celery queue that it was routed to, which a retry keeps.

    Raises InvalidInput: arguments that cannot be packed, saying which; an option that is not known or has no sense.
    """
    kwargs = {} if kwargs is None else kwargs
    _check_arguments(name, args, kwargs)
    if options.keys() - _IN_TEMPLATE - {"expires"}:
        return _whole(name, args, kwargs, id, queue, _checked(options))
    limits: tuple[tuple[str, Any], ...] = ()
    expires = None
    if options:
        options = _checked(options)
        expires = options.pop("expires", None)
        limits = tuple(sorted(options.items()))
    try:
        body = _encode((args, kwargs, _NO_EMBED))
    except Exception as error:
        raise _unpackable(name, args, kwargs, "json", error) from None
    _check_depth(name, args, kwargs, body)
    parts, order = _template(name, limits, expires is not None, queue, os.getpid())
    values = {
        _BODY: base64.b64encode(body.encode()).decode(),
        _ID: encode_basestring_ascii(id)[1:-1],
        _ARGS: encode_basestring_ascii(_shown(args, args))[1:-1],
        _KWARGS: encode_basestring_ascii(_shown(kwargs, kwargs.values()))[1:-1] if kwargs else "{}",
        _EXPIRES: str(expires),
    }
    text = [parts[0]]
    for placeholder, part in zip(order, parts[1:], strict=True):
        text.append(values[placeholder])
        text.append(part)
    return _not_too_large(name, "".join(text).encode())


def _not_too_large(name: object, message: bytes) -> bytes:
    """The message; raises InvalidInput if it is larger than a record should be."""
    if len(message) > MAX_MESSAGE:
        raise InvalidInput(
            f"the message of task {name} is too large: {len(message):,} bytes, {MAX_MESSAGE:,} are allowed; "
            "put large data where the worker can fetch it, and pass its address"
        )
    return message


def _check_depth(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], body: str) -> None:
    """Raises InvalidInput for arguments that are nested too deep; most bodies have not even as many brackets."""
    if body.count("[") + body.count("{") <= MAX_DEPTH:
        return
    level: list[Any] = [*args, *kwargs.values()]
    for _ in range(MAX_DEPTH):
        inner = [value for value in level if isinstance(value, (list, tuple, dict))]
        level = [one for value in inner for one in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return
    raise InvalidInput(f"the arguments of task {name} are nested too deep: {MAX_DEPTH} levels are allowed")


def _check_arguments(name: str, args: object, kwargs: object) -> None:
    if not isinstance(args, (list, tuple)):
        raise InvalidInput(f"args of task {name} must be a list or tuple, not {type(args).__name__} {shown(args)}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidInput(f"kwargs of task {name} must be a mapping from names to values, not {shown(kwargs)}")


def _shown(whole: Any, values: Any) -> str:
    """What Celery shows of arguments (argsrepr): its saferepr, which for a few plain values is the same as repr."""
    for value in values:
        if type(value) not in _PLAIN and not (
            type(value) is str and value.isprintable() and "'" not in value and "\\" not in value
        ):
            break
    else:
        text = repr(whole)
        if len(text) < 500 and type(whole) in (tuple, list, dict):
            return text
    return str(saferepr(whole, _app.amqp.argsrepr_maxsize, maxlevels=_app.conf.task_repr_maxlevels))


@lru_cache(maxsize=1024)
def _template(
    name: str, limits: tuple[tuple[str, Any], ...], expires: bool, queue: str, pid: int
) -> tuple[list[str], list[str]]:
    """The text around the placeholders, and their order; `pid` because a message names the process that made it."""
    headers, properties, _, _ = _app.amqp.as_task_v2(
        _ID,
        name,
        (),
        {},
        expires=_EXPIRES if expires else None,
        argsrepr=_ARGS,
        kwargsrepr=_KWARGS,
        **{"ignore_result": None, **dict(limits)},  # None: as the task says where it runs
    )
    text = _to_json(_wrap(_BODY, "application/json", "utf-8", headers, properties, _ID, "", queue))
    marks = {encode_basestring_ascii(mark)[1:-1]: mark for mark in (_BODY, _ID, _ARGS, _KWARGS, _EXPIRES)}
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
    return pieces[::2], [marks[piece] for piece in pieces[1::2]]


def _whole(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], id: str, queue: str, options: dict[str, Any]
) -> bytes:
    """A message with options that may hold anything: made by as_task_v2 from the start."""
    serializer = options.pop("serializer", None) or "json"
    extra = options.pop("headers", None) or {}
    links = {"callbacks": options.pop("link", None), "errbacks": options.pop("link_error", None)}
    for what, value in links.items():
        links[what] = [value] if isinstance(value, Mapping) else value
    options = {"ignore_result": None, **options}
    try:
        headers, properties, body, _ = _app.amqp.as_task_v2(id, name, args, kwargs, **links, **options)
        headers.update(extra)
    except Exception as error:
        raise InvalidInput(f"the options of task {name} make no message: {shown(error)}") from None
    try:
        content_type, content_encoding, packed = _pack(body, serializer=serializer)
    except SerializerNotInstalled:
        raise InvalidInput(
            f"serializer={shown(serializer)} is not known: known are json, pickle, yaml, msgpack"
        ) from None
    except EncodeError as error:
        raise _unpackable(name, args, kwargs, serializer, error) from None
    return envelope(packed, content_type, content_encoding, headers, properties, routing_key=queue)


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options with sensible values; `expires` as the text that a header carries (ISO 8601 with its zone)."""
    for name, value in options.items():
        if name not in CELERY_OPTIONS:
            raise InvalidInput(f"unknown option {shown(name)}: known are {', '.join(CELERY_OPTIONS)}")
        if value is not None and (right := _RIGHT.get(name)) and not isinstance(value, right[0]):
            raise InvalidInput(f"{name}={shown(value)} is not valid: it must be {right[1]}")
        if name in ("time_limit", "soft_time_limit") and value is not None and not is_seconds(value):
            raise InvalidInput(f"{name}={shown(value)} is not valid: it must be a number of seconds above 0")
    if (expires := options.get("expires")) is None:
        return options
    if isinstance(expires, datetime):
        at = maybe_make_aware(expires, UTC)
    elif is_seconds(expires):
        at = datetime.now(UTC) + timedelta(seconds=expires)
    else:
        raise InvalidInput(
            f"expires={shown(expires)} is not valid: it must be a number of seconds above 0, or a datetime"
        )
    return {**options, "expires": at.isoformat()}


def until_ms(what: str, moment: str | datetime) -> int:
    """Milliseconds from now until a moment (or ISO 8601 of one; UTC where it names no zone), below 0 if it is past.

    Raises InvalidInput, naming `what`.
    """
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise InvalidInput(
            f"{what}={shown(moment)} is not valid: it must be a datetime, or one as ISO 8601 writes it"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int((at - datetime.now(UTC)).total_seconds() * 1000)


def _unpackable(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], serializer: str, error: Exception
) -> InvalidInput:
    """Says which argument cannot be packed."""
    for what, value in [(f"args[{i}]", value) for i, value in enumerate(args)] + list(kwargs.items()):
        try:
            _pack([value], serializer=serializer)
        except Exception as reason:
            return InvalidInput(
                f"argument {what} of task {name} cannot be packed as {serializer}: "
                f"{type(value).__name__} {shown(value)}: {reason}"
            )
    return InvalidInput(f"the arguments of task {name} cannot be packed as {serializer}: {error}")


def envelope(
    body: bytes | str,
    content_type: str,
    content_encoding: str,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    exchange: str = "",
    routing_key: str = "",
) -> bytes:
    """A message around a serialized body; raises InvalidInput if headers or properties are not JSON.

    Fills in what the transport adds when it publishes: body_encoding, delivery_tag (the task's id), delivery_info.
    """
    raw = body.encode("utf-8") if isinstance(body, str) else body
    packed = base64.b64encode(raw).decode()
    try:
        id = str(headers.get("id", ""))
        wrapped = _wrap(packed, content_type, content_encoding, headers, properties, id, exchange, routing_key)
        return _not_too_large(headers.get("task"), str(_to_json(wrapped)).encode())
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the headers of task {headers.get('task')} cannot be packed as json: {error}") from None


def _wrap(
    body: str,
    content_type: str,
    content_encoding: str,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    tag: str,
    exchange: str,
    routing_key: str,
) -> dict[str, Any]:
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
    """The payload of which kombu makes a message: `kombu.transport.virtual.Message(payload, channel=...)`."""
    try:
        payload: Any = _from_json(message)
    except (ValueError, RecursionError) as error:
        raise BrokenContract(f"not a task message: {error!s:.200}") from None
    if not isinstance(payload, dict) or not {"body", "headers", "properties"} <= payload.keys():
        raise BrokenContract(f"not a task message: {message[:80]!r}")
    return payload


def pack_envelope(payload: Mapping[str, Any]) -> bytes:
    """The message of a payload that `open_envelope` gave."""
    return str(_to_json(payload)).encode()


class Decoder:
    """As much of a channel as kombu's Message needs to open a body that came from a task's record."""

    no_ack_consumers = None

    @staticmethod
    def decode_body(body: str, encoding: str | None = None) -> bytes:
        """The bytes of a body."""
        return base64.b64decode(body) if encoding == "base64" else body.encode()
