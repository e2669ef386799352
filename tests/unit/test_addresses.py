"""Addresses of servers and brokers: which are Redis, and which are one place."""

import pytest
import redis
from celery import Celery

from parsync_redis import InvalidInput, Parsync
from parsync_redis.integration.address import broker_address, redis_url
from parsync_redis.model.address import parse_service
from parsync_redis.settings import Settings
from parsync_redis.store import connect
from parsync_redis.worker.node import place_of


def test_valkeys_addresses_are_redis_addresses() -> None:
    assert Settings.load(url="valkey://h:1/2").url == "redis://h:1/2"
    assert Settings.load(url="valkeys://h:1/2").url == "rediss://h:1/2"
    assert place_of("valkey://localhost") == place_of("redis://127.0.0.1:6379/0")
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


def test_two_addresses_are_one_place_if_server_and_database_are() -> None:
    assert place_of("redis://localhost") == place_of("redis://:pw@127.0.0.1:6379/0")
    assert place_of("redis://localhost/1") != place_of("redis://localhost/0")
    assert place_of("unix:///tmp/a?db=0") != place_of("unix:///tmp/b?db=0")


def test_a_broker_behind_sentinels_is_read_as_parsyncs_settings_say_it() -> None:
    app = Celery("behind", broker="sentinel://u:p%20w@a:1/2;sentinel://b:3/2", set_as_current=False)
    with pytest.raises(InvalidInput, match="which service is not said: set broker_transport_options"):
        broker_address(app.connection_for_write())
    app.conf.broker_transport_options = {"master_name": "m", "sentinel_kwargs": {"password": "s&"}}
    address = broker_address(app.connection_for_write())
    assert address == "sentinel://u:p%20w@a:1/2;sentinel://b:3/2?service=m&sentinel_password=s%26"
    service = parse_service(address)
    assert (service.name, service.sentinels, service.db) == ("m", (("a", 1), ("b", 3)), 2)
    assert (service.login, service.sentinel_login) == ({"username": "u", "password": "p w"}, {"password": "s&"})
    alone = Celery("alone", broker="sentinel://a:1/2", set_as_current=False)
    alone.conf.broker_transport_options = {"master_name": "m"}
    assert broker_address(alone.connection_for_write()) == "sentinel://a:1/2?service=m"


def test_an_app_whose_broker_is_not_redis_must_say_where_parsync_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARSYNC_URL", raising=False)
    app = Celery("rabbit", broker="amqp://u:secret@h//", set_as_current=False)
    with pytest.raises(InvalidInput, match="PARSYNC_URL") as caught:
        Parsync(app).settings()
    assert "secret" not in str(caught.value)


def test_an_option_in_a_sentinel_address_comes_before_ours() -> None:
    pool = connect("sentinel://h:1,h:2/3?service=m&socket_timeout=2").connection_pool
    assert (pool.connection_kwargs["socket_timeout"], pool.connection_kwargs["db"]) == (2.0, 3)
    assert connect("sentinel://h/3?service=m&db=4").connection_pool.connection_kwargs["db"] == 4
    with pytest.raises(InvalidInput, match="is not valid: Invalid value for 'socket_timeout'"):
        connect("sentinel://h?service=m&socket_timeout=soon")
