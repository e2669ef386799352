"""The files around the code agree with it: hooks, the hosted CI, the targets of make."""

import re

import yaml

from tests.kit import REPO


def read(name):
    return (REPO / name).read_text(encoding="utf-8")


def test_the_hosted_ci_runs_what_anybody_can_run():
    steps = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]["test"]["steps"]
    assert steps[-1] == {"run": ".ci/run"}


def test_the_hooks_are_the_checks_of_make_lint():
    hooks = [
        hook
        for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
        for hook in repo["hooks"]
    ]
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks}
    found = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    assert found
    recipe = found[1].replace("$(BIN)", ".venv/bin").replace("$(MAKE)", "make")
    assert programs == {line.split()[0].lstrip("@") for line in recipe.splitlines()}


def test_each_target_of_make_has_its_line_of_help_and_is_phony():
    makefile = read("Makefile")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert targets == set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
