"""No password in what settings, errors and addresses show; a password file completes
the address.
"""

import sys
from pathlib import Path

import pytest

from parsync_redis import InvalidInput, Settings
from parsync_redis.model.address import safe_url, with_password
from parsync_redis.store.store import Store
from tests.kit.waiting import run

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@host:1/0",
        f"redis://user:{SECRET}@host/0",
        f"rediss://u:{SECRET}@h?ssl_ca_certs=/x",
        f"redis://host/0?password={SECRET}",
        f"unix:///x.sock?db=0&password={SECRET}",
        f"redis://u:a@b{SECRET}@host",
        f"redis://u:{SECRET}/x@host",
        f":{SECRET}@host",
        f"u:{SECRET}@host",
        f"http://u:{SECRET}@host",
        f"redis://:{SECRET}@h1;redis://:{SECRET}@h2",
        f"rediss://h?ssl_password={SECRET}&db=1",
        f"redis://u:{SECRET}@host:notaport/0",
    ],
)
def test_an_address_is_shown_without_its_password(url):
    assert SECRET not in safe_url(url)
    try:
        settings = Settings.load(url=url)
        store = Store.from_url(settings.url, "c")
        shown = repr(settings) + str(settings) + repr(store) + repr(store.client) + store.address
    except InvalidInput as error:
        shown = str(error)
    assert SECRET not in shown


def test_a_settings_error_made_without_load_shows_no_value():
    with pytest.raises(ValueError, match="url") as caught:
        Settings(url=f"http://:{SECRET}@host")
    assert SECRET not in str(caught.value)


def test_a_password_file_completes_the_address(tmp_path, monkeypatch):
    path = tmp_path / "password"
    path.write_text("p@ss/w:rd\nsecond line\n")
    monkeypatch.setenv("PARSYNC_PASSWORD_FILE", str(path))
    monkeypatch.setenv("PARSYNC_URL", "redis://user@host:7/2")
    settings = Settings.load()
    assert settings.url == "redis://user:p%40ss%2Fw%3Ard@host:7/2"
    kwargs = Store.from_url(settings.url, "c").client.connection_pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"]) == ("user", "p@ss/w:rd")
    assert "p%40" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "complete"),
    [
        ("redis://host/0", "redis://:pw@host/0"),
        ("redis://u@host", "redis://u:pw@host"),
        ("redis://u:own@host", "redis://u:own@host"),
        ("unix:///x.sock", "unix://:pw@/x.sock"),
    ],
)
def test_a_password_of_the_address_goes_over_the_files(url, complete):
    assert with_password(url, "pw") == complete


def test_a_password_file_alone_does_not_name_a_server(tmp_path):
    path = tmp_path / "password"
    path.write_text("pw")
    assert "url" not in Settings.load(password_file=path).model_fields_set


@pytest.mark.parametrize("content", [None, "", "\n", b"\xff\xfe"])
def test_a_password_file_that_cannot_be_used_is_one_sentence(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = Path("password")  # the message shows the first 100 characters of a path
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInput, match=r"password_file|password file") as caught:
        Settings.load(password_file=path)
    assert str(path) in str(caught.value)


def test_a_path_with_an_at_sign_is_shown_as_it_is(monkeypatch):
    monkeypatch.setenv(
        "PARSYNC_PASSWORD_FILE", "/run/credentials/parsync-worker@gpu.service/password"
    )
    with pytest.raises(
        InvalidInput, match=r"/run/credentials/parsync-worker@gpu\.service/password"
    ):
        Settings.load()


def acl(*words):
    command = [sys.executable, "-m", "parsync_redis.cli", "acl", *words]
    return run(command, capture_output=True, text=True)


def test_acl_prints_hashes_and_never_a_password(tmp_path):
    for role in ("client", "scheduler", "worker", "viewer"):
        (tmp_path / role).write_text(SECRET + role)
    done = acl("--password-file", str(tmp_path), "--close-default")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 5
    assert done.stdout.splitlines()[-1] == "user default off resetpass ~* &* +@all"
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--hash", "x", "--role", "viewer"], "--hash is not valid"),
        (["--hash", "0" * 64], "one password is for one --role"),
        (["--form", "yaml"], "--form 'yaml' is not known"),
        (["--queue", "a*"], "queue name 'a*' is not valid here"),
        (
            ["--role", "viewer", "--password-file", "nowhere"],
            "password file nowhere cannot be read",
        ),
    ],
)
def test_acl_refuses_what_makes_no_sense(words, says):
    done = acl(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert not done.stdout
