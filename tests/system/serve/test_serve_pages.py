"""The pages of a real `parsync serve`, in a real headless Chromium: each view, live updates,
outages, hostile names.
"""

import re
import shutil
import signal
import time
import urllib.error
import urllib.request

import pytest

from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.explanation import Choice, Ranked, Step
from parsync_redis.model.ids import encode_id, new_id
from parsync_redis.model.task import TaskState
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.servers import PRIMARIES
from tests.kit.serving import ASK_S, Form, serving, url_of
from tests.kit.waiting import PATIENCE_S, until
from tests.system.serve.test_serve import PROGRAM, set_up

pytestmark = [
    pytest.mark.serial,
    pytest.mark.one_server(0),
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
needs_browser = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="no chromedriver: .ci/run unpacks one"
)
HOSTILE_NAME = "<b>name</b>"
HOSTILE = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>"


class Browser:
    """A headless Chromium."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, serve, path):
        """Open a page."""
        self.driver.get(f"{serve.url}{path}")

    def text(self, where="body"):
        """Return what a person reads there; '' while the page is exchanged."""
        found = "const one = document.querySelector(arguments[0]); return one ? one.innerText : ''"
        return str(self.driver.execute_script(found, where))

    def count(self, where):
        """Return how many elements there are."""
        return int(
            self.driver.execute_script(
                "return document.querySelectorAll(arguments[0]).length", where
            )
        )

    def until_text(self, where, fact):
        """Wait until what a person reads is as it must be."""
        until(lambda: fact(self.text(where)), f"{where} is as it must be", 60)

    def complaints(self):
        """Return the errors of scripts, styles and requests since the last call."""
        return [
            line["message"]
            for line in self.driver.get_log("browser")
            if "favicon" not in line["message"]
        ]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(60)
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def driver(store):
    """Return the driver of a cluster with nodes, a task that is held, and tasks that wait."""
    driver = set_up(store)
    driver.node("n1", 4, {"gpu": 4}, {"gpu_model": "a100"})
    driver.node("n2", 100, p=1)
    driver.start(driver.held("held", driver.taken("held", {"slots": 2}), slots=(0, 1)))
    driver.bring(TaskState.DEAD, "dead")
    driver.submit("w1", {"resources": {"gpu": 9}}, name="proj.huge")
    return driver


@needs_browser
def test_each_view_shows_the_cluster_without_a_complaint(driver, browser):
    with (
        LocalStack(driver.store.keys.cluster, url_of(driver.store)) as stack,
        serving(url_of(driver.store), driver.store.keys.cluster) as serve,
    ):
        stack.scheduler()
        serve.until_json("/readyz", lambda found: found["ready"])
        browser.open(serve, "/")
        browser.complaints()
        browser.until_text("#well", lambda text: text == "Tasks can be placed.")
        browser.until_text("#reasons", lambda text: "no_fit" in text)
        assert "proj.huge slots=1 gpu=9" in browser.text("#kinds")
        browser.open(serve, "/view/nodes")
        assert browser.count("#nodes tbody tr") == 2
        assert (browser.count("#nodes i.held"), browser.count("#nodes i.free")) == (2, 2)
        assert "0/100" in browser.text("#nodes")
        assert "gpu=4/4" in browser.text("#nodes")
        browser.open(serve, "/view/schedulers")
        browser.until_text("#schedulers", lambda text: "scheduler-1" in text and "ms" in text)
        until(
            lambda: browser.count("#freshness td") == 2, "the ages of both partitions are shown", 60
        )
        browser.open(serve, "/view/tasks?state=running")
        assert browser.text("#tasks tbody td") == "held"
        browser.driver.find_element("link text", "held").click()
        until(lambda: browser.text("h1") == "held", "the task is shown", 60)
        assert browser.count("#times rect") >= 2
        browser.open(serve, "/view/tasks?id=w1")
        assert "lacks gpu=9" in browser.text("#classes")
        browser.open(serve, "/view/tasks?id=dead")
        assert "Lost attempts" in browser.text()
        assert browser.complaints() == []


@needs_browser
def test_pages_break_no_word_show_units_and_fit_a_narrow_window(driver, browser):
    id = new_id()
    driver.node("n3", 2, {"mem": 64 << 30}, p=1)
    driver.submit(id, {"resources": {"mem": "1TiB"}}, name="proj.render")
    driver.submit("wish", {"prefer": ["zone=a", "pack"]}, name="proj.render")
    ranked = (Ranked("not kept back", 0, 0, 2), Ranked("pack", 1, 0, 1, "25 to 50 % is left"))
    choice = Choice("s1", "n1", "quality", 0.2, (Step("free", 2),), 1.0, 1.0, 1, ("a",), ranked, 1)
    driver.run(driver.commands.note_choices([("held", choice.text)], driver.keys.shard_of("held")))
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        browser.open(serve, "/view/nodes")
        assert "mem=64GiB/64GiB" in browser.text("#nodes")
        browser.open(serve, "/")
        assert "mem=1TiB" in browser.text("#kinds")
        browser.open(serve, "/view/tasks")
        assert "mem=1TiB" in browser.text("#tasks")
        wide = "return document.documentElement.scrollWidth - innerWidth"
        lines = (
            "return [...document.querySelectorAll('#tasks td:nth-child(-n+3)')].map(one => {"
            "const text = document.createRange(); text.selectNodeContents(one);"
            "return [one.innerText, new Set([...text.getClientRects()].map(line => "
            "line.top)).size]})"
        )
        browser.driver.set_window_size(1100, 640)
        shown = browser.driver.execute_script(lines)
        assert [id, 1] in shown
        assert [text for text, count in shown if count > 1] == [], (
            "an id, a name or a state has two lines"
        )
        browser.driver.set_window_size(500, 800)
        pages = ("/", "/view/nodes", "/view/tasks", "/view/schedulers", "/view/tenants")
        tasks = (f"/view/tasks?id={id}", "/view/tasks?id=wish", "/view/tasks?id=held")
        for path in (*pages, *tasks):
            browser.open(serve, path)
            assert browser.driver.execute_script(wide) <= 0, path
        assert browser.text("#choice").splitlines()[0] == choice.lines()[0]
        browser.open(serve, "/view/tasks?id=wish")
        assert "as good as the best" in browser.text("#candidates")


@needs_browser
def test_a_page_follows_the_state_and_says_when_it_cannot(browser):
    with EmbeddedServer(PROGRAM) as server:
        store = Store.from_url(server.url, "demo")
        driver = set_up(store)
        with serving(server.url, "demo") as serve:
            serve.until_json("/healthz", lambda found: found["ok"])
            browser.open(serve, "/")
            browser.until_text("#waiting", lambda text: text == "0")
            began_s = time.monotonic()
            driver.submit("a")
            browser.until_text("#waiting", lambda text: text == "1")
            print(f"the page has changed after {time.monotonic() - began_s:.2f} s")
            browser.driver.execute_script(
                "pages.close(); window.EventSource = class { close() {} }; window.fetch = () => "
                "new Promise(() => {})"
            )
            driver.submit("gone", name=HOSTILE_NAME)
            driver.cancel("gone", HOSTILE)
            browser.until_text(
                "#events",
                lambda text: f"task gone ({HOSTILE_NAME}) was cancelled: {HOSTILE}" in text,
            )
            assert browser.driver.execute_script("return window.hacked") is None
            browser.open(serve, "/")
            browser.until_text("#events", lambda text: text.count("was cancelled") == 1)
            server.process.kill()
            browser.until_text("#stale", lambda text: "s old" in text)
            serve.process.send(signal.SIGKILL)
            browser.until_text("#gone", lambda text: "does not answer" in text)
            assert browser.text("#waiting") == "1", "the last survey stays"
        store.client.close()


@needs_browser
def test_a_page_asks_one_thing_at_a_time_and_takes_only_pages(driver, browser):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        browser.open(serve, "/")
        asked = browser.driver.execute_script(
            "pages.close(); window.EventSource = class { close() {} }; followed = false; "
            "window.asked = 0;"
            "window.fetch = () => { asked++; return new Promise((done) => { window.answer = done; "
            "}); };"
            "busy = false; update(); update(); update(); return asked"
        )
        assert asked == 1
        assert browser.count("#gone") == 0
        browser.driver.execute_script(
            "answer(new Response('Service Unavailable', { status: 503 }))"
        )
        browser.until_text("#gone", lambda text: "does not answer" in text)
        until(lambda: browser.driver.execute_script("return asked") == 2, "it asks again", 60)


@needs_browser
def test_hostile_texts_are_only_texts(driver, browser):
    driver.submit(encode_id(HOSTILE), name="proj.odd")
    driver.run(driver.commands.set_node(0, "n1", "drain", None, f"no deadline: {HOSTILE}"))
    kind = driver.line(encode_id(HOSTILE)).kind
    driver.run(driver.commands.set_reason([(kind, HOSTILE)]))
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        for path, where in (
            ("/", "#kinds"),
            ("/view/nodes", "#nodes"),
            ("/view/tasks?state=waiting", "#tasks"),
        ):
            browser.open(serve, path)
            assert HOSTILE in browser.text(where)
        browser.driver.find_element("link text", HOSTILE).click()
        until(lambda: browser.text("h1") == HOSTILE, "the task is shown", 60)
        assert browser.driver.execute_script("return window.hacked") is None
        for path in ("/view/tasks?id=%3Cscript%3E", "/view/tasks?id=" + "%3Cb%3E" * 90):
            browser.open(serve, path)
            assert browser.count("main script") + browser.count("main b") == 0


def followed(serve, path):
    """Yield a page, and again whenever it has changed."""
    request = urllib.request.Request(f"{serve.url}{path}", headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=ASK_S) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        page = []
        deadline_s = time.monotonic() + PATIENCE_S
        for line in answer:
            assert time.monotonic() < deadline_s, (
                f"not seen within {PATIENCE_S:g} s: a page of {path} that is wanted"
            )
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "data":
                page.append(text)
            elif not field and page:
                yield "\n".join(page)
                page = []


def without_age(page):
    """Return a page without the line that says how old it is, on a busy machine."""
    return re.sub(r'<p class="bad" id="stale">.*</p>', "", page)


def test_a_followed_page_is_sent_again_when_it_changes(driver):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        for path, change, text in (
            ("/view/nodes", lambda: driver.node("n7", 2, p=1), "n7"),
            (
                "/view/tasks?state=waiting",
                lambda: driver.submit(encode_id("new\rid: 7")),
                "new\nid: 7",
            ),
            ("/view/tasks?id=later", lambda: driver.submit("later", name="proj.late"), "proj.late"),
        ):
            pages = followed(serve, path)
            first = next(pages)
            assert without_age(first) == without_age(serve.get_exactly(path)[1].replace("\r", "\n"))
            assert text not in first
            change()
            assert any(text in page for page in pages), path
        with pytest.raises(urllib.error.HTTPError, match="400"):
            next(followed(serve, "/view/tasks?state=odd"))
        pages = followed(serve, "/view/nodes")
        next(pages)
        serve.process.send(signal.SIGTERM)
        assert list(pages) == []
        until(lambda: not serve.process.alive, "it has stopped")
        assert not [
            line for line in serve.process.lines if "timeout graceful shutdown exceeded" in line
        ]


@needs_browser
def test_the_stream_replaces_a_page_but_not_while_somebody_types(driver, browser):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        browser.open(serve, "/view/tasks?state=waiting")
        # only the stream is left
        browser.driver.execute_script("window.fetch = () => new Promise(() => {})")
        driver.submit("one")
        browser.until_text("#tasks", lambda text: "one" in text)
        browser.driver.execute_script("document.querySelector('input').focus()")
        driver.submit("two")
        until(
            lambda: browser.driver.execute_script("return newest.includes('two')"),
            "the page has come",
            60,
        )
        assert "two" not in browser.text("#tasks")
        browser.driver.execute_script("document.activeElement.blur()")
        browser.until_text("#tasks", lambda text: "two" in text)


HIDE = (
    "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)


@needs_browser
def test_a_tab_that_is_hidden_holds_no_stream_and_misses_no_event(driver, browser):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        browser.open(serve, "/")
        until(
            lambda: browser.driver.execute_script("return followed && stream.readyState === 1"),
            "it follows",
            60,
        )
        for hidden, shown in (("first", "second"), ("third", "fourth")):
            browser.driver.execute_script(f"window.streams = [pages, stream]; {HIDE}", True)
            assert browser.driver.execute_script("return streams.map(one => one.readyState)") == [
                2,
                2,
            ]
            assert browser.driver.execute_script("return [pages, stream]") == [None, None]
            driver.submit(hidden)
            driver.cancel(hidden, "while hidden")
            serve.until_json("/api/v1/events", lambda found, id=hidden: id in str(found))
            browser.driver.execute_script(HIDE, False)
            driver.submit(shown)
            driver.cancel(shown, "while shown")
            browser.until_text("#events", lambda text, id=shown: f"task {id} " in text)
        told = browser.text("#events")
        found = re.findall(r"task (first|second|third|fourth) \S+ was cancelled", told)
        assert found == ["fourth", "third", "second", "first"], told


@needs_browser
def test_events_that_the_page_has_shown_do_not_come_again(driver, browser):
    """The page may come before the stream is open."""
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/api/v1/events", lambda found: found["items"])
        browser.open(serve, "/")
        browser.until_text("#events", lambda text: "dead" in text)
        browser.driver.execute_script(
            "pages.close(); followed = true; heard = Date.now(); newest = '';"  # this page stays
            "const list = document.getElementById('events'), shown = list.dataset.after;"
            "list.replaceChildren(); list.dataset.after = ''; follow(); list.dataset.after = shown"
        )
        until(lambda: browser.driver.execute_script("return live"), "the stream is open", 60)
        driver.submit("later")
        driver.cancel("later", "seen")
        browser.until_text("#events", lambda text: "task later " in text)
        assert browser.count("#events li") == 1, browser.text("#events")


@needs_browser
def test_a_stream_that_was_refused_is_asked_for_again_later(driver, browser):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        browser.open(serve, "/")
        browser.driver.execute_script(
            "window.waits = []; const soon = setTimeout;"
            "window.setTimeout = (act, ms) => { waits.push(ms); return soon(act, 100); };"
            "history.replaceState(null, '', '/?odd=1'); watch();"
            "const list = document.getElementById('events'); window.after = list.dataset.after;"
            "list.dataset.after = 'x'.repeat(300); follow()"
        )
        until(
            lambda: browser.driver.execute_script("return waits.length >= 4"),
            "both are asked for again",
            60,
        )
        assert all(10_000 <= ms <= 15_000 for ms in browser.driver.execute_script("return waits"))
        browser.driver.execute_script(
            "history.replaceState(null, '', '/'); document.getElementById('events').dataset.after "
            "= after"
        )
        until(
            lambda: browser.driver.execute_script("return followed && stream.readyState === 1"),
            "it follows",
            60,
        )
        driver.submit("again")
        driver.cancel("again", "seen")
        browser.until_text("#events", lambda text: "task again " in text)
        browser.complaints()


def test_pages_work_without_javascript_and_their_policy_forbids_unneeded_sources(driver):
    with serving(url_of(driver.store), driver.store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        for path, text in (
            ("/", "proj.huge slots=1 gpu=9"),
            ("/view/nodes", "gpu_model:a100"),
            ("/view/schedulers", "no schedulers: parsync scheduler"),
            ("/view/tenants", "no limits: a policy has them, or an app declares them"),
            ("/view/tasks", "id=held"),
            ("/view/tasks?id=held", "running"),
        ):
            status, body, headers = serve.get_exactly(path)
            assert (status, text in body) == (200, True), path
            assert "'unsafe-inline'" not in headers["content-security-policy"]
            assert "style=" not in body
            assert ('method="post"' in body, "/operator" in body) == (False, False), (
                "there are no operators"
            )
        assert serve.get_exactly("/view/tasks?id=none")[0] == 200
        status, body, _ = serve.get_exactly("/view/tasks?id=" + "x" * 300)
        assert (
            status,
            "parameter id has 300 characters: there may be 255" in body,
            "<main>" in body,
        ) == (
            400,
            True,
            True,
        )
        assert serve.get_exactly("/static/../app.py")[0] == 404
        for method, path in (
            ("GET", "/operator"),
            ("POST", "/operator/drain"),
            ("POST", "/operator/login"),
        ):
            assert serve.ask(method, path, Form(node="n1"))[0] == 404
        assert (
            serve.ask("DELETE", "/api/v1/tasks/held")[0]
            == serve.ask("POST", "/api/v1/tasks", {})[0]
            == 405
        )
