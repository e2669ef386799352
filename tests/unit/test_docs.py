"""The pages agree with the code: keys, commands, flags, settings, files, identifiers."""

import re
from functools import cache

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.cli.app import COMMANDS, load
from parsync_redis.integration.worker_options import WORKER_OPTIONS
from parsync_redis.model.options import NAMES
from parsync_redis.settings import Settings
from parsync_redis.store import calls
from parsync_redis.store.cluster import DEFAULT_GAP_S, DEFAULT_LEASE_S, DEFAULT_PARTITIONS
from parsync_redis.store.scripts import lua_folder
from parsync_redis.wire.keys import CLUSTER_KINDS, DEFAULT_SHARDS, PARTITION_KINDS, QUEUE_KINDS, Keys
from tests.documents import ROOT, Document, tables

DOCUMENTS = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
SCRIPTS = {script.verb: script for script in calls.ALL}


# -- keys ----------------------------------------------------------------------------------------------------------


def key_rows():
    return [row for row in tables(Document("docs/keys.md").text) if row[0].startswith("`parsync:{")]


def test_the_page_of_keys_lists_every_key_and_no_other():
    keys = Keys("C")
    right = {keys.queue(kind).replace("q0", "qN") for kind in QUEUE_KINDS}
    right |= {keys.shared(kind) for kind in CLUSTER_KINDS}
    right |= {keys.partition(7, kind).replace("p7", "pN") for kind in PARTITION_KINDS}
    right |= {
        keys.extra("ID").replace("q0", "qN"),
        keys.pending("KIND").replace("q0", "qN"),
        keys.inbox(7, "NODE").replace("p7", "pN"),
        keys.stats("SCHEDULER"),
    }
    assert sorted(row[0].strip("`") for row in key_rows()) == sorted(right)
    assert f"`{keys.tick.removesuffix('0')}DB`" in Document("docs/keys.md").text
    for channel in (keys.wakes(0).replace("q0", "qN"), keys.frees(0).replace("p0", "pN")):
        assert f"`{channel.replace('@0', '@DB')}:SCHEDULER`" in Document("docs/keys.md").text


@pytest.mark.parametrize("row", key_rows(), ids=lambda row: row[0])
def test_each_writer_of_a_key_takes_that_key(row):
    key, _, _, writers, _ = row
    found = re.fullmatch(r"`parsync:\{C(:qN|:pN|)\}:(\w+)(?::\w+)?`", key)
    assert found, key
    family, kind = found.groups()
    mates = {"meta": {":qN": {"kinds", "ended", "apps"}, ":pN": {"free"}}}.get(kind, {}).get(
        family
    )  # meta is in two families
    keys = {verb: {name.strip("*:") for name in (*script.keys, *script.also)} for verb, script in SCRIPTS.items()}
    may = {verb for verb, names in keys.items() if kind in names and (mates is None or mates & names)}
    may |= {"align"} if (kind, family) == ("meta", ":qN") else set()  # which takes no other key
    for writer in writers.split(", "):
        assert writer in may, f"{writer} does not take {key}"
        text = (lua_folder() / f"{writer}.lua").read_text()
        assert re.search(rf"\b{kind}\b|\bkey\b|KEYS\[|prefix", text), f"{writer} does nothing with {key}"


# -- commands, flags and settings ----------------------------------------------------------------------------------


def command_lines(words):
    """Find the commands that begin with these words, in fenced or indented blocks and in `code`."""
    found = []
    for name in DOCUMENTS:
        document = Document(name)
        lines = [line.removeprefix("$ ") for block in document.blocks() for line in block.text.splitlines()]
        lines += re.findall(r"^    (\S.*)$", document.text, re.MULTILINE)
        lines += re.findall(r"`([^`\n]+)`", document.text)
        found += [
            pytest.param(line.partition("#")[0].strip(), id=f"{name}: {line[:60]}")
            for line in dict.fromkeys(lines)
            if re.match(rf"{words}\b", line)
        ]
    return found


@cache
def help_of(*command):
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("line", command_lines("parsync [a-z]+"))
def test_each_parsync_command_exists_with_its_flags(line):
    command, *words = line.split()[1:]
    below = [word for word in words[:1] if word in getattr(load(command), "commands", ())]
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", help_of(command, *below)), word


def test_every_command_has_a_row_of_what_it_is_for():
    rows = [row[0] for row in tables(Document("docs/cli.md").text)]
    for command in (name for commands in COMMANDS.values() for name in commands):
        assert any(re.match(rf"`parsync {command}\b", row) for row in rows), command


def test_pages_name_the_flags_of_a_worker_and_no_other():
    there = {names[0] for names, _ in WORKER_OPTIONS}
    for name in DOCUMENTS:
        assert set(re.findall(r"--parsync(?:-[a-z]+)*\b(?!\.)", Document(name).text)) <= there, name
    assert set(re.findall(r"--parsync(?:-[a-z]+)*\b", Document("docs/options.md").text)) == there


def test_the_page_of_options_has_the_settings_of_the_code():
    fields = Settings.model_fields
    shared = {
        "partitions": DEFAULT_PARTITIONS,
        "shards": DEFAULT_SHARDS,
        "gap_s": DEFAULT_GAP_S,
        "lease_s": DEFAULT_LEASE_S,
    }
    rows = {
        row[2].strip("`"): row for row in tables(Document("docs/options.md").text) if row[1].startswith("`PARSYNC_")
    }
    assert list(rows) == list(fields)
    for name, (flag, variable, _, default, _) in rows.items():
        if flag != "of nodes only":
            assert flag.strip("`") == f"--{name.replace('_', '-')}"
            assert flag.strip("`") in help_of("scheduler")
        assert variable.strip("`") == f"PARSYNC_{name.upper()}"
        right = shared.get(name, fields[name].default)
        assert default.strip("`") == (f"{right:g}" if isinstance(right, (int, float)) else str(right))


def test_the_page_of_options_has_the_task_options_of_the_code():
    rows = [row[0].strip("`") for row in tables(Document("docs/options.md").text) if row[0].strip("`") in NAMES]
    missing = [name for name in NAMES if name not in rows]
    assert rows == list(NAMES), (
        f"the table of options in docs/options.md lacks {missing or 'none, but has another order'}"
    )


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", command_lines("make [a-z]+"))
def test_each_make_target_exists(line):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ((?:[a-z-]+ ?)*)", line)[0].split():
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_link_leads_to_a_file(name):
    document = Document(name)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", document.text):
        assert (document.path.parent / link).exists(), link


FOLDERS = ("parsync_redis", "lua", "tests", "docs", "examples", "deploy")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*") if path.is_file()]
STARTS = (ROOT, ROOT / "parsync_redis", ROOT / "lua")
"""Where the paths that pages name begin."""

NOT_OURS = {"parsync.toml", "qN", "no_ack", "global_keyprefix", "XDG_RUNTIME_DIR", "ssl_certfile", "ssl_keyfile"}
"""Files of the user, names in examples, names of kombu, redis-py and the system."""


def code_spans(name):
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", Document(name).text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_file_and_folder_that_a_page_names_exists(name):
    for span in code_spans(name):
        for path in re.findall(r"(?<![\w/.*-])[\w./-]*\w\.(?:py|lua|sh|toml|yml|md)\b", span):
            at_home = any((start / path).is_file() for start in STARTS)
            alone = "/" not in path and any(file.name == path for file in FILES)
            assert at_home or alone or path in NOT_OURS, f"{path} is gone or has moved"
        for folder in re.findall(rf"^(?:{'|'.join(FOLDERS)})/[\w/-]*$", span):
            assert (ROOT / folder).is_dir() or (ROOT / folder).is_file(), f"{folder} is gone or has moved"


@cache
def words_of_the_code():
    sources = [path for path in FILES if path.suffix in (".py", ".lua", ".sh", ".service", ".yaml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.name != "test_docs.py")
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_identifier_that_a_page_names_is_in_the_code(name):
    pattern = r"(?<![\w/])(?:[A-Za-z]\w*_\w+|[A-Za-z]+[a-z][A-Z]\w*)\b(?!/|\.(?:py|lua|md)\b)"
    named = {word for span in code_spans(name) for word in re.findall(pattern, span)}
    gone = {word for word in named - words_of_the_code() - NOT_OURS if not word.startswith("PARSYNC_")}
    assert not gone, "nothing in the code has these names"  # PARSYNC_ variables are compared with the settings above


@pytest.mark.parametrize("path", sorted((ROOT / "docs/decisions").glob("*.md")), ids=lambda path: path.name)
def test_a_decision_record_has_its_parts_in_order(path):
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]}: ")
    parts = [text.find(f"**{part}.**") for part in ("Context", "Cost", "What would change our mind")]
    assert -1 not in parts
    assert parts == sorted(parts)


def test_the_failure_modes_are_numbered_without_a_gap_each_with_a_test_or_a_reason():
    rows = [row for row in tables(Document("docs/failure-modes.md").text) if re.fullmatch(r"F\d+", row[0])]
    assert sorted(int(row[0][1:]) for row in rows) == list(range(1, len(rows) + 1))
    for row in rows:
        assert re.search(r"layer \d|`tests/|`make ", row[-1]) or "cannot" in row[-1], row[0]


def test_the_failure_modes_quote_messages_of_the_code():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "parsync_redis").rglob("*.py"))
    rows = [row for row in tables(Document("docs/failure-modes.md").text) if re.fullmatch(r"F\d+", row[0])]
    quotes = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row[2]) if quote.count(" ") > 1]
    parts = [part.strip() for quote in quotes for part in re.split(r"\.\.\.|: ", quote)]
    assert len(parts) > 5
    assert [part for part in parts if part not in text] == []
