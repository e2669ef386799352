"""Each code block of each page is checked by its language.

The blocks that run are run in test_pages.py.
"""

import ast
import configparser
import importlib
import json
import re
import tomllib

import pytest
import yaml

from parsync_redis.model.policy_reader import read_policy
from parsync_redis.settings import RULES_TABLE, Settings, load_rules
from tests.kit.blocks import (
    FILE,
    OWN_TESTS,
    POLICY,
    RUN,
    all_pages,
    asked,
    blocks,
    check_parsync,
    check_shell,
    commands,
    files,
)
from tests.kit.documents import Document
from tests.kit.offenders import none_wrong

ALL = [*blocks()]
LANGUAGES = {"python", "console", "sh", "toml", "yaml", "json", "ini", "text"}
"""Every language has a check below; `text` is what a program prints, where no test can run it."""

OTHER_TOML = {"docs/serve.md"}
"""Pages whose TOML is not a settings file of parsync."""


def check_all(check, *languages):
    """Check each block of these languages; fail with all that are wrong, each by its page, its
    heading and why.
    """
    wrong = []
    blocks = [(name, block) for name, block in ALL if block.language in languages]
    assert blocks
    for name, block in blocks:
        try:
            check(block)
        except Exception as error:
            wrong.append(f"{name}: {block.heading}: {type(error).__name__} {error}")
    none_wrong(f"a block in {', '.join(languages)} says what there is", wrong)


def test_each_block_has_a_language_that_is_checked():
    wrong = [
        (name, block.heading, block.language)
        for name, block in ALL
        if block.language not in LANGUAGES
    ]
    assert not wrong, f"a block is one of {', '.join(sorted(LANGUAGES))}"


INDENTED = {"architecture", "chaos", "journey-of-a-task", "keys", "security", "serve"}
"""Pages with indented blocks, which name no language. The list only shrinks."""


def test_a_block_has_a_fence():
    pages = [name for name in all_pages() if not name.startswith("docs/decisions/")]
    indented = {name for name in pages if re.search(r"\n\n {4}\S", Document(name).text)}
    assert indented <= {f"docs/{name}.md" for name in INDENTED}, "write ```sh instead"


def test_the_pages_that_are_named_exist():
    assert {*RUN, *OWN_TESTS} <= {*all_pages()}
    outside = [name for name, block in ALL if block.language == "console" and name not in RUN]
    assert not outside, "only the console blocks of the pages in RUN run"


def test_a_file_has_the_same_text_on_all_pages():
    assert {name for name, texts in files().items() if len(texts) > 1} == set()
    assert {"proj.py", "train.py", "before.py", "after.py", "shop.py"} <= files().keys()
    assert {"limits.toml", "teams.toml"} <= files().keys()


def test_a_python_block_compiles_and_imports_existing_names():
    check_all(check_python, "python")


def check_python(block):
    tree = ast.parse(block.text)
    own = {name.removesuffix(".py") for name in files()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module not in own:
            module = importlib.import_module(str(node.module))
            assert not [alias.name for alias in node.names if not hasattr(module, alias.name)], (
                node.module
            )


def test_a_shell_block_names_existing_commands_and_flags():
    check_all(lambda block: check_shell(block.text), "sh")


def test_a_console_block_asks_parsync():
    check_all(check_console, "console")


def check_console(block):
    questions = [line for line, _ in asked(block)]
    assert questions
    for line in questions:
        for program, *words in commands(line):
            assert program == "parsync"
            check_parsync(words)


def test_a_settings_file_loads(tmp_path):
    check_all(lambda block: check_settings(block, tmp_path), "toml")


def check_settings(block, folder):
    if POLICY.search(block.text):
        read_policy(block.text)
        return
    if any(block in Document(name).blocks("toml") for name in OTHER_TOML):
        assert tomllib.loads(block.text)
        return
    path = folder / "parsync.toml"
    path.write_text(block.text)
    given = Settings.load(path)
    assert given.model_fields_set == tomllib.loads(block.text).keys() - {RULES_TABLE}
    assert set(load_rules(path)) == tomllib.loads(block.text).get(RULES_TABLE, {}).keys()


def read_ini(text):
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return parser.sections()


READERS = {
    "yaml": yaml.safe_load,
    "json": json.loads,
    "ini": read_ini,
    "text": lambda text: "\n$ " not in f"\n{text}",
}


def test_another_block_can_be_read():
    check_all(check_reads, *READERS)


def check_reads(block):
    assert READERS[block.language](block.text)


# -- the checks find what is wrong -----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "parsync sumbit proj.render",
        "parsync submit proj.render --colour red",
        "celery -A proj worker --parsync-slot 4",
        "make tset",
        "pip install '.[served]'",
        "docker compose -f docker-compose.tset.yml up",
        "systemctl enable parsync-workers@gpu",
        "PARSYNC_ULR=redis://127.0.0.1 parsync doctor",
        "rm -rf build",
        "# nothing",
    ],
)
def test_a_wrong_line_is_found(text):
    with pytest.raises(AssertionError):
        check_shell(text)


def test_a_files_block_is_recognised_by_its_first_line():
    assert FILE.match("# proj.py\nimport os\n")
    assert FILE.match("# teams.toml\n[tenants]\n")
    assert not FILE.match("import os\n# proj.py\n")
