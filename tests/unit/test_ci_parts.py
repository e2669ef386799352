""".ci/run goes on after a part that failed, tells each part with its time at the end, and fails
then.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.documents import ROOT
from tests.waiting import run

TEXT = (ROOT / ".ci/run").read_text(encoding="utf-8")
END = TEXT[TEXT.index("# part NAME COMMAND") :]


def end_of(*parts):
    """Run the end of .ci/run with these parts instead of its own; return the exit code and the last
    lines.
    """
    lines = [line for line in END.splitlines() if not line.startswith("part ")]
    at = next(number for number, line in enumerate(lines) if line.startswith("printf"))
    lines[at:at] = [f"part '{name}' {command}" for name, command in parts]
    done = run(
        ["bash", "-c", "set -euo pipefail\n" + "\n".join(lines)], stdout=subprocess.PIPE, text=True
    )
    return done.returncode, re.sub(
        r" +\d+ s", " N s", done.stdout.rpartition("== ended")[2]
    ).splitlines()[1:]


def test_parts_after_one_that_failed_run_all_the_same():
    parts = [("a", "true"), ("b", "false"), ("c", "sh -c 'exit 77'"), ("d", "true")]
    assert end_of(*parts) == (
        1,
        ["passed N s  a", "FAILED N s  b", "LEFT OUT N s  c", "passed N s  d"],
    )


def test_what_is_left_out_is_no_failure():
    assert end_of(("c", "sh -c 'exit 77'")) == (0, ["LEFT OUT N s  c"])


def test_each_script_of_a_part_is_there_and_each_script_is_a_part():
    scripts = {path.name for path in (ROOT / ".ci").iterdir() if path.name not in ("run", "unpack")}
    assert set(re.findall(r"(?m)^(?:part .*)?\.ci/([\w-]+)", TEXT)) == scripts
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in scripts)


def test_the_parts_run_each_test_once():
    """Each test is quick or not; what is not is serial or not."""
    chosen = re.findall(r"-m \"([^\"]*)\"", END)
    assert chosen == ["not quick and not serial", "not quick and serial"]
    assert '\npart "make test" make test\n' in END


def test_a_python_that_is_not_here_is_said_and_left_out():
    done = run([ROOT / ".ci/newer-python", "3.99"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 77
    assert done.stdout == "LEFT OUT, because this machine does not have it: Python 3.99\n"


@pytest.mark.parametrize(
    ("script", "folder", "what"),
    [
        (
            "tests/celery_suite/run",
            "celery-suite",
            "its sdist and the packages that it needs are not to be had here: Celery's own suite",
        ),
        (
            ".ci/works-with",
            "works-with",
            "they are not to be had here: the libraries of tests/works_with/requirements.txt",
        ),
    ],
)
def test_what_cannot_be_downloaded_is_said_and_left_out(tmp_path, script, folder, what):
    """The script runs in a checkout that has no build/, with a pip that has no index."""
    for name in (".ci", "tests/celery_suite"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "tests/works_with").symlink_to(ROOT / "tests/works_with")
    (tmp_path / "requirements-dev.lock").symlink_to(ROOT / "requirements-dev.lock")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = run(
        [tmp_path / script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert (done.returncode, done.stdout) == (77, f"LEFT OUT, because {what}\n"), done.stderr
    assert not (tmp_path / "build" / folder / ".made").exists()
