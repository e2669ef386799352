"""Servers accept the output of `parsync acl`, as a file of users and as commands."""

import subprocess
import sys

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from parsync_redis.security.acl_tables import Role
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.waiting import run


def acl(*words):
    return run(
        [sys.executable, "-m", "parsync_redis.cli", "acl", *words],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def secrets(tmp_path):
    for role in Role:
        (tmp_path / role).write_text(f"pw-{role}")
    return tmp_path


def test_each_form_gives_a_server_the_same_logins(server: EmbeddedServer, secrets, tmp_path):
    with redis.Redis(port=server.port) as admin:
        for line in acl(
            "--cluster", "forms", "--form", "setuser", "--password-file", str(secrets)
        ).splitlines():
            assert admin.execute_command(*split(line)) in (True, b"OK")
        by_commands = [line for line in listed(admin) if "forms-" in line]
        for role in Role:
            admin.execute_command("ACL", "DELUSER", f"forms-{role}")
    users = tmp_path / "users.acl"
    users.write_text(acl("--cluster", "forms", "--password-file", str(secrets), "--close-default"))
    other = subprocess.Popen(
        [
            server.program,
            "--port",
            "0",
            "--unixsocket",
            str(tmp_path / "s"),
            "--save",
            "",
            "--aclfile",
            str(users),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        with redis.Redis(
            unix_socket_path=str(tmp_path / "s"), username="forms-viewer", password="pw-viewer"
        ) as viewer:
            until(viewer.ping)
            with pytest.raises(redis.exceptions.NoPermissionError):
                viewer.execute_command("ACL LIST")
        once = Retry(NoBackoff(), 0)
        nobody = redis.Redis(unix_socket_path=str(tmp_path / "s"), retry=once)
        with nobody, pytest.raises(redis.exceptions.AuthenticationError):
            nobody.ping()
    finally:
        other.terminate()
        other.wait(timeout=180)
    assert len(by_commands) == 4


def until(fact):
    import time

    deadline = time.monotonic() + 180
    while True:
        try:
            return fact()
        except redis.exceptions.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def split(line):
    words: list[str] = []
    for word in line.split():
        if words and words[-1].startswith("(") and not words[-1].endswith(")"):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def listed(admin):
    return [
        line if isinstance(line, str) else line.decode()
        for line in admin.execute_command("ACL LIST")
    ]
