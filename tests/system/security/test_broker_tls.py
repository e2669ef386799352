"""TLS that the app says in Celery's words: placed tasks use it as plain ones do, and send nothing
in clear.

A proxy ends TLS in front of a server, so these tests run on each server program.
"""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import pools
from kombu.exceptions import OperationalError

from parsync_redis import InvalidInput, Parsync, ParsyncClient, ParsyncError
from parsync_redis.cli.stack import LocalStack
from parsync_redis.settings import Settings
from parsync_redis.store import Store, connect
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import REPO
from tests.kit.async_check import check_async
from tests.kit.certificates import Authority
from tests.kit.tls_proxy import TlsProxy
from tests.kit.waiting import until

SECRET = "s3cret%"
LOGIN = ":s3cret%25@"
CLUSTER = "tls"
Conf = dict[str, Any]


@dataclass
class Place:
    """A server with a password behind two proxies; the second one asks clients for a
    certificate.
    """

    server: EmbeddedServer
    open: TlsProxy
    mutual: TlsProxy
    authority: Authority
    stranger: Authority
    certificate: tuple[Path, Path]

    @property
    def clear(self) -> list[bytes]:
        return self.open.clear + self.mutual.clear


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    authority = Authority(tmp_path_factory.mktemp("ca"), "right")
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    own = authority.certify("127.0.0.1")
    client = authority.certify("client.example")
    server = EmbeddedServer()
    with (
        TlsProxy(server.port, own) as plain,
        TlsProxy(server.port, own, clients=authority.path) as mutual,
    ):
        connect(server.url).config_set("requirepass", SECRET)
        direct = Settings.load(
            url=server.url.replace("//", f"//{LOGIN}"), cluster=CLUSTER, partitions=1
        )
        store = Store.from_url(direct.url, CLUSTER)
        join_cluster(store, direct, create=True)
        yield Place(server, plain, mutual, authority, stranger, client)
        store.disconnect()
    server.stop()


def a_query(place: Place, ca: Path) -> Conf:
    options = f"ssl_cert_reqs=required&ssl_ca_certs={ca}"
    return {"broker_url": f"rediss://{LOGIN}127.0.0.1:{place.open.port}/0?{options}"}


def rediss_and_a_dict(place: Place, ca: Path) -> Conf:
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(ca)}
    return {
        "broker_url": f"rediss://{LOGIN}127.0.0.1:{place.open.port}/0",
        "broker_use_ssl": options,
    }


def redis_and_a_dict(place: Place, ca: Path) -> Conf:
    options = {
        "ssl_cert_reqs": "required",
        "ssl_ca_certs": ca,
        "ssl_min_version": ssl.TLSVersion.TLSv1_2,
    }
    return {
        "broker_url": f"redis://{LOGIN}127.0.0.1:{place.open.port}/0",
        "broker_use_ssl": options,
    }


def a_clients_certificate(place: Place, ca: Path) -> Conf:
    names = zip(("ssl_certfile", "ssl_keyfile"), map(str, place.certificate), strict=True)
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(ca), **dict(names)}
    return {
        "broker_url": f"redis://{LOGIN}127.0.0.1:{place.mutual.port}/0",
        "broker_use_ssl": options,
    }


def parsyncs_own_address(place: Place, ca: Path) -> Conf:
    options = f"ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs={ca}"
    url = f"rediss://{LOGIN}127.0.0.1:{place.open.port}/0?{options}"
    return {"broker_url": url, "PARSYNC_URL": url}


AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
"""kombu tries once more only, and at once."""
WAYS = (a_query, rediss_and_a_dict, redis_and_a_dict, a_clients_certificate, parsyncs_own_address)


def make_app(conf: Conf) -> Celery:
    app = Celery("tls", set_as_current=False)
    app.conf.update({name: value for name, value in conf.items() if name != "PARSYNC_URL"})
    Parsync(app, url=conf.get("PARSYNC_URL"), cluster=CLUSTER)
    app.task(name="tls.plain")(nothing)
    app.task(name="tls.placed", parsync={"wait_for_capacity": True})(nothing)
    return app


def nothing() -> None:
    """Do nothing."""


def outcome(submit: Callable[[], object]) -> str:
    """Return 'works', or 'not trusted' for a certificate that TLS refuses; other errors are raised."""
    try:
        submit()
    except (OperationalError, ParsyncError) as error:
        if "certificate verify failed" not in str(error) and "is not trusted" not in str(error):
            raise
        return "not trusted"
    return "works"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARSYNC_URL", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
        monkeypatch.delenv(name, raising=False)


def forget_pools(app: Celery) -> None:
    """Drop the pools of this address: kombu gives them to whoever has the address, whatever TLS the
    app asks for.

    pools.reset() would close the pools of all other apps of this process as well.
    """
    connection = app.connection_for_write()
    for group in (pools.producers, pools.connections):
        with suppress(KeyError):
            del group[connection]


@pytest.mark.parametrize("way", WAYS)
def test_a_placed_task_trusts_the_server_as_a_plain_one_does_and_no_byte_is_in_clear(
    place: Place, way: Callable[[Place, Path], Conf]
) -> None:
    for ca, expected in ((place.authority.path, "works"), (place.stranger.path, "not trusted")):
        app = make_app({**way(place, ca), "broker_transport_options": AT_ONCE})
        for name in ("tls.plain", "tls.placed"):
            assert outcome(partial(app.tasks[name].apply_async, retry=False)) == expected, name
        assert outcome(partial(check_async, app.parsync.settings().url)) == expected
        app.parsync.client.close()
        forget_pools(app)
    assert not place.clear
    assert place.open.beginnings


def test_a_connection_of_parsync_has_the_options_of_kombus(place: Place) -> None:
    options = {
        "client_name": "proj",
        "health_check_interval": 7,
        "socket_connect_timeout": 3.5,
        "socket_keepalive": True,
        "socket_keepalive_options": {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10},
        "socket_timeout": 20,
    }
    conf = a_clients_certificate(place, place.authority.path)
    conf["broker_use_ssl"] |= {
        "ssl_check_hostname": False,
        "ssl_include_verify_flags": [ssl.VerifyFlags.VERIFY_X509_STRICT],
        "ssl_ciphers": "DEFAULT",
    }
    app = make_app(
        {
            **conf,
            "broker_transport_options": {
                **options,
                "visibility_timeout": 5,
                "retry_on_timeout": True,
            },
        }
    )
    with app.connection_for_write() as connection:
        theirs = connection.default_channel.pool.connection_kwargs
    ours = connect(app.parsync.settings().url).connection_pool.connection_kwargs
    names = {*options, *conf["broker_use_ssl"], "password", "host", "port", "db"} - {
        "ssl_cert_reqs"
    }
    names &= theirs.keys()  # older kombus have no client name, and no health check with TLS
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    assert {
        "socket_keepalive_options",
        "socket_timeout",
        "ssl_certfile",
        "ssl_check_hostname",
    } <= names
    assert (ours["ssl_cert_reqs"], theirs["ssl_cert_reqs"]) == ("required", ssl.CERT_REQUIRED)
    assert app.parsync.client.store.check_server()["version"]
    assert not place.clear


def test_broker_use_ssl_true_with_which_celery_sends_the_password_in_clear_is_refused(
    place: Place,
) -> None:
    for scheme in ("redis", "rediss"):
        app = make_app(
            {
                "broker_url": f"{scheme}://{LOGIN}127.0.0.1:{place.open.port}/0",
                "broker_use_ssl": True,
            }
        )
        with pytest.raises(InvalidInput, match="it must be a dict, such as") as caught:
            app.tasks["tls.placed"].delay()
        assert SECRET not in str(caught.value)
    assert not place.clear


PROJ = """
import os
from celery import Celery
from parsync_redis import Parsync

app = Celery("proj", broker=os.environ["BROKER"], backend=os.environ["BACKEND"])
app.conf.broker_use_ssl = {
    "ssl_cert_reqs": "required",
    **{f"ssl_{name}": os.environ[name] for name in ("ca_certs", "certfile", "keyfile")},
}
Parsync(app)


@app.task(name="proj.placed", parsync={})
def placed():
    return os.getpid()


@app.task(name="proj.plain")
def plain():
    return os.getpid()
"""


@pytest.mark.serial
def test_worker_guard_and_scheduler_beside_it_have_the_apps_tls(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "proj.py").write_text(PROJ)
    at = f"{LOGIN}127.0.0.1:{place.mutual.port}/0"
    files = {
        "ca_certs": str(place.authority.path),
        "certfile": str(place.certificate[0]),
        "keyfile": str(place.certificate[1]),
    }
    backend = f"rediss://{at}?ssl_cert_reqs=required&" + "&".join(
        f"ssl_{name}={file}" for name, file in files.items()
    )
    env = {
        "BROKER": f"redis://{at}",
        "BACKEND": backend,
        "PYTHONPATH": f"{tmp_path}:{REPO}",
        **files,
    }
    logs = tmp_path / "logs"
    with (
        LocalStack(CLUSTER, logs=logs, cwd=tmp_path, env=env) as stack,
        pytest.MonkeyPatch.context() as patch,
    ):
        stack.worker("proj:app", "n1", slots=1, extra=["--parsync-with-scheduler"])
        for name, value in (*env.items(), ("PARSYNC_CLUSTER", CLUSTER)):
            patch.setenv(name, value)
        loaded: dict[str, Any] = {}
        exec(PROJ, loaded)
        settings = loaded["app"].parsync.settings()
        with ParsyncClient(settings) as client:
            until(lambda: [node.state for node in client.nodes()] == ["up"], "the worker is a node")
        assert loaded["plain"].delay().get(timeout=180)
        assert loaded["placed"].delay().get(timeout=180)
    told = "".join(log.read_text() for log in logs.glob("*.log"))
    assert "s3cret" not in told
    assert not place.clear
    assert os.environ.get("BROKER") is None
