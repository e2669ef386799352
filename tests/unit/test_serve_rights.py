"""The writing half of `parsync serve`, without a server: rights, rates, files of submitters and
operators, sessions.
"""

import hashlib
import json
import re

import pytest
from starlette.requests import Request
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput
from parsync_redis.model.options import CLIENT_NAMES, NAMES
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.serve.body import OVER_HTTP, make_tasks, parse_tasks
from parsync_redis.serve.gate import MOST_SESSIONS, SESSION_S, OperatorAuth, Sessions, read_proxies
from parsync_redis.serve.passwords import load_operators
from parsync_redis.serve.rate import MOST_ADDRESSES, Attempts, RateBucket
from parsync_redis.serve.rights import FIELD_RULES, Forbidden, Rights
from parsync_redis.serve.submit import own_task
from parsync_redis.serve.submitters import KnownSubmitter, Submitters, hash_token, load_submitters
from parsync_redis.serve.write_access import Flags
from parsync_redis.submission import ITEM_KEYS
from tests.kit.documents import Document, tables

FREE_OPTIONS = {
    *("strategy", "prefer", "wait_for_capacity", "avoid_last", "interruptible", "expires"),
}
"""The options of a task that every submitter may use freely. Rights limits all other options."""

HASH = "0" * 64
LEAST = {"token_sha256": [HASH], "names": ["shop.*"]}
WIDE = {
    **LEAST,
    "slots": 2,
    "resources": {"mem": "4GiB", "gpu.mem": "8GiB", "gpu": 0.5},
    "require": ["zone", "model=a100", "model=h100"],
    "tolerate": ["spot"],
    "apart": ["web*"],
    "queues": ["fast", "q/1"],
    "tenants": ["research", "research/*"],
    "limits": ["stripe", "customer:*"],
    "priority": 5,
    "max_starts": 4,
}


def submitter(**fields):
    rights = Rights(**fields)
    return KnownSubmitter("shop", rights, RateBucket(rights.rate, rights.burst))


def made(fields, **task):
    return make_tasks(
        submitter(**fields), [{"name": "shop.mail", **task}], False, lambda: "shop:new"
    )[1][0]


@pytest.mark.parametrize(
    "task",
    [
        {
            "slots": 2,
            "priority": 5,
            "max_starts": 4,
            "strategy": "latency",
            "prefer": ["near:shop:1", {"zone": {"a": 0}}, "pack"],
            "wait_for_capacity": True,
        },
        {"resources": {"mem": "4GiB", "gpu.mem": 2**33, "gpu": "500m"}},
        {"require": {"zone": {"not": ["a"]}, "model": ["a100", "h100"]}, "tolerate": ["spot"]},
        {"queue": "q/1", "apart": "web_1", "near": "shop:1"},
        {"tenant": "research/anna", "limits": {"stripe": 2, "customer:7": 1}},
        {
            "countdown": 5,
            "expires": 60,
            "time_limit": 9,
            "soft_time_limit": 8,
            "ignore_result": True,
        },
    ],
)
def test_a_submitter_may_ask_for_what_its_table_has(task):
    assert made(WIDE, **task).id.startswith("shop:")


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ({"name": "shopper.x"}, "you may not submit 'shopper.x': your task names are shop.*"),
        ({"slots": 3}, "slots=3 is too high: you may ask for 2 at most"),
        ({"priority": 6}, "priority=6 is too high: you may ask for 5 at most"),
        ({"max_starts": 5}, "max_starts=5 is too high: you may ask for 4 at most"),
        (
            {"resources": {"mem": "5GiB"}},
            "resource mem=5GiB is too much: you may ask for 4GiB at most",
        ),
        (
            {"resources": {"gpu": 0.501}},
            "resource gpu=0.501 is too much: you may ask for 0.5 at most",
        ),
        (
            {"resources": {"cpu": 1}},
            "you may not ask for resource cpu: your resources are mem, gpu.mem, gpu",
        ),
        (
            {"require": {"model": ["a100", "t4"]}},
            "you may not require model:a100|t4: your requirements are zone, model=",
        ),
        ({"require": {"model": {"exists": True}}}, "you may not require model:*"),
        ({"require": {"model": {"not": "a100"}}}, "you may not require model:!a100"),
        ({"require": {"rack": "r1"}}, "you may not require rack:r1"),
        (
            {"tolerate": ["spot", "dear"]},
            "you may not use tolerate='dear': your taints to tolerate are spot",
        ),
        (
            {"prefer": ["pack", "near:other:1"]},
            "prefer 'near:other:1': you may name only your own tasks, whose ids begin with 'shop:'",
        ),
        (
            {"tenant": "sales"},
            "you may not use tenant='sales': your tenants are research, research/*",
        ),
        (
            {"limits": ["customer:{id}", "x{id}"], "kwargs": {"id": 7}},
            "you may not use limit 'x7': your limits are stripe, customer:*",
        ),
        ({"queue": "slow"}, "you may not use queue='slow': your queues are fast, q/1"),
        ({"apart": "db"}, "you may not use apart='db': your words of apart are web*"),
        (
            {"near": "other:1"},
            "near='other:1': you may name only your own tasks, whose ids begin with 'shop:'",
        ),
    ],
)
def test_a_refusal_names_what_this_submitter_may_use(task, error):
    with pytest.raises(Forbidden) as caught:
        made(WIDE, **task)
    assert error in str(caught.value)


@pytest.mark.parametrize("option", sorted({*CLIENT_NAMES} - FREE_OPTIONS - {"slots", "max_starts"}))
def test_a_submitter_with_the_least_rights_may_use_no_limited_option(option):
    value = {
        "resources": {"mem": 1},
        "require": {"zone": "a"},
        "tolerate": ["spot"],
        "apart": "w",
        "near": "a",
        "tenant": "a",
        "limits": ["a"],
    }
    with pytest.raises(Forbidden, match=r"you (have no|may)"):
        made(LEAST, **{option: value.get(option, 1)})


def test_each_option_has_a_limit_or_is_free_and_no_other_can_come_over_http():
    limited = {
        "slots",
        "resources",
        "require",
        "tolerate",
        "apart",
        "near",
        "priority",
        "max_starts",
        "tenant",
        "limits",
    }
    assert set(NAMES) == limited | FREE_OPTIONS, (
        "a new option of a task: judge it in rights.py, or say here that it is free"
    )
    assert set(FIELD_RULES) == set(Rights.model_fields)
    assert set(OVER_HTTP) <= set(ITEM_KEYS) | {"name", "args", "kwargs"}
    for option in set(ITEM_KEYS) - set(OVER_HTTP):
        with pytest.raises(InvalidInput, match=f"unknown option '{option}': known are name, args"):
            made(WIDE, **{option: "x"})


@pytest.mark.parametrize(
    "id", ["1", "shop", "shop:", "shopx:1", 7, "shop:" + "x" * 251, "shop:\ud800", "shop:a\n"]
)
def test_an_id_begins_with_the_name_of_its_submitter(id):
    with pytest.raises(InvalidInput, match=r"task id .* is not valid"):
        made(LEAST, id=id)


def test_of_several_tasks_the_wrong_one_is_numbered():
    tasks = [{"name": "shop.a"}, {"name": "x"}, {"name": "shop.b", "slots": 0}]
    with pytest.raises(InvalidInput, match="task 2: slots=0 is not valid"):
        make_tasks(submitter(**LEAST), tasks, True, lambda: "shop:new")
    with pytest.raises(Forbidden, match="task 1: you may not submit 'x'"):
        make_tasks(submitter(**LEAST), tasks[:2], True, lambda: "shop:new")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", "the body is not JSON"),
        (b"[NaN]", "NaN is not a number of JSON"),
        (b"[" * 9**5, "nested too deep"),
    ],
)
def test_a_body_that_is_no_json_is_refused(body, error):
    with pytest.raises(InvalidInput, match=error):
        parse_tasks(body)
    assert parse_tasks(json.dumps([{}, {}]).encode()) == ([{}, {}], True)


def test_a_submitter_is_told_nothing_of_other_tasks_and_nodes():
    waits = TaskStatus(
        "shop:1", TaskState.WAITING, why="only node n1 fits: it is full until task other:1 ends"
    )
    assert (
        own_task(waits)["waits_for"],
        "n1" in str(own_task(waits)),
        "other" in str(own_task(waits)),
    ) == (
        "full",
        False,
        False,
    )
    assert (
        own_task(TaskStatus("shop:1", TaskState.FAILED, why="ValueError"))["outcome"]
        == "ValueError"
    )


def test_the_page_has_every_field_of_a_submitter_and_every_option_and_its_example_loads(tmp_path):
    page = Document("docs/serve.md")
    rows = [re.findall(r"`(\w+) = ", row[0]) for row in tables(page.text)]
    assert [field for fields in rows for field in fields] == list(FIELD_RULES)
    for option in OVER_HTTP:
        assert f"`{option}`" in page.text, option
    (block,) = page.blocks("toml")
    load_submitters(write(tmp_path, block.text))


# -- rates -----------------------------------------------------------------------------------------


def test_a_bucket_lets_the_burst_through_and_then_the_rate():
    bucket = RateBucket(2.0, 3)
    assert bucket.take(3, 100.0) == 0
    assert bucket.take(1, 100.0) == 0.5
    assert bucket.take(1, 100.4) == pytest.approx(0.1)
    assert bucket.take(1, 100.5) == 0
    assert bucket.take(3, 1000.0) == 0, "no more than the burst is saved"
    assert bucket.take(1, 1000.0) == 0.5


def test_attempts_are_bounded_for_each_address_and_for_all():
    attempts = Attempts(2, 5)
    assert [attempts.take("a", 0.0) for _ in range(3)] == [0, 0, 30]
    assert [attempts.take(name, 0.0) > 0 for name in "bbcdd"] == [False, False, False, True, True]
    for at in range(MOST_ADDRESSES + 1):
        attempts.take(str(at), 0.0)
    assert len(attempts._by_address) == MOST_ADDRESSES


# -- files -----------------------------------------------------------------------------------------


def write(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    return path


def test_a_token_finds_its_submitter(tmp_path):
    lines = CliRunner().invoke(app, ["serve-token"]).stdout.splitlines()
    token = lines[0].removeprefix("token: ")
    found = load_submitters(
        write(tmp_path, f'[shop]\n{lines[1]}\nnames = ["shop.*"]\nburst = 1000\n')
    )
    one = found.find(token)
    assert one is not None
    assert (one.name, one.rights.most_tasks, one.rights.slots, one.rights.priority) == (
        "shop",
        500,
        1,
        0,
    )
    assert (
        found.find("")
        is found.find(token[:-1])
        is found.find(hash_token(token))
        is found.find("\ud800")
        is None
    )
    assert Submitters({}).find(token) is None


HASHED = f'[a]\ntoken_sha256=["{HASH}"]\n'
NAMED = f'{HASHED}names=["*"]\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "names nobody: it must have a table [NAME] for each submitter"),
        ("[", "is not TOML: "),
        ("a = 1", "a in FILE is not a table: a submitter is a table [a]"),
        (
            '["a:b"]',
            "submitter name 'a:b' in FILE is not valid: it must be 1 to 64 letters, digits or _.-",
        ),
        (
            "[a]",
            "submitter a in FILE has no token_sha256: it must be a list of texts of 64 hex digits",
        ),
        (HASHED, "submitter a in FILE has no names: it must be a list of patterns"),
        (
            '[a]\ntoken_sha256=["x"]\nnames=["*"]',
            "field token_sha256=['x'] of submitter a in FILE is not valid",
        ),
        (
            f"{NAMED}color=1",
            "unknown field 'color' of submitter a in FILE: known are token_sha256, names, slots",
        ),
        (
            f"{NAMED}rate=-1",
            "field rate=-1 of submitter a in FILE is not valid: it must be a number of tasks a "
            "second",
        ),
        (f"{NAMED}rate=inf", "field rate=inf of submitter a"),
        (
            f"{NAMED}priority=true",
            "field priority=True of submitter a in FILE is not valid: it must be a whole number",
        ),
        (
            f'{NAMED}resources={{mem="much"}}',
            "field resources={'mem': 'much'} of submitter a in FILE is not valid",
        ),
        (f"{HASHED}names=[]", "field names=[] of submitter a"),
        (
            f'{NAMED}tolerate="spot"',
            "field tolerate='spot' of submitter a in FILE is not valid: it must be a list of",
        ),
        (NAMED + NAMED.replace("[a]", "[b]"), "submitters a and b in FILE have one token"),
    ],
)
def test_a_wrong_file_of_submitters_is_one_sentence(tmp_path, text, error):
    path = write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        load_submitters(path)
    assert error.replace("FILE", str(path)) in str(caught.value)


def test_an_operator_is_known_by_the_password(tmp_path):
    line = CliRunner().invoke(app, ["serve-password", "alice"], input="correct horse\n").stdout
    found = load_operators(write(tmp_path, f"# operators\n\n{line}"))
    assert list(found) == ["alice"]
    assert (found["alice"].fits("correct horse"), found["alice"].fits("correct hors")) == (
        True,
        False,
    )
    for name, password, error in (
        ("a b", "12345678", "operator name 'a b'"),
        ("bob", "1234567", "has 7 characters"),
    ):
        done = CliRunner().invoke(app, ["serve-password", name], input=f"{password}\n")
        assert (done.exit_code, error in done.stderr) == (2, True)


SALT = "00" * 16
KEY = hashlib.scrypt(b"x", salt=bytes(16), n=2, r=1, p=1, dklen=32).hex()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# nobody", "names nobody"),
        (
            "alice:secret",
            "line 1 of operators file FILE is not valid: it must be a line that `parsync "
            "serve password`",
        ),
        (f"a:scrypt:3:1:1:{SALT}:{KEY}", "line 1 of"),
        (f"a:scrypt:4194304:8:1:{SALT}:{KEY}", "line 1 of"),
        (
            f"a:scrypt:2:1:1:{SALT}:{KEY}\n\na:scrypt:2:1:1:{SALT}:{KEY}",
            "line 3 of operators file FILE has operator a a",
        ),
    ],
)
def test_a_wrong_file_of_operators_is_one_sentence_without_a_secret(tmp_path, text, error):
    path = write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        load_operators(path)
    assert error.replace("FILE", str(path)) in str(caught.value)
    assert "secret" not in str(caught.value).replace("serve", "")
    assert KEY not in str(caught.value)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_operators(tmp_path / "none")


# -- sessions and flags ----------------------------------------------------------------------------


def test_a_session_ends_and_a_mark_is_for_one_key():
    sessions = Sessions()
    token = sessions.open("alice", 10.0)
    assert sessions.user(token, 10.0 + SESSION_S - 1) == "alice"
    assert sessions.user(token, 10.0 + SESSION_S) is None
    assert sessions.user("", 0.0) is None
    token = sessions.open("alice", 0.0)
    sessions.close(token)
    assert sessions.user(token, 0.0) is None
    first = sessions.open("alice", 0.0)
    for _ in range(MOST_SESSIONS):
        sessions.open("bob", 0.0)
    assert sessions.user(first, 0.0) is None
    mark = sessions.mark(token)
    assert (sessions.is_mark(token, mark), sessions.is_mark(first, mark)) == (True, False)
    assert not sessions.is_mark(token, "\ud800")
    assert not Sessions().is_mark(token, mark), "another process has another key"


_FORWARDED = [(b"x-forwarded-for", b"3.3.3.3"), (b"x-forwarded-for", b"1.1.1.1, 2.2.2.2")]
"""The first is what a client sends, the last what the proxy adds."""


@pytest.mark.parametrize(
    ("peer", "names", "operator"),
    [
        ("10.1.2.3", ["bob"], "bob"),
        ("::ffff:10.1.2.3", ["bob@example.com"], "bob@example.com"),
        ("fd00::1", ["bob"], "bob"),
        ("10.2.0.1", ["bob"], None),
        ("fd00::2", ["bob"], None),
        ("", ["bob"], None),
        ("10.1.2.3", [], None),
        ("10.1.2.3", ["eve", "bob"], None),
        ("10.1.2.3", ["b<b>"], None),
    ],
)
def test_only_a_trusted_proxy_names_an_operator(peer, names, operator):
    gate = OperatorAuth("demo", {}, "X-User", read_proxies(["10.1.0.0/16", "fd00::1"]))
    headers = [*[(b"x-user", name.encode()) for name in names], *_FORWARDED]
    request = Request({"type": "http", "client": (peer, 1) if peer else None, "headers": headers})
    found = gate.operator(request)
    assert (found and found.name) == operator
    assert gate.address(request) == ("2.2.2.2" if operator or peer == "10.1.2.3" else peer)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"submit_only": True}, "--submit-only leaves nothing but what --submitters opens"),
        (
            {"submit_only": True, "submitters": "f", "operators": "g"},
            "--submit-only shows no pages",
        ),
        (
            {"operators": "f", "operator_header": "X-User"},
            "are two ways to tell operators: give one",
        ),
        ({"operator_header": "X-User"}, "--operator-header needs --trusted-proxy"),
        ({"trusted_proxy": ["::1"]}, "--trusted-proxy is for operators"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, error):
    with pytest.raises(InvalidInput, match=error):
        Flags(**flags).check()
    with pytest.raises(InvalidInput, match="--trusted-proxy is not valid: 'proxy' does not appear"):
        read_proxies(["proxy"])
