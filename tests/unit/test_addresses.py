"""Addresses of servers and brokers: which are Redis, and which are one place."""

from typing import Any

import pytest
import redis
from celery import Celery
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.address import broker_address, redis_url
from parsync_redis.model.address import (
    is_cluster,
    parse_cluster,
    parse_service,
    safe_url,
    with_password,
)
from parsync_redis.settings import Settings
from parsync_redis.store import connect


def test_valkeys_addresses_are_redis_addresses() -> None:
    assert Settings.load(url="valkey://h:1/2").url == "redis://h:1/2"
    assert Settings.load(url="valkeys://h:1/2").url == "rediss://h:1/2"
    assert connect("valkeys://h:1/2").connection_pool.connection_class is redis.SSLConnection


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("redis://:pw@h:1/2", "redis://:pw@h:1/2"),
        ("valkey://h:1/2", "redis://h:1/2"),
        ("rediss://h//", "rediss://h//"),
        ("redis://a;redis://b", "redis://a"),
        ("redis+socket:///tmp/s?virtual_host=3", "unix:///tmp/s?db=3"),
        ("socket:///tmp/s", "unix:///tmp/s"),
        ("amqp://guest@localhost//", None),
        ("sentinel://h:26379", None),
    ],
)
def test_a_brokers_address_is_read_as_redis_py_reads_it(broker: str, url: str | None) -> None:
    assert redis_url(broker) == url


def test_a_broker_behind_sentinels_is_read_as_parsyncs_settings_say_it() -> None:
    app = Celery("behind", broker="sentinel://u:p%20w@a:1/2;sentinel://b:3/2", set_as_current=False)
    with pytest.raises(
        InvalidInput, match="which service is not said: set broker_transport_options"
    ):
        broker_address(app.connection_for_write())
    app.conf.broker_transport_options = {"master_name": "m", "sentinel_kwargs": {"password": "s&"}}
    address = broker_address(app.connection_for_write())
    assert address == "sentinel://u:p%20w@a:1/2;sentinel://b:3?service=m&sentinel_password=s%26"
    service = parse_service(address)
    assert (service.name, service.sentinels, service.db) == ("m", (("a", 1), ("b", 3)), 2)
    assert (service.login, service.sentinel_login) == (
        {"username": "u", "password": "p w"},
        {"password": "s&"},
    )
    alone = Celery("alone", broker="sentinel://a:1/2", set_as_current=False)
    alone.conf.broker_transport_options = {"master_name": "m"}
    assert broker_address(alone.connection_for_write()) == "sentinel://a:1/2?service=m"


@pytest.mark.parametrize(
    ("broker", "says"),
    [
        ("amqp://u:secret@h//", "PARSYNC_URL"),
        ("redis+cluster://:secret@a:1,b:2", "cannot use a Redis Cluster as broker"),
    ],
)
def test_an_app_without_a_redis_server_as_broker_is_refused(
    broker: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARSYNC_URL", raising=False)
    app = Celery("elsewhere", broker=broker, set_as_current=False)
    with pytest.raises(InvalidInput, match=says) as caught:
        Parsync(app).settings()
    assert "secret" not in str(caught.value)


def test_an_option_in_a_sentinel_address_comes_before_ours() -> None:
    pool = connect("sentinel://h:1,h:2/3?service=m&socket_timeout=2").connection_pool
    assert (pool.connection_kwargs["socket_timeout"], pool.connection_kwargs["db"]) == (2.0, 3)
    assert connect("sentinel://h/3?service=m&db=4").connection_pool.connection_kwargs["db"] == 4
    with pytest.raises(
        InvalidInput, match="the option socket_timeout='soon' is not valid: it must be a"
    ):
        connect("sentinel://h?service=m&socket_timeout=soon")


def test_the_address_of_a_cluster_names_some_servers_and_a_login() -> None:
    seeds = parse_cluster("rediss+cluster://u:p%20w@a,b:7000/0?ssl_ca_certs=/x")
    assert (seeds.servers, seeds.login, seeds.secured) == (
        ("a:6379", "b:7000"),
        {"username": "u", "password": "p w"},
        True,
    )
    assert seeds.options == {"ssl_ca_certs": "/x"}
    address = "valkey+cluster://:secret@b:2,a:1"
    assert Settings.load(url=address).url == address
    assert safe_url(address) == "valkey+cluster://***@b:2,a:1"
    assert with_password("redis+cluster://u@a:1,b:2", "p w") == "redis+cluster://u:p%20w@a:1,b:2"


@pytest.mark.parametrize("rest", ["", ":7000", "a:1,:2", "a:1/3", "a:1,b:2?db=1", "a:port"])
def test_a_cluster_without_a_host_or_with_a_database_is_refused(rest: str) -> None:
    with pytest.raises(InvalidInput, match="redis\\+cluster"):
        Settings.load(url=f"redis+cluster://{rest}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h/0?foo=1", "there is no option 'foo'; known are client_name, db, "),
        ("redis://h/0?db=one", "the option db='one' is not valid: it must be a whole number"),
        ("redis://h/0?db=1&db=2", "the option db is given twice"),
        (
            "redis://h/0?socket_timeout=-1",
            "the option socket_timeout='-1' is not valid: it must be a number of seconds",
        ),
        ("redis://h/0?socket_timeout=0.0", "it must be a number of seconds above 0"),
        ("redis://h/0?decode_responses=1", "there is no option 'decode_responses'"),
        ("redis://h/0?ssl_ca_certs=/x", "the option ssl_ca_certs needs TLS"),
        ("rediss://h/0?ssl_cert_reqs=maybe", "it must be none, optional or required"),
        ("rediss://h/0?ssl_min_version=1.2", "it must be 771 (TLS 1.2) or 772 (TLS 1.3)"),
        ("rediss://h/0?ssl_include_verify_flags=STRICT", "names such as VERIFY_X509_STRICT"),
        ("rediss://h/0?ssl_check_hostname=off", "it must be true or false"),
        (
            "redis://h/0?socket_keepalive_options=4:60",
            "it must be NAME:NUMBER with commas, of TCP_KEEPCNT, ",
        ),
        ("redis://h/0?credential_provider=a.B", "there is no option 'credential_provider'"),
        ("redis://h:0/0", "a port is a number from 1 to 65535"),
        ("redis://h:99999/0", "a port is a number from 1 to 65535"),
        ("redis://h:port/0", "a port is a number"),
        ("redis://[::1/0", "an IPv6 address is in brackets"),
        ("redis://h/zero", "'zero' is no database"),
        ("redis://a..b/0", "'a..b' is no host"),
        ("redis://h%00/0", "is no host"),
        ("redis://h/0 ", "it contains ' '"),
        ("redis://:secret#1@h/0", "special characters in a user or a password are written %XX"),
        ("redis://h/0?password=", "the option password is not valid"),
        ("unix:///tmp/s?socket_keepalive=1", "there is no option 'socket_keepalive'"),
        ("unix:///?db=0", "it names no socket"),
        ("sentinel://a?service=m,b", "options come last, behind all hosts"),
        ("sentinel://a,b/0?service=m&x=1", "there is no option 'x'"),
        ("sentinel://a,:1?service=m", "a host is missing"),
        ("sentinel://a?db=1", "it must end in ?service=NAME"),
        ("redis+cluster://a,b?ssl_ca_certs=/x", "needs TLS"),
    ],
)
def test_an_unknown_part_of_an_address_is_refused_in_one_sentence(url: str, says: str) -> None:
    for read in (lambda: Settings.load(url=url), lambda: connect(url)):
        with pytest.raises(InvalidInput) as caught:
            read()
        assert says in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


HOSTS = [
    "h",
    "127.0.0.1",
    "[::1]",
    "[::1",
    "",
    "a..b",
    "h%00",
    "x" * 70,
    "ü",
    "a b",
    "h\n",
    "127.0.0.1,127.0.0.2",
]
PORTS = ["", ":1", ":", ":0", ":-1", ":65536", ":x", ":1:2", ":٣"]
LOGINS = ["", "@", "u@", ":p@", "u:p%20@", "u:p#@", "u:p/@", "\ud800:p@", ":%ff@", "a@b@"]
PATHS = ["", "/", "/0", "/15", "/-1", "/x", "/1/2", "//", "/99999999999", "/tmp/none", "/%00"]
NAMES = [
    "",
    "db",
    "socket_timeout",
    "socket_keepalive",
    "max_connections",
    "foo",
    "retry",
    "ssl",
    "ssl_cert_reqs",
    "host",
    "protocol",
    "password",
    "client_name",
    "service",
    "sentinel_ssl_ca_data",
    "socket_keepalive_options",
    "ssl_min_version",
    "connection_class",
    "path",
    "a;b",
    "encoding",
    "\x1b[2J",
]
VALUES = [
    "",
    "0",
    "1",
    "-1",
    "1e9",
    "1e999",
    "nan",
    "true",
    "x",
    "%00",
    "%FF",
    "a b",
    "none",
    "9" * 40,
    "٣",
    "1_0",
]
VALUES += ["771", "TCP_KEEPIDLE:60", "TCP_KEEPCNT:0,TCP_X:1"]
USUAL_PORT = 6379
NOBODYS_PORT = 1
SCHEMES = ["redis", "rediss", "valkey", "unix", "sentinel", "redis+cluster", "http", ""]


@seed(1)
@settings(max_examples=1500, deadline=None)
@given(
    *map(st.sampled_from, (SCHEMES, LOGINS, HOSTS, PORTS, PATHS)),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=2),
)
def test_any_address_connects_or_is_refused_in_one_sentence(
    scheme, login, host, port, path, options
) -> None:
    url = f"{scheme}://{login}{host}{port}{path}"
    url += "?" + "&".join(f"{name}={value}" for name, value in options) if options else ""
    refused = ""
    try:
        client = connect(url, 0.05)
        assert Settings.load(url=url).url
    except InvalidInput as error:
        refused = str(error)
    assert refused.isprintable(), url
    if not (refused or url.startswith("sentinel") or is_cluster(url)):
        connection: Any = client.connection_pool.make_connection()
        if getattr(connection, "port", None) == USUAL_PORT:  # somebody may listen there
            connection.port = NOBODYS_PORT
        with pytest.raises((RedisError, OSError)):
            connection.connect()
