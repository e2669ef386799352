"""docs/api.md is made of what the code says, and every public name has an example that runs."""

import ast
import doctest
import inspect
import os
import re
import sys
from functools import cache

import pytest

from parsync_redis import ParsyncClient, Settings
from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import REPO
from tests.kit.api_reference import INTERNAL, entries, examples, find, page, parameters
from tests.kit.documents import WRITE, Document
from tests.kit.made_pages import cli_part, http_part, made
from tests.kit.offenders import none_wrong

ENTRIES = list(entries())


def test_the_api_page_matches_the_docstrings_and_examples():
    path = REPO / "docs/api.md"
    if WRITE:
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), (
        "PARSYNC_TEST_WRITE_DOCS=1 pytest tests/docs/test_api.py writes it"
    )


@pytest.mark.parametrize(("name", "part"), [("docs/cli.md", cli_part), ("docs/http.md", http_part)])
def test_the_generated_part_of_a_page_matches_the_code(name, part):
    text = made(name, part())
    if WRITE:
        (REPO / name).write_text(text, encoding="utf-8")
    assert Document(name).text == text, (
        "PARSYNC_TEST_WRITE_DOCS=1 pytest tests/docs/test_api.py writes it"
    )


def test_each_path_is_described_by_a_whole_sentence():
    """A summary that goes on in the next line would be cut off in the document."""
    rows = http_part().splitlines()[2:]
    none_wrong(
        "the first line of a docstring is a sentence",
        [row for row in rows if not row.endswith(". |")],
    )


def test_there_is_an_example_for_each_public_name_and_no_other():
    assert set(examples()) == {"proj", *ENTRIES}, "tests/docs/examples.md"


def test_a_name_that_is_left_out_exists():
    for name, members in INTERNAL.items():
        for member in members.split():
            assert find(f"{name}.{member}"), f"{name}.{member}: take it out of INTERNAL"


# -- parameters ------------------------------------------------------------------------------------


def given(entry):
    """Return the parameters that calls in the examples give to a method or class; '**' for those
    that only **kwargs takes.
    """
    found = set()
    known = parameters(entry)
    names = [one.name for one in known if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    for call in calls_in_examples():
        if getattr(call.func, "attr", getattr(call.func, "id", "")) == entry.rpartition(".")[2]:
            found |= set(names[: len(call.args)])
            found |= {word.arg if word.arg in names else "**" for word in call.keywords}
    return found


@cache
def calls_in_examples():
    """Return every call in the examples."""
    parser = doctest.DocTestParser()
    sources = [
        example.source for text in examples().values() for example in parser.get_examples(text)
    ]
    return [
        node for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
    ]


def test_each_parameter_is_documented_and_in_an_example():
    assert ENTRIES
    wrong = [f"{entry}: {missing}" for entry in ENTRIES for missing in missing_of(entry)]
    none_wrong("each parameter is documented and in an example", wrong)


def missing_of(entry):
    """Say what the docstring and the examples of an entry lack."""
    text = inspect.getdoc(find(entry)) or ""
    if not text:
        yield "it has no docstring"
    calls = given(entry)
    for parameter in parameters(entry):
        if ("**" if parameter.kind is parameter.VAR_KEYWORD else parameter.name) not in calls:
            yield f"no example gives {parameter.name}"
        if not re.search(rf"\b{parameter.name}\b", text):
            yield f"the docstring does not name {parameter.name}"


def test_each_setting_is_in_an_example():
    text = examples()["Settings"]
    missing = [
        setting for setting in Settings.model_fields if not re.search(rf"\b{setting}=", text)
    ]
    none_wrong("each setting is in an example", missing)


# -- the examples run ------------------------------------------------------------------------------


def ready(url):
    with ParsyncClient.from_url(url, cluster="demo") as client:
        client.wait([client.submit("proj.render", [0])], 180)


@pytest.mark.serial
def test_the_examples_run(tmp_path, monkeypatch):
    env = {"PYTHONPATH": os.pathsep.join([str(REPO), str(tmp_path)])}
    with (
        LocalStack(
            "demo", cwd=tmp_path, sink=lambda name, line: print(name, line), env=env
        ) as stack,
        EmbeddedServer() as other,
    ):
        hosts = {"127.0.0.1:6379": stack.server(), "127.0.0.1:6380": other.url}
        hosts = {host: url.split("//")[1].split("/")[0] for host, url in hosts.items()}

        def here(text):
            return re.sub(r"127\.0\.0\.1:63(79|80)", lambda found: hosts[found[0]], text)

        (module,) = re.findall(r"```python\n(.*?)```", examples()["proj"], re.DOTALL)
        (tmp_path / "proj.py").write_text(here(module))
        stack.scheduler()
        stack.worker("proj", "n1", 2, 9.5, {"zone": "a"}, {"mem": "4GiB"})
        ready(stack.url)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "proj", raising=False)
        names: dict[str, object] = {}
        for entry, text in examples().items():
            if entry != "proj":
                names = run(entry, here(text), names)


def run(entry, text, names):
    """Run the example of an entry with these names; return the names that exist afterwards."""
    code = re.sub(r"^```\w*$", "", text, flags=re.MULTILINE)
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(code, names, entry, "tests/docs/examples.md", 0)
    assert test.examples, f"{entry} has no example"
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
        test, out=said.append, clear_globs=False
    )
    assert not result.failed, "".join(said)
    return test.globs
