""".ci/run unpacks a browser whole or not at all: the next run would use half a browser."""

import re
import subprocess

import pytest

from tests.kit import REPO
from tests.kit.waiting import run

FUNCTION = re.search(
    r"^unpack_chromium\(\) \{.*?^\}$", (REPO / ".ci/run").read_text(), re.DOTALL | re.MULTILINE
)
PROGRAMS = {"chromium": "usr/lib/chromium/chromium", "chromedriver": "usr/bin/chromedriver"}


def unpacked(folder, *programs, code=0):
    """Run the function, where the packages have these programs; return its exit code."""
    assert FUNCTION is not None
    for name in programs:
        program = folder / "root" / PROGRAMS[name]
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {name} $1\n")
        program.chmod(0o755)
    (folder / "bin").mkdir()
    script = (
        f"set -eu\nchromium={folder}\nunpack() {{ return {code}; "
        f"}}\n{FUNCTION[0]}\nunpack_chromium || exit 1"
    )
    return run(["bash", "-c", script], 60).returncode


def test_each_wrapper_runs_its_own_program(tmp_path):
    assert unpacked(tmp_path, *PROGRAMS) == 0
    for name in PROGRAMS:
        done = run([tmp_path / "bin" / name, "--version"], 60, stdout=subprocess.PIPE, text=True)
        assert done.stdout == f"{name} --version\n"


@pytest.mark.parametrize(
    ("programs", "code"), [(["chromium"], 0), (["chromedriver"], 0), ([*PROGRAMS], 100)]
)
def test_an_incomplete_download_leaves_no_wrapper(tmp_path, programs, code):
    assert unpacked(tmp_path, *programs, code=code) != 0
    assert [*(tmp_path / "bin").iterdir()] == []
