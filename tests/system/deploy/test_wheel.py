"""The built wheel: what is in it, and that it works in an environment that holds nothing else.

The wheel is built from the sdist, so that a script or a licence that the sdist lacks is missed
here. The dependencies come from requirements.lock, which is made from what the wheel declares; `pip
check` holds the two together.
"""

import json
import os
import re
import shutil
import signal
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

import parsync_lab
import parsync_redis
from parsync_redis.cli.stack import Process
from parsync_redis.store.server.embedded import find_server
from tests.kit import REPO, waiting
from tests.kit.documents import Document
from tests.kit.reaper import marked

pytestmark = pytest.mark.serial


def run(*words: object, folder: Path, path: str | None = None) -> str:
    """Return a program's output, run in `folder` without what this test session's environment says."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PARSYNC_", "PYTHON", "VIRTUAL"))
    }
    if path is not None:
        env["PATH"] = path
    done = waiting.run(
        [str(word) for word in words], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def pip_of(programs: Path) -> tuple[object, ...]:
    """Return the words of our own pip, at work on the environment with this bin/: one of its own
    takes 3 s to make.
    """
    return sys.executable, "-m", "pip", "--python", programs / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built by way of the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPO, folder=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def lab_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of parsync-lab."""
    folder = tmp_path_factory.mktemp("lab")
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        folder,
        REPO / "lab",
        folder=folder,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin/ of an environment with the wheel and its dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", folder=folder)
    programs = folder / "venv" / "bin"
    install = (*pip_of(programs), "install", "--quiet", "--no-compile")
    run(*install, "--require-hashes", "--requirement", REPO / "requirements.lock", folder=folder)
    run(*install, "--no-deps", wheel, folder=folder)
    return programs


def test_an_index_would_take_the_distributions_and_show_their_description(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    output = run(
        sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, folder=wheel.parent
    )
    assert output.count("PASSED") == 2, output


def metadata_of(wheel: Path) -> str:
    """Return the metadata of a wheel, which a package index shows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def test_the_description_for_an_index_has_no_relative_link(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    targets = re.findall(r"\]\(([^)]+)\)", metadata)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "start (`docs/start.md`)" in metadata
    assert "Description-Content-Type: text/markdown" in metadata


def test_the_wheel_holds_the_package_its_scripts_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    here = {f"parsync_redis/{file.relative_to(REPO)}" for file in (REPO / "lua").rglob("*.lua")}
    assert here
    assert {name for name in names if name.endswith(".lua")} == here
    pages = {
        f"parsync_redis/serve/pages/{file.name}"
        for file in (REPO / "parsync_redis/serve/pages").iterdir()
    }
    assert pages <= names
    assert "parsync_redis/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"parsync_redis"}


def test_the_lab_has_a_wheel_of_its_own(wheel: Path, lab_wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert [
            name for name in archive.namelist() if re.search(r"\blab\b|parsync_lab", name)
        ] == []
    assert "matplotlib" not in metadata_of(wheel)
    with zipfile.ZipFile(lab_wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"parsync_lab"}
    assert {
        str(file.relative_to(REPO / "lab")) for file in (REPO / "lab/parsync_lab").rglob("*.py")
    } <= names
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {str(file.relative_to(REPO)) for file in (REPO / "lab").rglob("*.py")}
    assert {"lab/pyproject.toml", "conftest.py", "Makefile"} | tracked <= held, (
        "make installs and tests both"
    )
    version = parsync_redis.__version__
    assert parsync_lab.__version__ == version
    assert f"\nRequires-Dist: parsync-redis=={version}\n" in metadata_of(lab_wheel)


def test_the_wheel_declares_all_that_it_needs(installed: Path, tmp_path: Path) -> None:
    assert "No broken requirements" in run(*pip_of(installed), "check", folder=tmp_path)
    assert "Usage: parsync" in run(installed / "parsync", "--help", folder=tmp_path)


def test_every_script_of_the_wheel_loads(installed: Path, tmp_path: Path) -> None:
    lines = (
        "import parsync_redis as c, parsync_redis.store.scripts.scripts as s; "
        "print(s.lua_folder(), c.__file__)"
    )
    folder, module = run(installed / "python", "-c", lines, folder=tmp_path).split()
    assert Path(folder) == Path(module).parent / "lua"
    assert REPO not in Path(module).parents


def test_a_user_without_greenlet_is_told_the_extra(installed: Path, tmp_path: Path) -> None:
    lines = (
        "import parsync_redis as p\ntry:\n    p.AsyncParsyncClient\nexcept p.InvalidInput as "
        "error:\n    print(error)"
    )
    output = run(installed / "python", "-c", lines, folder=tmp_path)
    assert output == "AsyncParsyncClient needs greenlet: pip install 'parsync-redis[asyncio]'\n"


def test_a_user_without_a_server_program_is_told_how_to_get_it(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "proj.py").write_text("from celery import Celery\napp = Celery()\n")
    env = {"PATH": str(installed), "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path), **marked()}
    dev = [installed / "parsync", "dev", "-A", "proj"]
    done = waiting.run(dev, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "pip install 'parsync-redis[server]', or apt-get install redis-server" in " ".join(
        done.stderr.split()
    )


def test_the_demo_runs_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    """A whole stack of processes. Of the checkout it needs the example only."""
    shutil.copytree(REPO / "examples/demo", tmp_path / "examples/demo")
    out = tmp_path / "demo.json"
    servers = tmp_path / "servers"
    servers.mkdir()
    (servers / "redis-server").symlink_to(find_server())
    command = [installed / "python", "-m", "examples.demo", "--limit", 20, "--out", out]
    run(*command, folder=tmp_path, path=f"{installed}:{servers}")
    report = json.loads(out.read_text())
    assert report["submitted"] == report["succeeded"] == 20
    assert (report["failed"], report["lost"], report["ran_twice"]) == (0, 0, 0)


def test_a_newcomer_needs_two_commands_after_the_installation(
    installed: Path, tmp_path: Path
) -> None:
    """The commands are `parsync dev` and the call of the README's app. At another port a newcomer also exports variables."""
    (tmp_path / "proj.py").write_text(Document("README.md").blocks("python")[0].text)
    servers = tmp_path / "servers"
    servers.mkdir()
    (servers / "redis-server").symlink_to(find_server())
    env = {"PATH": f"{installed}:{servers}:/usr/bin:/bin", "HOME": str(tmp_path), **marked()}
    offer = ["--workers", "1", "--label", "zone=a", "--resource", "mem=4GiB"]
    command = [installed / "parsync", "dev", "-A", "proj", *offer]
    dev = Process(
        "dev", [str(word) for word in command], env, tmp_path, lambda name, line: print(line)
    )
    try:
        waiting.until(
            lambda: any("Ctrl-C here" in line for line in list(dev.lines)),
            "it says that it is ready",
        )
        exports = [line.partition("export")[2] for line in list(dev.lines) if "export" in line]
        told = dict(re.findall(r"(\w+)=(\S+)", " ".join(exports)))
        told = {
            name: value.replace("$PARSYNC_URL", told["PARSYNC_URL"]) for name, value in told.items()
        }
        if told["PARSYNC_URL"] != "redis://127.0.0.1:6379/0":
            env |= told
        call = "from proj import render; print(render.delay(7).get(timeout=150))"
        done = waiting.run(
            [installed / "python", "-c", call],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.stdout == "tile 7 is drawn\n", done.stderr
    finally:
        dev.send(signal.SIGINT)
        dev.end(time.monotonic() + 30)


def test_the_lab_adds_its_commands_when_it_is_installed(
    installed: Path, lab_wheel: Path, tmp_path: Path
) -> None:
    command = [installed / "parsync", "bench", "decide", "--help"]
    done = waiting.run(
        command,
        cwd=tmp_path,
        env={"PATH": str(installed), **marked()},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "comes with parsync-lab, which is not installed" in done.stderr
    run(
        *pip_of(installed),
        "install",
        "--quiet",
        "--no-compile",
        "--no-deps",
        lab_wheel,
        folder=tmp_path,
    )
    try:
        assert "No broken requirements" in run(*pip_of(installed), "check", folder=tmp_path)
        small = [
            "--schedulers",
            "2",
            "--partitions",
            "2",
            "--scale",
            "0.001",
            "--jobs",
            "1",
            "--json",
        ]
        output = run(installed / "parsync", "simulate", "staleness", *small, folder=tmp_path)
        assert json.loads(output)["parameters"]["schedulers"] == 2
    finally:
        run(*pip_of(installed), "uninstall", "--quiet", "--yes", "parsync-lab", folder=tmp_path)


def test_secrets_of_docker_compose_need_parsync_on_the_path(tmp_path: Path) -> None:
    command = ["/bin/sh", REPO / "examples/secrets.sh"]
    done = waiting.run(
        command, cwd=tmp_path, env={"PATH": "/", **marked()}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("secrets.sh: parsync is not on the PATH")
    assert not [*tmp_path.iterdir()]
