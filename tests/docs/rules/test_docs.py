"""The pages agree with the code: keys, commands, flags, settings, files, identifiers."""

import re
from functools import cache

from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.cli.app import load
from parsync_redis.cli.command_table import HIDDEN_WORDS, all_commands
from parsync_redis.integration.worker_options import WORKER_OPTIONS
from parsync_redis.model.options import NAMES
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import DEFAULT_GAP_S, DEFAULT_LEASE_S, DEFAULT_PARTITIONS
from parsync_redis.store.scripts import calls
from parsync_redis.store.scripts.scripts import lua_folder
from parsync_redis.wire.keys import (
    CLUSTER_KINDS,
    DEFAULT_SHARDS,
    PARTITION_KINDS,
    QUEUE_KINDS,
    Keys,
)
from tests.kit import REPO
from tests.kit.documents import Document, command_of, tables
from tests.kit.offenders import none_wrong

DOCUMENTS = [
    "README.md",
    *sorted(str(path.relative_to(REPO)) for path in (REPO / "docs").rglob("*.md")),
]
SCRIPTS = {script.verb: script for script in calls.ALL_SCRIPTS}


# -- keys ------------------------------------------------------------------------------------------


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
        keys.holders("ACCOUNT").replace("q0", "qN"),
        keys.inbox(7, "NODE").replace("p7", "pN"),
        keys.stats("SCHEDULER"),
    }
    assert sorted(row[0].strip("`") for row in key_rows()) == sorted(right)
    assert f"`{keys.tick.removesuffix('0')}DB`" in Document("docs/keys.md").text
    for channel in (keys.wakes(0).replace("q0", "qN"), keys.frees(0).replace("p0", "pN")):
        assert f"`{channel.replace('@0', '@DB')}:SCHEDULER`" in Document("docs/keys.md").text


def test_each_writer_of_a_key_takes_that_key():
    rows = list(key_rows())
    assert rows
    wrong = [
        why for key, _, _, writers, _ in rows for why in wrong_writers(key, writers.split(", "))
    ]
    none_wrong("a script that a row of docs/keys.md names writes the key", wrong)


def wrong_writers(key, writers):
    """Find the scripts that a row names as writers of its key, and that do not write it."""
    found = re.fullmatch(r"`parsync:\{C(:qN|:pN|)\}:(\w+)(?::\w+)?`", key)
    assert found, key
    family, kind = found.groups()
    mates = {"meta": {":qN": {"kinds", "ended", "apps"}, ":pN": {"free"}}}.get(kind, {}).get(
        family
    )  # meta is in two families
    keys = {
        verb: {name.strip("*:") for name in (*script.keys, *script.also)}
        for verb, script in SCRIPTS.items()
    }
    may = {
        verb for verb, names in keys.items() if kind in names and (mates is None or mates & names)
    }
    may |= (
        {"fix_shards"} if (kind, family) == ("meta", ":qN") else set()
    )  # which takes no other key
    for writer in writers:
        path = lua_folder() / "verbs" / f"{writer}.lua"
        if writer not in may:
            yield f"{writer} does not take {key}"
        elif not re.search(rf"\b{kind}\b|\bkey\b|KEYS\[|prefix", path.read_text()):
            yield f"{writer} does nothing with {key}"


# -- commands, flags and settings ------------------------------------------------------------------


def command_lines(words):
    """Find the commands that begin with these words, in fenced or indented blocks and in `code`:
    (page, line).
    """
    found = []
    for name in DOCUMENTS:
        document = Document(name)
        lines = [
            line.removeprefix("$ ")
            for block in document.blocks()
            for line in block.text.splitlines()
        ]
        lines += re.findall(r"^    (\S.*)$", document.text, re.MULTILINE)
        lines += re.findall(r"`([^`\n]+)`", document.text)
        commands = [line for line in dict.fromkeys(lines) if re.match(rf"{words}\b", line)]
        found += [(name, line.partition("#")[0].strip()) for line in commands]
    assert len(found) > 10
    return found


@cache
def help_of(*command):
    result = CliRunner().invoke(
        app, [*command, "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_each_parsync_command_exists_with_its_flags():
    lines = command_lines("parsync [a-z]+")
    wrong = [
        f"{page}: {line}: {what}"
        for page, line in lines
        for what in unknown_words(line.split()[1:])
    ]
    none_wrong("a command line of a page has commands and flags that there are", wrong)


def unknown_words(words):
    """Find the words of a line that the command line does not know: the command itself,
    or flags.
    """
    command, arguments = command_of(words)
    if not command:
        return [f"no command {' '.join(words)}"]
    below = [word for word in arguments[:1] if word in getattr(load(command), "commands", ())]
    flags = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    text = help_of(*command.split(), *below)
    return [flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)]


def test_every_command_has_a_row_with_its_purpose():
    rows = [row[0] for row in tables(Document("docs/cli.md").text)]
    spans = [span for row in rows for span in re.findall(r"`parsync ([^`]+)`", row)]
    described = {command_of(span.split())[0] for span in spans}
    none_wrong("docs/cli.md says what each command is for", {*all_commands()} - described)
    described_nouns = {span.split()[0] for span in spans}
    none_wrong("docs/cli.md has no word that the help hides", described_nouns & {*HIDDEN_WORDS})


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
        row[2].strip("`"): row
        for row in tables(Document("docs/options.md").text)
        if row[1].startswith("`PARSYNC_")
    }
    assert list(rows) == list(fields)
    for name, (flag, variable, _, default, _) in rows.items():
        if flag != "of nodes only":
            assert flag.strip("`") == f"--{name.replace('_', '-')}"
            assert flag.strip("`") in help_of("scheduler")
        assert variable.strip("`") == f"PARSYNC_{name.upper()}"
        right = shared.get(name, fields[name].default)
        assert default.strip("`") == (
            f"{right:g}" if isinstance(right, (int, float)) else str(right)
        )


def test_the_page_of_options_has_the_task_options_of_the_code():
    rows = [
        row[0].strip("`")
        for row in tables(Document("docs/options.md").text)
        if row[0].strip("`") in NAMES
    ]
    missing = [name for name in NAMES if name not in rows]
    assert rows == list(NAMES), (
        f"the table of options in docs/options.md lacks {missing or 'none, but has another order'}"
    )


# -- files -----------------------------------------------------------------------------------------


def test_each_make_target_exists():
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    lines = command_lines("make [a-z]+")
    named = [(page, re.findall(r"^make ((?:[a-z-]+ ?)*)", line)[0].split()) for page, line in lines]
    wrong = [
        f"{page}: make {name}" for page, names in named for name in names if name not in targets
    ]
    none_wrong("a page names targets of the Makefile", wrong)


def test_each_link_leads_to_a_file():
    pages = [Document(name) for name in DOCUMENTS]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.text)
    ]
    wrong = [
        f"{page.path.relative_to(REPO)}: {link}"
        for page, link in links
        if not (page.path.parent / link).exists()
    ]
    none_wrong("a link leads to a file", wrong)


FOLDERS = ("parsync_redis", "lua", "lab", "tests", "docs", "examples", "deploy")
FILES = [path for folder in FOLDERS for path in (REPO / folder).rglob("*.*") if path.is_file()]
FILE_NAMES = {path.name for path in FILES}
STARTS = (REPO, REPO / "parsync_redis", REPO / "lua")
"""The beginnings of paths that pages name."""

NOT_OURS = {
    "parsync.toml",
    "qN",
    "no_ack",
    "global_keyprefix",
    "XDG_RUNTIME_DIR",
    "ssl_certfile",
    "ssl_keyfile",
}
"""Files of the user, names in examples, names of kombu, redis-py and the system."""


def code_spans(name):
    return re.findall(
        r"`([^`\n]+)`",
        re.sub(r"^```.*?^```$", "", Document(name).text, flags=re.DOTALL | re.MULTILINE),
    )


def test_each_file_and_folder_that_a_page_names_exists():
    spans = [(page, span) for page in DOCUMENTS for span in code_spans(page)]
    wrong = [f"{page}: {path}" for page, span in spans for path in gone_paths(span)]
    none_wrong("a page names files and folders that are there", wrong)


def gone_paths(span):
    """Find the files and folders in a text that are not there."""
    for path in re.findall(r"(?<![\w/.*-])[\w./-]*\w\.(?:py|lua|sh|toml|yml|md)\b", span):
        at_home = any((start / path).is_file() for start in STARTS)
        if not at_home and path not in FILE_NAMES and path not in NOT_OURS:
            yield path
    for folder in re.findall(rf"^(?:{'|'.join(FOLDERS)})/[\w/-]*$", span):
        if not (REPO / folder).exists():
            yield folder


@cache
def words_of_the_code():
    sources = [path for path in FILES if path.suffix in (".py", ".lua", ".sh", ".service", ".yaml")]
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sources if path.name != "test_docs.py"
    )
    return set(re.findall(r"\w+", text))


def test_each_identifier_that_a_page_names_is_in_the_code():
    pattern = r"(?<![\w/])(?:[A-Za-z]\w*_\w+|[A-Za-z]+[a-z][A-Z]\w*)\b(?!/|\.(?:py|lua|md)\b)"
    known = words_of_the_code() | NOT_OURS
    named = {
        (page, word)
        for page in DOCUMENTS
        for span in code_spans(page)
        for word in re.findall(pattern, span)
    }
    # PARSYNC_ variables are compared with the settings above
    gone = sorted(
        f"{page}: {word}"
        for page, word in named
        if word not in known and not word.startswith("PARSYNC_")
    )
    none_wrong("an identifier that a page names is in the code", gone)


def test_a_decision_record_has_its_parts_in_order():
    records = {path.name: path.read_text() for path in (REPO / "docs/decisions").glob("*.md")}
    assert len(records) > 40
    untitled = sorted(
        name for name, text in records.items() if not text.startswith(f"# {name[:4]}: ")
    )
    none_wrong("a record's title begins with its number", untitled)
    titles = [f"**{part}.**" for part in ("Context", "Cost", "What would change our mind")]
    places = {name: [text.find(title) for title in titles] for name, text in records.items()}
    wrong = sorted(name for name, parts in places.items() if -1 in parts or parts != sorted(parts))
    none_wrong(f"a record has {', '.join(titles)} in this order", wrong)


def test_the_failure_modes_are_numbered_without_a_gap_each_with_a_test_or_a_reason():
    rows = [
        row
        for row in tables(Document("docs/failure-modes.md").text)
        if re.fullmatch(r"F\d+", row[0])
    ]
    assert sorted(int(row[0][1:]) for row in rows) == list(range(1, len(rows) + 1))
    for row in rows:
        assert re.search(r"layer \d|`tests/|`make ", row[-1]) or "cannot" in row[-1], row[0]


def test_the_failure_modes_quote_messages_of_the_code():
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in (REPO / "parsync_redis").rglob("*.py")
    )
    rows = [
        row
        for row in tables(Document("docs/failure-modes.md").text)
        if re.fullmatch(r"F\d+", row[0])
    ]
    quotes = [
        quote for row in rows for quote in re.findall(r"`([^`]+)`", row[2]) if quote.count(" ") > 1
    ]
    parts = [part.strip() for quote in quotes for part in re.split(r"\.\.\.|: ", quote)]
    assert len(parts) > 5
    assert [part for part in parts if part not in text] == []
