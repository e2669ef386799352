"""The writing half of a real `parsync serve`: submitters with their tokens, operators on the pages
in a real Chromium.

One server and one service for all tests; each test has tasks and nodes of its own.
"""

import hashlib
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from parsync_redis import ParsyncClient
from parsync_redis.cli import app
from parsync_redis.model.ids import encode_id
from parsync_redis.model.task import TaskState
from parsync_redis.serve.gate import LOGINS_PER_ADDRESS
from parsync_redis.serve.submitters import hash_token
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit
from tests.kit.servers import PRIMARIES
from tests.kit.serving import Form, serving
from tests.kit.waiting import PATIENCE_S, until
from tests.system.serve import test_serve_pages as pages
from tests.system.serve.test_serve import PROGRAM, set_up, start

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
browser = pages.browser
TASKS = "/api/v1/tasks"
PASSWORD = "correct horse"
FILE = f"""
[shop]
token_sha256 = ["{hash_token("old")}", "{hash_token("shop-token")}"]
names = ["shop.*"]
slots = 2
tenants = ["shop", "shop/*"]
limits = ["customer:*", "stripe"]
priority = 5
rate = 1000
burst = 50
most_bytes = 4096

[slow]
token_sha256 = ["{hash_token("slow-token")}"]
names = ["*"]
rate = 0.01
burst = 2

[other]
token_sha256 = ["{hash_token("other-token")}"]
names = ["*"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Yield a server with two nodes, and a service with both doors open."""
    folder = tmp_path_factory.mktemp("doors")
    (folder / "submitters.toml").write_text(FILE)
    line = CliRunner().invoke(app, ["serve-password", "alice"], input=f"{PASSWORD}\n").stdout
    (folder / "operators").write_text(line)
    flags = (
        "--submitters",
        str(folder / "submitters.toml"),
        "--operators",
        str(folder / "operators"),
    )
    with EmbeddedServer(PROGRAM) as server:
        store = Store.from_url(server.url, "demo")
        driver = set_up(store)
        for name in ("n1", "n2"):
            driver.node(name, 2)
        with (
            serving(server.url, "demo", *flags) as serve,
            ParsyncClient.from_url(server.url, "demo") as client,
        ):
            serve.until_json("/healthz", lambda found: found["ok"])
            yield SimpleNamespace(
                server=server, driver=driver, serve=serve, client=client, folder=folder
            )
        store.client.close()


def ask(site, method, path=TASKS, body=None, token="shop-token"):
    """Ask as a submitter; return the status, the JSON and the headers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, text, found = site.serve.ask(method, path, body, headers)
    return status, json.loads(text), found


# -- submitters ------------------------------------------------------------------------------------


def test_a_task_is_submitted_once_and_only_its_submitter_finds_it(site):
    task = {
        "name": "shop.mail",
        "args": [1, "ä"],
        "kwargs": {"to": "x"},
        "id": "shop:order 17/ä",
        "priority": 5,
    }
    status, made, headers = ask(site, "POST", body=task)
    assert (status, made["id"], made["state"]) == (201, "shop:order 17/ä", "submitted")
    assert made["url"] == headers["location"] == f"{TASKS}/shop:order%2017%2F%C3%A4"
    assert ask(site, "POST", body=task)[:2] == (200, {**made, "state": "exists"})
    found = site.client.status("shop:order 17/ä")
    assert (found.name, found.priority, found.needs, found.state) == (
        "shop.mail",
        5,
        "slots=1",
        "waiting",
    )
    status, shown, _ = ask(site, "GET", made["url"])
    assert status == 200
    assert shown["task"]["state"] == "waiting"
    assert shown["task"]["waits_for"] == "unexplained"
    assert shown["task"]["times"]["submitted"] == found.times["submitted"]
    fields = (
        "id",
        "name",
        "state",
        "node",
        "attempt",
        "starts",
        "times",
        "cancel_asked",
        "waits_for",
        "outcome",
    )
    assert set(shown["task"]) == set(fields)
    for method in ("GET", "DELETE"):
        assert ask(site, method, made["url"], token="other-token")[0] == 404
        assert ask(site, method, f"{TASKS}/shop:none")[0] == 404
        assert ask(site, method, f"{TASKS}/n1")[1]["error"] == "you have no task 'n1'"
    status, answer, _ = ask(site, "POST", body={**task, "name": "shop.other"})
    assert (status, "exists, and is another: its name is shop.mail" in answer["error"]) == (
        409,
        True,
    )
    assert ask(site, "GET", made["url"])[1]["task"]["state"] == "waiting"
    assert ask(site, "DELETE", made["url"])[:2] == (200, {"id": made["id"], "state": "cancelled"})
    assert ask(site, "GET", made["url"])[1]["task"]["outcome"] == "cancelled by shop over HTTP"
    assert ask(site, "DELETE", made["url"])[0] == 200, "it is what was asked for"


def test_a_task_that_has_ended_cannot_be_cancelled(site):
    site.driver.bring(TaskState.DEAD, "shop:dead")
    status, answer, _ = ask(site, "DELETE", f"{TASKS}/shop:dead")
    assert (status, answer["error"]) == (409, "task 'shop:dead' is dead already")


def test_a_task_that_runs_is_asked_to_end(site):
    id = "shop:runs"
    assert ask(site, "POST", body={"name": "shop.mail", "id": id}, token="old")[0] == 201
    attempt = site.driver.take()[id]
    site.driver.start(site.driver.held(id, attempt, slots=(0,)))
    assert ask(site, "DELETE", f"{TASKS}/{id}")[:2] == (202, {"id": id, "state": "asked"})
    shown = site.serve.ask("GET", f"{TASKS}/{id}", None, {"Authorization": "Bearer shop-token"})
    assert json.loads(shown[1])["task"] | {"times": 0} == {
        "id": id,
        "name": "shop.mail",
        "state": "running",
        "node": "n1",
        "attempt": 1,
        "starts": 1,
        "times": 0,
        "cancel_asked": True,
        "waits_for": "",
        "outcome": "",
    }


def test_a_submit_of_a_list_answers_for_each_task(site):
    tasks = [{"name": "shop.a", "id": f"shop:list-{at}"} for at in range(3)]
    status, found, _ = ask(site, "POST", body=[*tasks, {"name": "shop.b"}])
    assert (status, [one["state"] for one in found["tasks"]]) == (201, ["submitted"] * 4)
    assert re.fullmatch(r"shop:[0-9a-f-]{36}", found["tasks"][3]["id"])
    mixed = [
        {**tasks[0], "name": "shop.x"},
        tasks[1],
        {"name": "shop.huge", "id": "shop:huge", "near": "shop:list-1"},
    ]
    status, found, _ = ask(site, "POST", body=mixed)
    assert (status, "shop:list-1" in found["error"]) == (400, True), "it has no node yet"
    huge = {"name": "shop.huge", "id": "shop:huge", "slots": 2}
    site.driver.run(site.driver.commands.set_node(0, "n2", "drain", None, "no deadline"))
    status, found, _ = ask(site, "POST", body=[tasks[1], {**tasks[0], "name": "shop.x"}, huge])
    assert status == 409
    assert found["error"].startswith("task 1: task 'shop:list-0' exists, and is another")
    assert [one.get("state") or one["status"] for one in found["tasks"]] == [
        "exists",
        409,
        "submitted",
    ]
    site.driver.run(site.driver.commands.set_node(0, "n2", "undrain", None, ""))
    assert {
        ask(site, "DELETE", f"{TASKS}/shop:{id}")[0]
        for id in ("huge", "list-0", "list-1", "list-2")
    } == {200}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{", 400, "the body is not JSON"),
        (7, 400, "7 is not a task: it must be an object with these fields: name, args"),
        ({}, 400, "task name None is not valid: it must be 1 to 255 printable ASCII"),
        (
            {"name": "shop.a", "link": {"task": "admin.x"}},
            400,
            "unknown option 'link': known are name, args, kwargs, id",
        ),
        (
            {"name": "shop.a", "id": "1"},
            400,
            "task id '1' is not valid: it must begin with 'shop:'",
        ),
        ({"name": "shop.a", "args": "x"}, 400, "args of task shop.a must be a list"),
        (
            {"name": "shop.a", "args": ["\ud800"], "slots": -1},
            400,
            "slots=-1 is not valid: it must be a whole number",
        ),
        ({"name": "admin.x"}, 403, "you may not submit 'admin.x': your task names are shop.*"),
        (
            [{"name": "shop.a"}, {"name": "shop.a", "slots": 3}],
            403,
            "task 1: slots=3 is too high: you may ask for 2",
        ),
        (
            {"name": "shop.a", "args": ["x" * 5000]},
            413,
            "the body is too large: it may have 4,096 bytes",
        ),
        ([{"name": "shop.a"}] * 51, 413, "the list has 51 tasks: it must have 1 to 50"),
        ([], 400, "the list has 0 tasks: it must have 1 to 50"),
    ],
)
def test_an_invalid_submit_is_explained_and_submits_no_task(site, body, status, error):
    before = site.client.demand()
    found, answer, _ = ask(site, "POST", body=body)
    assert (found, answer["status"]) == (status, status)
    assert error in answer["error"]
    assert site.client.demand() == before


def test_tenant_and_limits_are_filled_judged_and_looked_up(site):
    """A refusal names only the limits of the policy that this submitter may name."""
    policy = [("customer:*", "units=1"), ("secret", "units=1")]
    site.driver.run(site.driver.commands.set_policy(policy))
    task = {"name": "shop.a", "kwargs": {"id": 7, "to": "anna"}}
    asks = {"tenant": "shop/{to}", "limits": ["customer:{id}"]}
    assert ask(site, "POST", body={**task, **asks, "id": "shop:under"})[0] == 201
    status = site.client.status("shop:under")
    assert (status.tenant, status.limits) == ("shop/anna", "customer:7")
    assert ask(site, "DELETE", f"{TASKS}/shop:under")[0] == 200
    refusals: dict[int, dict[str, object]] = {
        400: {"limits": ["customer:{customer}"]},
        403: {"tenant": "{to}"},
        422: {"limits": ["stripe"]},
    }
    answers = {
        status: ask(site, "POST", body={**task, **options}) for status, options in refusals.items()
    }
    assert {status: answer[0] for status, answer in answers.items()} == {n: n for n in refusals}
    errors = {status: answer[1]["error"] for status, answer in answers.items()}
    assert errors == {
        400: "'customer:{customer}' of task shop.a needs the argument customer, which the call "
        "does not give",
        403: "you may not use tenant='anna': your tenants are shop, shop/*",
        422: "no limit 'stripe'; known are customer:* (task shop.a; wait_for_capacity=True would "
        "let it wait)",
    }
    site.driver.run(site.driver.commands.set_policy([]))


def test_without_a_token_nobody_submits_and_viewers_only_look(site):
    for token in ("", "shop", hash_token("shop-token")):
        for method, path in (("POST", TASKS), ("DELETE", f"{TASKS}/shop:1")):
            status, answer, headers = ask(site, method, path, {"name": "shop.a"}, token)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert (
                answer["error"]
                == "a known token is needed, in a header: Authorization: Bearer TOKEN"
            )
    assert ask(site, "GET", f"{TASKS}/x", token="shop")[0] == 401
    assert ask(site, "GET", f"{TASKS}/x", token="")[1]["task"]["state"] == "gone"
    basic = site.serve.ask("GET", f"{TASKS}/x", None, {"Authorization": "Basic YTpi"})
    assert json.loads(basic[1])["task"]["state"] == "gone", "that is for the proxy in front"
    assert ask(site, "PUT", body={})[1]["error"] == "PUT is not allowed: only POST is"


def test_a_submitter_over_its_rate_is_told_when_to_retry(site):
    task = {"name": "slow.a"}
    assert [ask(site, "POST", body=task, token="slow-token")[0] for _ in range(2)] == [201, 201]
    status, answer, headers = ask(site, "POST", body=task, token="slow-token")
    assert (status, answer["error"]) == (
        429,
        "too fast: you may submit 0.01 tasks a second, and 2 at once",
    )
    assert 90 <= int(headers["retry-after"]) <= 100
    assert ask(site, "POST", body={"name": "shop.a"})[0] == 201, "the others are as fast as before"


def test_simultaneous_submits_of_the_same_id_make_one_task(site):
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(ask, site, "POST", TASKS, {"name": "shop.a", "id": "shop:once"})
            for _ in range(16)
        ]
        assert sorted(one.result(PATIENCE_S)[0] for one in asked) == [200] * 15 + [201]
    assert ask(site, "DELETE", f"{TASKS}/shop:once")[0] == 200


def test_only_submitters_are_served_and_a_server_that_is_away_is_not_named(site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
        flags = ("--submitters", str(site.folder / "submitters.toml"), "--submit-only")
        with serving(url, "demo", *flags) as serve:
            other = SimpleNamespace(serve=serve)
            for method, path, body in (
                ("POST", TASKS, {"name": "shop.a"}),
                ("GET", f"{TASKS}/shop:1", None),
            ):
                status, answer, headers = ask(other, method, path, body)
                assert (status, headers["retry-after"], "127.0.0.1" in str(answer)) == (
                    503,
                    "1",
                    False,
                )
                assert "the cluster does not answer now" in answer["error"]
            for path in ("/", "/api/v1/nodes", "/metrics", "/operator", "/view/tasks"):
                assert serve.get(path)[0] == 404
            assert serve.get(f"{TASKS}/x")[0] == 401
            assert serve.get("/healthz")[0] == 503


def test_a_wrong_file_is_one_error_and_nothing_is_served(tmp_path):
    (tmp_path / "wrong").write_text('[shop]\nnames = ["*"]\n')
    done = start("--submitters", str(tmp_path / "wrong"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"error: submitter shop in {tmp_path / 'wrong'} has no token_sha256: it must be"
    )


# -- operators -------------------------------------------------------------------------------------


def log_in(site, browser, after):
    """Open a page as an operator."""
    browser.open(site.serve, after)
    browser.driver.find_element("name", "name").send_keys("alice")
    browser.driver.find_element("name", "password").send_keys(PASSWORD)
    browser.driver.find_element("id", "login").click()


def press(browser, id):
    """Press a button and wait for the page with what was done."""
    browser.driver.find_element("id", id).click()
    until(lambda: browser.text("#said"), "it was done", 60)
    return browser.text("#said")


@pages.needs_browser
def test_an_operator_logs_in_drains_cancels_requeues_and_logs_out(site, browser):
    driver = site.driver
    client = site.client
    browser.driver.delete_all_cookies()
    driver.node("n3", 2)
    driver.bring(TaskState.DEAD, "dead")
    driver.submit(encode_id(pages.HOSTILE), name="proj.odd")
    browser.open(site.serve, "/view/nodes")
    browser.until_text("#nodes", lambda text: "n3" in text)
    drain = browser.driver.find_element(
        "css selector", "a[href='/operator/drain?node=n3']"
    ).get_attribute("href")
    log_in(site, browser, drain.removeprefix(site.serve.url))
    browser.until_text("h1", lambda text: text == "drain n3")
    assert browser.text("#now") == "Now: n3 is up: 0 of 2 slots are held."
    assert "n3 gets no new tasks, also after it restarts" in browser.text("#will")
    browser.driver.find_element("name", "reason").send_keys("a new <b>disk</b>")
    browser.driver.find_element("name", "deadline").send_keys("10m")
    note = "deadline_s=600: a new <b>disk</b> (by alice over HTTP)"
    assert press(browser, "do") == f"n3 is draining ({note}): 0 of 2 slots are held"
    assert next(node.note for node in client.nodes() if node.name == "n3") == note
    browser.open(site.serve, "/operator/undrain?node=n3")
    assert press(browser, "do") == "n3 is up: 0 of 2 slots are held"
    browser.open(site.serve, "/view/tasks?id=dead")
    browser.driver.find_element("link text", "requeue").click()
    until(lambda: "its starts are counted from 0" in browser.text("#will"), "it asks", 60)
    assert press(browser, "do") == "task dead waits again"
    assert client.status("dead").why == "was dead, and is requeued by alice over HTTP"
    browser.open(site.serve, "/view/tasks?state=waiting")
    browser.driver.find_element("link text", pages.HOSTILE).click()
    until(lambda: browser.text("h1") == pages.HOSTILE, "the task is shown", 60)
    browser.driver.find_element("link text", "cancel").click()
    until(lambda: browser.text("h1") == f"cancel {pages.HOSTILE}", "it asks", 60)
    assert press(browser, "do") == f"task {pages.HOSTILE} is cancelled"
    assert client.status(pages.HOSTILE).why == "cancelled by alice over HTTP"
    assert browser.driver.execute_script("return window.hacked") is None
    browser.open(site.serve, "/operator")
    assert browser.text("h1") == "Operator alice"
    (cookie,) = browser.driver.get_cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
    browser.driver.find_element("id", "logout").click()
    until(lambda: browser.text("h1") == "Log in as an operator", "it is logged out", 60)
    assert browser.complaints() == []
    until(
        lambda: any(
            "operator alice from '127.0.0.1': drain 'n3': n3 is" in line
            for line in site.serve.process.lines
        )
    )


class Visitor:
    """A program that keeps its cookies and fills in forms, as a browser without JavaScript does."""

    def __init__(self, serve, **headers):
        self.serve = serve
        self.headers = headers
        self.cookies = dict[str, str]()

    def ask(self, method, path, **form):
        """Return the status, the body and the headers."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {**self.headers, **({"Cookie": cookie} if cookie else {})}
        status, body, found = self.serve.ask(
            method, path, Form(form) if method == "POST" else None, headers
        )
        for line in found.get_all("set-cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return status, body, found

    def mark(self, path):
        """Return the mark of the form on a page."""
        return re.findall(r'name="mark" value="(\w+)"', self.ask("GET", path)[1])[0]

    def log_in(self, password=PASSWORD, **form):
        """Fill in the form of the login."""
        return self.ask(
            "POST",
            "/operator/login",
            mark=self.mark("/operator"),
            name="alice",
            password=password,
            **form,
        )


def test_a_form_from_elsewhere_does_nothing(site):
    driver = site.driver
    visitor = Visitor(site.serve)
    other = Visitor(site.serve)
    driver.submit("stays", name="proj.a")
    assert visitor.ask("POST", "/operator/cancel", id="stays", state="waiting")[0] == 403
    assert visitor.log_in()[0] == 303
    for mark in ("", "0" * 64, other.mark("/operator")):
        status, body, _ = visitor.ask(
            "POST", "/operator/cancel", id="stays", state="waiting", mark=mark
        )
        assert (status, "Nothing was done" in body) == (403, True)
        assert visitor.ask("POST", "/operator/logout", mark=mark)[0] == 403
    assert (
        other.ask("POST", "/operator/login", name="alice", password=PASSWORD, mark="0" * 64)[0]
        == 403
    )
    assert site.client.status("stays").state == "waiting"
    mark = visitor.mark("/operator/cancel?id=stays")
    assert other.ask("POST", "/operator/cancel", id="stays", state="waiting", mark=mark)[0] == 403
    assert visitor.ask("GET", f"/operator/cancel?id=stays&mark={mark}")[0] == 400
    assert site.client.status("stays").state == "waiting"
    driver.start(driver.held("stays", driver.take()["stays"], slots=(1,)))
    status, body, _ = visitor.ask(
        "POST", "/operator/cancel", id="stays", state="waiting", mark=mark
    )
    assert "nothing was done: task stays was waiting, and is running now" in body
    assert not site.client.status("stays").cancel_asked
    headers = visitor.ask("GET", "/operator/cancel?id=stays")[2]
    assert "form-action 'self'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    visitor.ask("POST", "/operator/logout", mark=visitor.mark("/operator"))
    assert "Log in" in visitor.ask("GET", "/operator/cancel?id=stays")[1]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/operator/drain?node=none", 400, "no node &#39;none&#39;"),
        ("/operator/undrain?node=n1", 200, "There is nothing to undrain."),
        ("/operator/requeue?id=none", 200, "There is nothing to requeue."),
        ("/operator/drain?id=1", 400, "unknown parameter &#39;id&#39;: known are node"),
        ("/operator/erase?id=1", 404, "there is no /operator/erase"),
    ],
)
def test_a_refused_action_of_an_operator_is_explained(site, operator, path, status, text):
    found, body, _ = operator.ask("GET", path)
    assert (found, text in body) == (status, True), body


@pytest.fixture(scope="module")
def operator(site):
    visitor = Visitor(site.serve)
    visitor.log_in()
    return visitor


def test_a_wrong_field_of_a_drain_is_named(operator, site):
    mark = operator.mark("/operator/drain?node=n1")
    status, body, _ = operator.ask("POST", "/operator/drain", mark=mark, node="n1", deadline="soon")
    assert (
        status,
        "the time &#39;soon&#39; is not valid: it must be a number of seconds" in body,
    ) == (400, True)
    assert operator.ask("POST", "/operator/drain", mark=mark, node="x" * 300)[0] == 400
    assert not any(node.draining for node in site.client.nodes() if node.name == "n1")


def test_attempts_to_log_in_are_bounded_and_lead_to_no_other_site(site):
    hash = hashlib.scrypt(PASSWORD.encode(), salt=bytes(16), n=2, r=1, p=1, dklen=32).hex()
    (site.folder / "quick").write_text(f"alice:scrypt:2:1:1:{bytes(16).hex()}:{hash}\n")
    with serving(site.server.url, "demo", "--operators", str(site.folder / "quick")) as serve:
        visitor = Visitor(serve)
        for after, leads in (
            ("//evil.example", "/operator"),
            ("/operator/drain?node=n1", "/operator/drain?node=n1"),
        ):
            status, _, headers = visitor.log_in(after=after)
            assert (status, headers["location"]) == (303, leads)
            visitor.cookies.clear()
        for _ in range(LOGINS_PER_ADDRESS - 2):
            status, body, _ = visitor.log_in("wrong horse")
            assert (status, "The name or the password is wrong." in body) == (403, True)
        status, body, headers = visitor.log_in()
        assert (status, 0 < int(headers["retry-after"]) <= 60) == (429, True)
        assert "Too many attempts" in body
        assert serve.ask("POST", TASKS, {"name": "a"})[0] == 405, "no --submitters, no way in"


def test_a_proxy_names_the_operator_and_nobody_else_can(site):
    flags = ("--operator-header", "X-Forwarded-User", "--trusted-proxy", "127.0.0.1")
    with serving(site.server.url, "demo", *flags) as serve:
        bob = Visitor(serve, **{"X-Forwarded-User": "bob", "X-Forwarded-For": "10.9.9.9"})
        nobody = Visitor(serve)
        assert "Operator bob" in bob.ask("GET", "/operator")[1]
        assert (
            nobody.ask("GET", "/operator")[0]
            == nobody.ask("GET", "/operator/drain?node=n2")[0]
            == 403
        )
        assert Visitor(serve, **{"X-Forwarded-User": "b<b>"}).ask("GET", "/operator")[0] == 403
        mark = bob.mark("/operator/drain?node=n2")
        assert nobody.ask("POST", "/operator/drain", node="n2", mark=mark)[0] == 403
        assert bob.ask("POST", "/operator/drain", node="n2")[0] == 403, (
            "the proxy names bob for a form from elsewhere too"
        )
        assert "by bob over HTTP" in bob.ask("POST", "/operator/drain", node="n2", mark=mark)[1]
        until(
            lambda: any(
                "operator bob from '10.9.9.9': drain" in line for line in serve.process.lines
            )
        )
        assert "n2 is up" in bob.ask("POST", "/operator/undrain", node="n2", mark=mark)[1]
        assert nobody.ask("POST", "/operator/login", name="bob")[0] == 404


def test_a_cookie_is_for_https_only_if_the_page_came_over_https(site):
    for scheme, secure in (("https", True), ("http", False)):
        headers = Visitor(site.serve, **{"X-Forwarded-Proto": scheme}).ask("GET", "/operator")[2]
        line = headers["set-cookie"].lower()
        assert ("; secure" in line, "; httponly" in line, "samesite=strict" in line) == (
            secure,
            True,
            True,
        )


def test_the_state_is_sound_after_all_this(site):
    assert audit(site.driver.store) == []
