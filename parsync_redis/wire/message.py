"""Make a task's message without the user's app: the message that Celery would have published.

Celery's and kombu's own code fills the headers and packs the content. For the usual task, a name
with plain arguments, that code runs once per name and makes a template. The messages of that name
then differ from the template in id, arguments and expiry only.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _as_json
from typing import Any, Final

from celery import Celery
from celery.utils.saferepr import saferepr
from kombu import serialization
from kombu.exceptions import EncodeError, SerializerNotInstalled

from ..errors import InvalidInput
from ..model.ids import shown
from ..model.limits import MAX_DEPTH
from .envelope import envelope, not_too_large, to_json, wrap
from .message_options import check_options
from .tenant import TENANT_HEADER

_TEMPLATE_OPTIONS: Final = frozenset(("time_limit", "soft_time_limit", "ignore_result"))
_BODY_MARK = "\0body"
_ID_MARK = "\0id"
_ARGS_MARK = "\0args"
_KWARGS_MARK = "\0kwargs"
_EXPIRES_MARK = "\0expires"
_TENANT_MARK = "\0tenant"
_PLAIN_TYPES: Final = frozenset((int, float, bool, type(None)))
_pack: Final[Any] = serialization.dumps
_app: Final = Celery("parsync", set_as_current=False)
_NO_CANVAS: Final = to_json({"callbacks": None, "errbacks": None, "chain": None, "chord": None})


def make_message(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    id: str,
    queue: str = "",
    tenant: str = "",
    **options: Any,
) -> bytes:
    """Return the message of a task.

    options: options of CELERY_OPTIONS, with Celery's meaning and units (seconds).
    queue: the Celery queue that the task was routed to, which a retry keeps.
    tenant: the tenant of the task, which the tasks inherit that it submits.

    Raises InvalidInput for an argument that cannot be packed, naming the argument, and for an
    unknown or wrong option.
    """
    kwargs = {} if kwargs is None else kwargs
    has_arguments = type(args) is not tuple or args or type(kwargs) is not dict or kwargs
    if not options and not tenant and not has_arguments:
        return _as_json(id).join(_around_id(name, queue)).encode()
    _check_arguments(name, args, kwargs)
    if options.keys() - _TEMPLATE_OPTIONS - {"expires"}:
        return _whole(name, args, kwargs, id, queue, tenant, check_options(options))
    limits: tuple[tuple[str, Any], ...] = ()
    expires = None
    if options:
        options = check_options(options)
        expires = options.pop("expires", None)
        limits = tuple(sorted(options.items()))
    try:
        body = f"{to_json((args, kwargs))[:-1]}, {_NO_CANVAS}]"
    except Exception as error:
        raise _unpackable(name, args, kwargs, "json", error) from None
    _check_depth(name, args, kwargs, body)
    values = {
        _ID_MARK: _as_json(id),
        _BODY_MARK: _packed(body),
        _ARGS_MARK: _as_json(_shown(args, args)),
        _KWARGS_MARK: _as_json(_shown(kwargs, kwargs.values())) if kwargs else '"{}"',
        _EXPIRES_MARK: f'"{expires}"',
        _TENANT_MARK: _as_json(tenant),
    }
    pieces = _template(name, limits, expires is not None, queue, bool(tenant))
    return not_too_large(name, "".join([values.get(piece, piece) for piece in pieces]).encode())


def _packed(body: str) -> str:
    """Return a body as the JSON of a message has it."""
    return f'"{base64.b64encode(body.encode()).decode()}"'


def _check_depth(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], body: str) -> None:
    """Raise InvalidInput for arguments that are nested too deep.

    Most bodies have fewer brackets than the allowed depth, and need no further check.
    """
    if body.count("[") + body.count("{") <= MAX_DEPTH:
        return
    level: list[Any] = [*args, *kwargs.values()]
    for _ in range(MAX_DEPTH):
        inner = [value for value in level if isinstance(value, (list, tuple, dict))]
        level = [
            nested
            for value in inner
            for nested in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise InvalidInput(
        f"the arguments of task {name} are nested too deep: {MAX_DEPTH} levels are allowed"
    )


def _check_arguments(name: str, args: object, kwargs: object) -> None:
    if not isinstance(args, (list, tuple)):
        raise InvalidInput(
            f"args of task {name} must be a list or tuple, not {type(args).__name__} {shown(args)}"
        )
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidInput(
            f"kwargs of task {name} must be a mapping from names to values, not {shown(kwargs)}"
        )


def _shown(whole: Any, values: Any) -> str:
    """Return Celery's text of arguments (argsrepr), which is made by saferepr.

    For a few plain values repr returns the same text, and is faster.
    """
    if type(whole) in (tuple, list, dict) and all(map(_has_plain_repr, values)):
        text = repr(whole)
        if len(text) < 500:
            return text
    # Celery before 5.7 lacks this setting, and always uses 3.
    levels = _app.conf.get("task_repr_maxlevels", 3)
    return str(saferepr(whole, _app.amqp.argsrepr_maxsize, maxlevels=levels))


def _has_plain_repr(value: Any) -> bool:
    """Return whether saferepr returns the same text as repr for a value."""
    if type(value) is str:
        return value.isprintable() and "'" not in value and "\\" not in value
    return type(value) in _PLAIN_TYPES


@lru_cache(maxsize=1024)
def _around_id(name: str, queue: str) -> list[str]:
    """Return the two texts around the id of a message without arguments and options."""
    values = {
        _BODY_MARK: _packed(f"[[], {{}}, {_NO_CANVAS}]"),
        _ARGS_MARK: '"()"',
        _KWARGS_MARK: '"{}"',
    }
    pieces = _template(name, (), False, queue, False)
    return "".join([values.get(piece, piece) for piece in pieces]).split(_ID_MARK)


@lru_cache(maxsize=1024)
def _template(
    name: str,
    limits: tuple[tuple[str, Any], ...],
    expires: bool,
    queue: str,
    has_tenant: bool,
) -> list[str]:
    """Return the text of a message in pieces: each placeholder, with its quotes, is a piece."""
    headers, properties, _, _ = _app.amqp.as_task_v2(
        _ID_MARK,
        name,
        (),
        {},
        expires=_EXPIRES_MARK if expires else None,
        argsrepr=_ARGS_MARK,
        kwargsrepr=_KWARGS_MARK,
        **{"ignore_result": None, **dict(limits)},  # None: the task decides where it runs
    )
    if has_tenant:
        headers[TENANT_HEADER] = _TENANT_MARK
    text = to_json(
        wrap(_BODY_MARK, "application/json", "utf-8", headers, properties, _ID_MARK, "", queue)
    )
    marks = {
        _as_json(mark): mark
        for mark in (
            _BODY_MARK,
            _ID_MARK,
            _ARGS_MARK,
            _KWARGS_MARK,
            _EXPIRES_MARK,
            _TENANT_MARK,
        )
    }
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
    return [marks.get(piece, piece) for piece in pieces]


# A message names the process that made it, so a forked process must not use these templates.
os.register_at_fork(after_in_child=_template.cache_clear)
os.register_at_fork(after_in_child=_around_id.cache_clear)


def _whole(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    id: str,
    queue: str,
    tenant: str,
    options: dict[str, Any],
) -> bytes:
    """Return a message with any options: Celery's as_task_v2 makes all of the message."""
    serializer = options.pop("serializer", None) or "json"
    extra = options.pop("headers", None) or {}
    links = {"callbacks": options.pop("link", None), "errbacks": options.pop("link_error", None)}
    for header, value in links.items():
        links[header] = [value] if isinstance(value, Mapping) else value
    options = {"ignore_result": None, **options}
    try:
        headers, properties, body, _ = _app.amqp.as_task_v2(
            id, name, args, kwargs, **links, **options
        )
        headers.update(extra)
        if tenant:
            headers[TENANT_HEADER] = tenant
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


def _unpackable(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], serializer: str, error: Exception
) -> InvalidInput:
    """Return the error that names the argument that cannot be packed."""
    positional = [(f"args[{i}]", value) for i, value in enumerate(args)]
    for argument, value in [*positional, *kwargs.items()]:
        try:
            _pack([value], serializer=serializer)
        except Exception as reason:
            return InvalidInput(
                f"argument {argument} of task {name} cannot be packed as {serializer}: "
                f"{type(value).__name__} {shown(value)}: {reason}"
            )
    return InvalidInput(f"the arguments of task {name} cannot be packed as {serializer}: {error}")
