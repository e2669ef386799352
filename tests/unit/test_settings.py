"""Settings: where each value comes from, and how each bad value is refused."""

import pytest
from pydantic import ValidationError

from parsync_redis.errors import InvalidInput
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import LAYOUT_VERSION, find_differences

RUNNING = {
    "partitions": "8",
    "gap_ms": "500",
    "lease_ms": "10000",
    "shards": "1",
    "scripts": LAYOUT_VERSION,
    "id": "5d41402abc4b2a76",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    for name in ("URL", "CLUSTER", "PARTITIONS", "GAP_S", "LEASE_S", "STRATEGY", "TAU_S", "CONFIG"):
        monkeypatch.delenv(f"PARSYNC_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_defaults_leave_to_the_cluster_what_it_shares():
    settings = Settings.load()
    assert (settings.url, settings.cluster) == ("redis://127.0.0.1:6379/0", "parsync")
    assert (settings.partitions, settings.gap_s, settings.lease_s) == (None, None, None)


def test_a_flag_beats_the_environment_beats_the_file(monkeypatch, tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('partitions = 3\ngap_s = 3.0\nlease_s = 3.0\ncluster = "three"\n')
    monkeypatch.setenv("PARSYNC_GAP_S", "2")
    monkeypatch.setenv("PARSYNC_LEASE_S", "2")
    settings = Settings.load(file, lease_s=1.0)
    assert (settings.partitions, settings.gap_s, settings.lease_s) == (3, 2.0, 1.0)
    assert settings.cluster == "three"


def test_the_file_is_named_by_the_environment_or_is_parsync_toml(monkeypatch, tmp_path):
    (tmp_path / "parsync.toml").write_text('cluster = "here"\n')
    assert Settings.load().cluster == "here"
    (tmp_path / "other.toml").write_text('cluster = "other"\n')
    monkeypatch.setenv("PARSYNC_CONFIG", "other.toml")
    assert Settings.load().cluster == "other"


def test_a_flag_that_is_none_was_not_given(monkeypatch):
    monkeypatch.setenv("PARSYNC_PARTITIONS", "5")
    assert Settings.load(partitions=None).partitions == 5


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        Settings.load().cluster = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"partitions": 0},
            "setting partitions=0 is not valid: it must be a whole number from 1 to 4096",
        ),
        ({"partitions": 4097}, "a whole number from 1 to 4096"),
        ({"partitions": "many"}, "setting partitions='many' is not valid"),
        (
            {"gap_s": 0.001},
            "setting gap_s=0.001 is not valid: it must be a number of seconds from 0.01 to 60",
        ),
        ({"gap_s": float("nan")}, "gap_s=nan"),
        ({"lease_s": 0.1}, "a number of seconds from 0.5 to 3600"),
        ({"lease_s": 1e9}, "a number of seconds from 0.5 to 3600"),
        ({"strategy": "best"}, "it must be one of latency, quality, adaptive"),
        (
            {"cluster": "a b"},
            "setting cluster='a b' is not valid: it must be 1 to 64 letters, digits or _.-",
        ),
        ({"url": "http://host"}, "it must be redis://HOST:PORT/DB"),
        ({"url": "redis://"}, "it must be redis://HOST:PORT/DB"),
        ({"max_starts": 0}, "a whole number from 1 to 1000"),
        ({"retention_s": -1}, "a whole number of seconds from 1"),
        ({"tau_s": 0}, "a number of seconds from 0.001 to 3600"),
        (
            {"partitons": 8},
            "unknown setting 'partitons': known are url, cluster, partitions, shards, gap_s",
        ),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence(flags, says):
    with pytest.raises(InvalidInput) as caught:
        Settings.load(**flags)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refusal_names_the_source_of_the_value(monkeypatch, tmp_path):
    (tmp_path / "parsync.toml").write_text("lease_s = 0\n")
    monkeypatch.setenv("PARSYNC_PARTITIONS", "x")
    with pytest.raises(InvalidInput) as caught:
        Settings.load()
    assert "partitions='x' (from PARSYNC_PARTITIONS)" in str(caught.value)
    assert "lease_s=0 (from parsync.toml)" in str(caught.value)


def test_a_password_is_never_shown():
    with pytest.raises(InvalidInput) as caught:
        Settings.load(url="http://user:secret@host:1/0")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Settings.load(url="redis://user:secret@host:1/0"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "partitons = 8",
            "unknown setting 'partitons' in bad.toml: known are url, cluster, partitions",
        ),
        ("partitions = ", "settings file bad.toml is not TOML"),
        (None, "settings file bad.toml cannot be read: No such file or directory"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, says):
    if text is not None:
        (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        Settings.load("bad.toml")
    assert says in str(caught.value)


def test_a_setting_that_is_unset_or_equal_is_no_difference():
    assert find_differences(RUNNING, Settings.load()) == []
    assert find_differences(RUNNING, Settings.load(partitions=8, gap_s=0.5, lease_s=10)) == []


def test_each_difference_from_the_running_cluster_is_named():
    settings = Settings.load(partitions=16, gap_s=0.25, lease_s=10)
    assert find_differences(RUNNING, settings) == [
        "partitions=8 (you asked for 16)",
        "gap_s=0.5 (you asked for 0.25)",
    ]


def test_another_layout_of_scripts_is_a_difference():
    assert (
        "scripts of layout 0" in find_differences({**RUNNING, "scripts": "0"}, Settings.load())[0]
    )


@pytest.mark.parametrize(
    "url",
    [
        "sentinel://h",
        "sentinel://?service=m",
        "sentinel://h:x/0?service=m",
        "sentinel://h/zero?service=m",
    ],
)
def test_an_address_of_sentinels_names_hosts_and_a_service(url):
    with pytest.raises(InvalidInput, match=r"sentinel://HOST:PORT,HOST:PORT/DB\?service=NAME"):
        Settings.load(url=url)
    assert Settings.load(url="sentinel://h,i:2/1?service=m").url == "sentinel://h,i:2/1?service=m"


def test_the_password_of_a_service_is_in_a_file_and_is_the_servers(tmp_path):
    (tmp_path / "password").write_text("p@w\n")
    for url, complete in (
        ("sentinel://h,i/1?service=m", "sentinel://:p%40w@h,i/1?service=m"),
        (
            "sentinel://u@h;sentinel://u@i?service=m",
            "sentinel://u:p%40w@h;sentinel://u@i?service=m",
        ),
    ):
        assert Settings.load(url=url, password_file=tmp_path / "password").url == complete
