""".ci/run goes on after a part that failed, tells each part with its time at the end, and fails
then.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.kit import REPO
from tests.kit.offenders import none_wrong
from tests.kit.waiting import run

TEXT = (REPO / ".ci/run").read_text(encoding="utf-8")
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


def test_a_part_that_is_left_out_is_no_failure():
    assert end_of(("c", "sh -c 'exit 77'")) == (0, ["LEFT OUT N s  c"])


def test_each_script_of_a_part_is_there_and_each_script_is_a_part():
    scripts = {
        path.name
        for path in (REPO / ".ci").iterdir()
        if path.name not in ("run", "unpack", "fetch")
    }
    assert set(re.findall(r"(?m)^(?:part .*)?\.ci/([\w-]+)", TEXT)) == scripts
    assert all(os.access(REPO / ".ci" / name, os.X_OK) for name in scripts)


def test_the_parts_run_each_test_once():
    """Each test is quick or not; what is not is serial or not."""
    chosen = re.findall(r"-m \"([^\"]*)\"", END)
    assert chosen == ["not quick and not serial", "not quick and serial"]
    assert '\npart "make test" make test\n' in END


def test_a_missing_python_is_reported_and_left_out():
    done = run([REPO / ".ci/newer-python", "3.99"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 77
    assert done.stdout == "LEFT OUT, because this machine does not have it: Python 3.99\n"


def checkout(folder: Path) -> Path:
    """Make a checkout that has no build/, and this test's environment."""
    for name in (".ci", "tests/parity/celery_suite"):
        shutil.copytree(REPO / name, folder / name)
    (folder / "tests/parity/works_with").symlink_to(REPO / "tests/parity/works_with")
    (folder / "requirements-dev.lock").symlink_to(REPO / "requirements-dev.lock")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    return folder


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("tests/parity/celery_suite/run", "Celery's own suite"),
        (".ci/works-with", "the libraries of tests/parity/works_with/requirements.txt"),
        (".ci/older-celery", "Celery 5.4"),
    ],
)
def test_a_part_is_left_out_only_if_no_registry_can_be_reached(tmp_path, script, what):
    """A folder of packages is the registry here: first there is none, then one that has pip and no
    other package.
    """
    folder = checkout(tmp_path / "checkout")
    registry = tmp_path / "registry"
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}

    def end(**more):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = run([folder / script], **streams, text=True, env=env | more)
        assert not list((folder / "build").glob("*/.made"))
        return done.returncode, done.stdout, done.stderr.splitlines()[-1:]

    assert end()[:2] == (77, f"LEFT OUT, because no registry of packages can be reached: {what}\n")
    registry.mkdir()
    with zipfile.ZipFile(registry / "pip-99-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            "pip-99.dist-info/METADATA", "Metadata-Version: 2.1\nName: pip\nVersion: 99\n"
        )
        wheel.writestr(
            "pip-99.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("pip-99.dist-info/RECORD", "")
    code, printed, (last,) = end(PIP_FIND_LINKS=str(registry))
    assert (code, printed) == (1, "")
    assert last.startswith("FAILED, though a registry can be reached: pip ")


def test_each_part_gets_its_packages_in_the_way_that_tells_a_missing_registry_from_a_failure():
    """The project itself is installed from this folder."""
    scripts = [path for path in (REPO / ".ci").iterdir() if path.name != "fetch"]
    scripts.append(REPO / "tests/parity/celery_suite/run")
    lines = [
        (path, line) for path in scripts for line in path.read_text(encoding="utf-8").splitlines()
    ]
    bare = re.compile(r"\bpip\W+(install|download)\b")
    offenders = [
        f"{path.name}: {line}"
        for path, line in lines
        if bare.search(line) and "--editable ." not in line
    ]
    none_wrong("fetch of .ci/fetch gets packages", offenders)
