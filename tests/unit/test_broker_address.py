"""The address of an app's broker has what kombu knows of its connection; what it cannot have is one
clear error.
"""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection
from redis.credentials import UsernamePasswordCredentialProvider
from redis.sentinel import SentinelManagedSSLConnection

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.address import broker_address
from parsync_redis.model.address import parse_service, safe_url
from parsync_redis.settings import Settings
from parsync_redis.store import connect


def address_of(broker: str, **conf: Any) -> str:
    app = Celery("proj", broker=broker, set_as_current=False)
    app.conf.update(conf)
    return broker_address(app.connection_for_write()) or ""


def options_of(url: str) -> dict[str, Any]:
    options: dict[str, Any] = connect(url).connection_pool.connection_kwargs
    return options


@pytest.mark.parametrize("reqs", ["CERT_REQUIRED", "required"])
def test_the_query_of_a_rediss_address_is_kept_in_celerys_spellings(reqs: str) -> None:
    broker = (
        f"rediss://:p%20w@h/0?ssl_cert_reqs={reqs}&ssl_ca_certs=%2Fca.pem&ssl_check_hostname=False"
    )
    theirs: Any = Connection(broker).ssl
    checks = bool(theirs["ssl_check_hostname"])  # in kombu 5.4 that is a text, and true
    url = address_of(broker)
    assert url.startswith(
        "rediss://:p%20w@h:6379/0?ssl_cert_reqs=required&ssl_ca_certs=%2Fca.pem&ssl_check_hostname="
    )
    assert Settings.load(url=url).url == url
    assert options_of(url)["ssl_check_hostname"] is checks


@pytest.mark.parametrize(
    ("reqs", "word"),
    [
        (ssl.CERT_REQUIRED, "required"),
        (ssl.CERT_OPTIONAL, "optional"),
        (ssl.CERT_NONE, "none"),
        (0, "none"),
        (None, "none"),
        (2, "required"),
        ("required", "required"),
        ("CERT_NONE", "none"),
    ],
)
@pytest.mark.parametrize("broker", ["redis://h:1/2", "rediss://h:1/2"])
def test_broker_use_ssl_makes_it_tls_whatever_the_scheme(broker: str, reqs: Any, word: str) -> None:
    url = address_of(broker, broker_use_ssl={"ssl_cert_reqs": reqs, "ssl_keyfile": None})
    assert url == f"rediss://h:1/2?ssl_cert_reqs={word}"
    assert connect(url).connection_pool.connection_class is redis.SSLConnection


def test_options_of_tls_in_a_redis_address_make_it_tls_as_in_kombu() -> None:
    assert address_of("redis://h:1/2?ssl_ca_certs=/ca") == "rediss://h:1/2?ssl_ca_certs=%2Fca"


def test_a_rediss_address_without_options_checks_no_certificate_as_in_kombu() -> None:
    assert address_of("rediss://h:1/2") == "rediss://h:1/2?ssl_cert_reqs=none"


def test_each_option_of_tls_comes_back_as_it_was() -> None:
    options = {
        "ssl_ca_certs": "/a b/ca.pem",
        "ssl_ca_data": "-----BEGIN\nMII+/=&#",
        "ssl_ca_path": "/etc/ca",
        "ssl_certfile": "/c%41",
        "ssl_check_hostname": True,
        "ssl_ciphers": "HIGH:!aNULL",
        "ssl_exclude_verify_flags": [ssl.VerifyFlags.VERIFY_X509_STRICT],
        "ssl_include_verify_flags": [
            ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF,
            ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN,
        ],
        "ssl_keyfile": "/k",
        "ssl_min_version": ssl.TLSVersion.TLSv1_3,
        "ssl_password": "s3cret &",
    }
    url = Settings.load(url=address_of("redis://h", broker_use_ssl=options)).url
    back = options_of(url)
    assert {name: back[name] for name in options} == options
    assert "s3cret" not in safe_url(url)
    assert address_of("redis://h", broker_use_ssl={"ssl_keyfile": Path("/k")}).endswith(
        "?ssl_keyfile=%2Fk"
    )
    assert (
        address_of("redis://h:1/0", broker_use_ssl={"ssl_include_verify_flags": []})
        == "rediss://h:1/0"
    )


def test_the_broker_transport_options_of_each_connection_are_kept() -> None:
    options = {
        "client_name": "proj",
        "health_check_interval": 7,
        "socket_connect_timeout": 0.25,
        "socket_keepalive": False,
        "socket_keepalive_options": {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPCNT: 3},
        "socket_timeout": 120,
    }
    of_queues = {
        "visibility_timeout": 3600,
        "max_connections": 3,
        "retry_on_timeout": True,
        "sep": ":",
    }
    url = address_of("redis://h", broker_transport_options={**options, **of_queues})
    back = options_of(Settings.load(url=url).url)
    assert {name: back[name] for name in options} == options
    assert not {"visibility_timeout", "max_connections"} & back.keys()
    file = address_of("redis+socket:///tmp/s?virtual_host=3", broker_transport_options=options)
    assert file == "unix:///tmp/s?db=3&client_name=proj&health_check_interval=7&socket_timeout=120"
    cluster: Any = connect("redis+cluster://h?socket_keepalive_options=TCP_KEEPIDLE:60")
    assert cluster.servers.options["socket_keepalive_options"] == {socket.TCP_KEEPIDLE: 60}


def test_a_login_of_its_own_setting_is_kept() -> None:
    assert (
        address_of("redis://h", broker_user="u", broker_password="p/w")
        == "redis://u:p%2Fw@h:6379//"
    )
    behind = address_of(
        "sentinel://a;sentinel://b:1/3",
        broker_password="pw",
        broker_transport_options={"master_name": "m"},
    )
    service = parse_service(behind)
    assert (service.login, service.sentinels, service.db) == (
        {"password": "pw"},
        (("a", 26379), ("b", 1)),
        0,
    )


SENTINEL = "sentinel://:pw@a:1/2;sentinel://b:3"


@pytest.mark.parametrize(
    ("tls", "kwargs", "secured", "sentinels"),
    [
        (None, None, False, {}),
        ({"ssl_ca_certs": "/ca"}, None, True, {}),
        (
            {"ssl_ca_certs": "/ca"},
            {"password": "s", "ssl_ca_certs": "/unused"},
            True,
            {"password": "s"},
        ),
        ({"ssl_ca_certs": "/ca"}, {"ssl": True}, True, {"ssl": True}),
        (
            {"ssl_ca_certs": "/ca"},
            {"ssl": True, "ssl_ca_certs": "/other", "ssl_cert_reqs": ssl.CERT_OPTIONAL},
            True,
            {"ssl": True, "ssl_ca_certs": "/other", "ssl_cert_reqs": "optional"},
        ),
        (
            None,
            {"ssl": True, "ssl_check_hostname": False},
            False,
            {"ssl": True, "ssl_check_hostname": False},
        ),
    ],
)
def test_tls_to_sentinels_and_tls_to_their_server_are_two_things(
    tls: dict[str, Any] | None,
    kwargs: dict[str, Any] | None,
    secured: bool,
    sentinels: dict[str, Any],
) -> None:
    options = {"master_name": "m", "sentinel_kwargs": kwargs, "min_other_sentinels": 1}
    url = address_of(SENTINEL, broker_use_ssl=tls, broker_transport_options=options)
    pool: Any = connect(Settings.load(url=url).url).connection_pool
    assert issubclass(pool.connection_class, SentinelManagedSSLConnection) is secured
    assert pool.connection_kwargs.get("ssl_ca_certs") == (tls or {}).get("ssl_ca_certs")
    theirs = pool.sentinel_manager.sentinel_kwargs
    names = ("password", "ssl", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname")
    assert {name: theirs[name] for name in names if name in theirs} == sentinels
    assert pool.sentinel_manager.min_other_sentinels == 1


def test_an_address_of_sentinels_that_says_tls_once_means_both() -> None:
    both = parse_service("sentinel://h?service=m&ssl_ca_certs=/ca")
    assert (both.secured, both.sentinel_secured, both.sentinel_tls) == (
        True,
        True,
        {"ssl_ca_certs": "/ca"},
    )
    apart = parse_service("sentinel://h?service=m&sentinel_ssl_ca_certs=/ca")
    assert (apart.secured, apart.sentinel_secured, apart.sentinel_tls) == (
        False,
        True,
        {"ssl_ca_certs": "/ca"},
    )
    assert safe_url("sentinel://h?service=m&sentinel_ssl_password=s3cret") == (
        "sentinel://h?service=m&sentinel_ssl_password=***"
    )


class Tokens(UsernamePasswordCredentialProvider):
    """A provider that needs no arguments."""


@pytest.mark.parametrize(
    ("broker", "conf", "says"),
    [
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": True},
            "it must be a dict, such as {'ssl_cert_reqs': 'required'",
        ),
        ("sentinel://:s3cret@h", {"broker_use_ssl": True}, "it must be a dict, such as"),
        ("redis://:s3cret@h", {"broker_use_ssl": {"ca_certs": "/ca"}}, "use ssl_ca_certs, "),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_ocsp_context": object()}},
            "no address can carry",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_cert_reqs": "maybe"}},
            "none, optional or required",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_cert_reqs": [2]}},
            "none, optional or required",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_include_verify_flags": ["STRICT"]}},
            "can carry no list",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_password": lambda: "s3cret"}},
            "can carry no function",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_ca_data": b"s3cret"}},
            "can carry no bytes here",
        ),
        (
            "redis://:s3cret@h",
            {"broker_use_ssl": {"ssl_include_verify_flags": 32}},
            "can carry no int",
        ),
        (
            "redis+socket:///tmp/s",
            {"broker_use_ssl": {"ssl_ca_certs": "/ca"}},
            "remove broker_use_ssl",
        ),
        (
            "redis://h",
            {"broker_transport_options": {"socket_timeout": "soon"}},
            "socket_timeout='soon' in broker_tran",
        ),
        (
            "redis://h",
            {"broker_transport_options": {"socket_keepalive_options": {9999: 1}}},
            "keepalive_options={9999",
        ),
        (
            "redis://h?credential_provider=proj.Tokens",
            {},
            "give parsync a login of its own with Parsync",
        ),
        (
            "redis+socket:///tmp/s?credential_provider=proj.Tokens",
            {},
            "give parsync a login of its own",
        ),
        ("redis://h", {"broker_password": lambda: "s3cret"}, "give parsync a login of its own"),
        (
            "sentinel://h",
            {
                "broker_transport_options": {
                    "master_name": "m",
                    "sentinel_kwargs": {"credential_provider": Tokens()},
                }
            },
            "sentinel_kwargs has a credential provider",
        ),
        (
            "redis://h",
            {"broker_transport_options": {"global_keyprefix": "staging:"}},
            "name it with Parsync(app, clu",
        ),
    ],
)
def test_an_option_that_an_address_cannot_carry_is_refused_in_one_sentence(
    broker: str, conf: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PARSYNC_URL", "PARSYNC_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    app = Celery("proj", broker=broker, set_as_current=False)
    app.conf.update(conf)
    with pytest.raises(InvalidInput) as caught:
        Parsync(app).settings()
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_of_its_own_asks_the_broker_nothing() -> None:
    app = Celery("proj", broker="redis://h?credential_provider=proj.Tokens", set_as_current=False)
    app.conf.broker_use_ssl = True
    assert Parsync(app, url="rediss://parsync@h:1/0").settings().url == "rediss://parsync@h:1/0"


def test_an_address_is_read_with_the_names_of_pythons_constants() -> None:
    url = "rediss://h:1/0?ssl_cert_reqs=CERT_OPTIONAL&db=1"
    assert Settings.load(url=url).url == "rediss://h:1/0?ssl_cert_reqs=optional&db=1"
    assert options_of(url)["ssl_cert_reqs"] == "optional"


def test_a_cluster_of_its_own_lets_an_app_have_a_key_prefix() -> None:
    app = Celery("proj", broker="redis://h:1/0", set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "staging:"}
    assert Parsync(app, cluster="staging").settings().url == "redis://h:1/0"
