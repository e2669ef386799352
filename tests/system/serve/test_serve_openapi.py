"""The OpenAPI document of a real `parsync serve` says what it does: routes, parameters, statuses
and answers.
"""

import json
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from parsync_redis.model.options import OPTIONS
from parsync_redis.model.task import TaskState
from parsync_redis.serve.body import BODY_S
from parsync_redis.serve.submitters import hash_token
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.servers import PRIMARIES
from tests.kit.serving import ASK_S, serving
from tests.system.serve.test_serve import PROGRAM, set_up

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
V1 = "/api/v1"
TASKS = f"{V1}/tasks"
FILE = f"""
[shop]
token_sha256 = ["{hash_token("shop-token")}"]
names = ["shop.*"]
slots = 100
resources = {{mem = "64GiB"}}
require = ["gpu_model"]
tolerate = ["*"]
apart = ["*"]
tenants = ["*"]
limits = ["*"]
priority = 9
max_starts = 9
rate = 1000
burst = 500
most_bytes = 4096

[slow]
token_sha256 = ["{hash_token("slow-token")}"]
names = ["*"]
rate = 0.001
burst = 1
"""
OPERATORS = f"alice:scrypt:2:1:1:{'00' * 16}:{'00' * 32}\n"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MAIL = {"name": "shop.mail"}


def strict(schema: Any) -> Any:
    """Return a schema that allows no fields but its own: the published one lets fields be added."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if (
        "properties" in schema
        and isinstance(schema["properties"], dict)
        and schema.get("title") != "Document"
    ):
        found["additionalProperties"] = False
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Yield a cluster, its service with all doors open, one whose server is away, and the document."""
    folder = tmp_path_factory.mktemp("openapi")
    (folder / "submitters.toml").write_text(FILE)
    (folder / "operators").write_text(OPERATORS)
    flags = (
        "--submitters",
        str(folder / "submitters.toml"),
        "--operators",
        str(folder / "operators"),
    )
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(PROGRAM))
        store = Store.from_url(server.url, "demo")
        stack.callback(store.client.close)
        driver = set_up(store)
        driver.node("n1", 2, {"gpu": 1}, {"zone": "a"})
        driver.node("n2", 2, p=1)
        driver.submit("w1", {"resources": {"gpu": 9}}, name="proj.huge")
        driver.start(driver.held("held", driver.taken("held", {"slots": 2}), slots=(0, 1)))
        driver.start(
            driver.held("shop:near", driver.taken("shop:near"), node="n2", slots=(1,), p=1)
        )
        driver.bring(TaskState.DEAD, "shop:dead")
        driver.cancel("w1", "no longer")
        driver.submit("w2", {"resources": {"gpu": 9}}, name="proj.huge")
        driver.offer("n1", "slots=2 gpu=1 zone:a", "shop.mail", "slow.a")
        serve = stack.enter_context(serving(server.url, "demo", *flags))
        away = stack.enter_context(serving("redis://127.0.0.1:1/0", "demo", *flags))
        serve.until_json("/healthz", lambda found: found["ok"])
        document = serve.json(f"{V1}/openapi.json")[1]
        yield SimpleNamespace(
            serve=serve, away=away, driver=driver, document=document, flags=flags, url=server.url
        )


def each(document):
    """Yield path, method and description of each operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def test_the_openapi_document_is_valid_and_has_every_route(site):
    validate(site.document)
    paths = [
        path.replace(":path}", "}")
        for path in site.serve.json(V1)[1]["paths"]
        if path.startswith(V1)
    ]
    assert set(site.document["paths"]) == set(paths)
    schemes = site.document["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "submitter": "http",
        "operator": "apiKey",
    }
    ids = [operation["operationId"] for _, _, operation in each(site.document)]
    assert len(ids) == len(set(ids))


def test_no_state_is_told_in_the_words_of_scripts(site):
    words = {
        word
        for schema in site.document["components"]["schemas"].values()
        for word in schema.get("enum", ())
    }
    asked = (
        param["schema"].get("enum", ()) for _, params in queries(site.document) for param in params
    )
    states = {word for enum in asked for word in enum}
    assert {"waiting", "draining"} <= words
    assert {"waiting", "draining"} <= states
    assert not {"pending", "taken"} & (words | states)


def test_a_process_documents_only_what_it_answers(site):
    with serving(site.url, "demo") as viewers:
        found = viewers.json(f"{V1}/openapi.json")[1]
        validate(found)
        assert {method for _, method, _ in each(found)} == {"GET"}
        assert found["components"]["securitySchemes"] == {}
    with serving(site.url, "demo", *site.flags[:2], "--submit-only") as submitters:
        found = submitters.json(f"{V1}/openapi.json")[1]
        validate(found)
        assert set(found["paths"]) == {V1, TASKS, f"{TASKS}/{{id}}", f"{V1}/openapi.json"}
        assert found["paths"][f"{TASKS}/{{id}}"]["get"]["security"] == [{"submitter": []}]


def test_no_other_method_is_allowed(site):
    for path, item in site.document["paths"].items():
        for method in METHODS:
            status, _, headers = site.serve.ask(method, path.format(name="n1", id="x"), {})
            assert (status == 405) == (method.lower() not in item), f"{method} {path}"
            if status == 405:
                assert set(headers["allow"].split(", ")) - {"HEAD"} <= {
                    known.upper() for known in item
                }


# -- parameters ------------------------------------------------------------------------------------


def queries(document):
    """Yield the path of each operation that is a GET, and its parameters in the query."""
    for path, method, operation in each(document):
        if method == "GET":
            yield path, [one for one in operation["parameters"] if one["in"] == "query"]


def asked(site, path, **query):
    status, body = site.serve.json(path.format(name="n1", id="held"), **query)
    return status, body.get("error", "")


def test_each_parameter_is_known_and_no_other(site):
    for path, params in queries(site.document):
        known = ", ".join(one["name"] for one in params)
        status, error = asked(site, path, odd="1")
        there_are = f"known are {known}" if known else "there are none here"
        assert (status, error) == (400, f"unknown parameter 'odd': {there_are}")
        for one in params:
            others = {"device": "gpu=0-3"} if one["name"] == "device_resource" else {}
            assert asked(site, path, **others, **{one["name"]: one["example"]})[0] == 200, (
                f"{path} {one['name']}"
            )


def test_each_parameter_has_the_documented_bounds(site):
    for path, params in queries(site.document):
        for one in params:
            name = one["name"]
            schema = one["schema"]
            twice = urlencode(
                {name: [str(one["schema"].get("default", one["example"]))] * 2}, doseq=True
            )
            if repeated := schema["type"] == "array":
                schema = schema["items"]
                assert site.serve.json(path)[0] == 200
                assert asked(site, path, **{name: ["x"] * 65})[1].endswith("which is too often")
            else:
                assert site.serve.get_exactly(f"{path}?{twice}")[0] == 400
            if "enum" in schema:
                assert {asked(site, path, **{name: word})[0] for word in schema["enum"]} == {200}, (
                    name
                )
                assert asked(site, path, **{name: "odd"})[0] == 400, name
            elif schema["type"] == "integer":
                inside = [schema["minimum"], schema["maximum"]]
                assert [asked(site, path, **{name: value})[0] for value in inside] == [200, 200], (
                    name
                )
                assert asked(site, path, **{name: schema["maximum"] + 1})[0] == 400, name
            else:
                assert (
                    "has 256 characters: there may be 255"
                    in asked(site, path, **{name: "x" * 256})[1]
                )
            assert repeated == (
                name
                in ("event", "require", "label", "resource", "taint", "device", "device_resource")
            )


# -- statuses and answers --------------------------------------------------------------------------


class Asked:
    """Asks for each operation, and notes which statuses have come; each answer must be what the
    document says.
    """

    def __init__(self, site):
        self.site = site
        self.seen = set[tuple[str, str, int]]()
        self.schemas = strict(site.document["components"]["schemas"])

    def __call__(self, wanted, method, path, body=None, token="", serve: Any = None, **parts: str):
        where = path.format(**{name: quote(value) for name, value in parts.items()})
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        status, text, _ = (serve or self.site.serve).ask(method, f"{V1}{where}", body, headers)
        assert status == wanted, f"{method} {where}: {text}"
        self.note(method, f"{V1}{path.partition('?')[0]}", status, text)

    def note(self, method, path, status, text):
        operation = self.site.document["paths"][path][method.lower()]
        schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        errors = Draft202012Validator(
            {**strict(schema), "components": {"schemas": self.schemas}}
        ).iter_errors(json.loads(text))
        assert not [error.message for error in errors], f"{method} {path} {status}: {text}"
        self.seen.add((path, method, status))


def test_each_documented_status_occurs_and_its_answer_matches_the_document(site):
    asks = Asked(site)
    late = body_that_does_not_come(site)
    for path in (
        "",
        "/openapi.json",
        "/nodes",
        "/partitions",
        "/schedulers",
        "/kinds",
        "/names",
        "/tenants",
        "/limits",
        "/tasks",
        "/demand",
    ):
        asks(200, "GET", path)
        asks(400, "GET", f"{path}?odd=1")
    asks(200, "GET", "/demand?slots=4&resource=gpu=1")
    asks(200, "GET", "/events")
    asks(400, "GET", "/events?since=odd")
    for path, parts in (
        ("/nodes/{name}", {"name": "n1"}),
        ("/tasks/{id}", {"id": "held"}),
        ("/explain/{id}", {"id": "w2"}),
    ):
        asks(200, "GET", path, **parts)
        asks(404, "GET", path, **dict.fromkeys(parts, "none"))
        asks(400, "GET", f"{path}?odd=1", **parts)
    for id in ("w1", "w2", "shop:dead"):
        asks(200, "GET", "/tasks/{id}", id=id)
        asks(200, "GET", "/explain/{id}", id=id)
    for path in (
        "/nodes",
        "/nodes/{name}",
        "/partitions",
        "/schedulers",
        "/kinds",
        "/names",
        "/tenants",
        "/limits",
        "/demand",
        "/events",
    ):
        asks(503, "GET", path, serve=site.away, name="n1")
    for path in ("/tasks", "/tasks/{id}", "/explain/{id}"):
        asks(503, "GET", path, serve=site.away, id="x")
    submitters_ask(asks, site)
    asks.note("POST", TASKS, *late())
    told = {
        (path, method, int(status))
        for path, method, operation in each(site.document)
        for status in operation["responses"]
    }
    assert asks.seen == told


def submitters_ask(asks, site):
    """Ask for what submitters may do."""
    shop = {"token": "shop-token"}
    asks(201, "POST", "/tasks", {**MAIL, "id": "shop:1"}, **shop)
    asks(200, "POST", "/tasks", {**MAIL, "id": "shop:1"}, **shop)
    asks(201, "POST", "/tasks", [{**MAIL, "id": "shop:2"}, MAIL], **shop)
    asks(400, "POST", "/tasks", b"{", **shop)
    asks(401, "POST", "/tasks", MAIL, token="odd")
    asks(403, "POST", "/tasks", {"name": "admin.x"}, **shop)
    asks(409, "POST", "/tasks", {"name": "shop.other", "id": "shop:1"}, **shop)
    asks(413, "POST", "/tasks", {**MAIL, "args": ["x" * 5000]}, **shop)
    asks(422, "POST", "/tasks", {"name": "shop.odd"}, **shop)
    asks(422, "POST", "/tasks", [{"name": "shop.odd"}, {**MAIL, "id": "shop:3"}], **shop)
    asks(503, "POST", "/tasks", MAIL, serve=site.away, **shop)
    for method in ("GET", "DELETE"):
        asks(400, method, "/tasks/{id}", id="shop:" + "x" * 300, **shop)
        asks(401, method, "/tasks/{id}", id="shop:1", token="odd")
        asks(404, method, "/tasks/{id}", id="shop:none", **shop)
        asks(503, method, "/tasks/{id}", id="shop:1", serve=site.away, **shop)
    asks(200, "GET", "/tasks/{id}", id="shop:1", **shop)
    asks(409, "DELETE", "/tasks/{id}", id="shop:dead", **shop)
    asks(200, "DELETE", "/tasks/{id}", id="shop:1", **shop)
    place = site.driver.held("shop:2", site.driver.take()["shop:2"], node="n2", slots=(0,), p=1)
    site.driver.start(place)
    asks(202, "DELETE", "/tasks/{id}", id="shop:2", **shop)
    site.serve.ask("GET", f"{TASKS}/slow:1", None, {"Authorization": "Bearer slow-token"})
    asks(429, "POST", "/tasks", {"name": "slow.a"}, token="slow-token")
    for method in ("GET", "DELETE"):
        asks(429, method, "/tasks/{id}", id="slow:1", token="slow-token")


def body_that_does_not_come(site):
    """Begin a request whose body never ends; return what waits for its answer."""
    host, _, port = site.serve.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=BODY_S + ASK_S)
    head = (
        f"POST {TASKS} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer "
        "shop-token\r\nContent-Length: 9\r\n\r\n"
    )
    connection.sendall(head.encode())

    def answer():
        with connection, connection.makefile("rb") as lines:
            status = int(lines.readline().split()[1])
            size = 0
            while line := lines.readline().strip():
                name, _, value = line.decode().lower().partition(": ")
                size = int(value) if name == "content-length" else size
            return status, lines.read(size).decode()

    return answer


def test_the_body_of_a_submit_matches_the_document(site):
    schema = site.document["paths"][TASKS]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    valid = Draft202012Validator(schema).is_valid

    def status(**options):
        task = {**MAIL, "wait_for_capacity": True, **options}
        return site.serve.ask("POST", TASKS, task, {"Authorization": "Bearer shop-token"}), valid(
            task
        )

    names = schema["anyOf"][0]["properties"]
    assert set(names) >= {option.name for option in OPTIONS}
    right = {option.name: option.example for option in OPTIONS} | {"near": "shop:near"}
    right |= {
        "args": [1],
        "kwargs": {"to": 1},
        "id": "shop:body",
        "countdown": 5,
        "name": "shop.mail",
    }
    right |= {"queue": None, "time_limit": 60, "soft_time_limit": 50, "ignore_result": True}
    assert set(right) == set(names)
    for name, value in right.items():
        (found, text, _), is_valid = status(**{name: value})
        assert (found, is_valid) == (201, True), f"{name}={value}: {text}"
        (found, text, _), is_valid = status(**{name: 7 if name == "args" else [{}, 7]})
        assert (found, is_valid) == (400, False), f"{name}: {text}"
    assert status(odd=1)[0][0] == 400
    assert not status(odd=1)[1]
