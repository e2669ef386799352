"""The health file: renewed by renewals that succeeded, and by nothing else."""

import os
import subprocess

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.health_file import HealthFile
from tests.kit.documents import Document

PROBE = next(
    block.text for block in Document("docs/serve.md").blocks("sh") if "stat -c %Y" in block.text
)


def probe(path):
    """Return the exit code of the probe that docs/serve.md has."""
    return subprocess.run(
        ["sh", "-c", PROBE.replace("/tmp/parsync-health", str(path))], check=False, timeout=30
    ).returncode


def test_only_a_new_renewal_renews_the_health_file(tmp_path):
    path = tmp_path / "health"
    health = HealthFile(path)
    assert probe(path) != 0, "there is none yet"
    health.renew(10.0, "scheduler s1 is one of 2")
    assert path.read_text() == "scheduler s1 is one of 2\n"
    assert probe(path) == 0
    os.utime(path, (0, 0))
    health.renew(10.0, "scheduler s1 is one of 2")
    assert (probe(path), path.stat().st_mtime) == (1, 0), "the last renewal was told before"
    health.renew(11.0, "scheduler s1 is one of 2, the leader")
    assert probe(path) == 0
    health.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_health_file_of_an_earlier_process_is_removed(tmp_path):
    path = tmp_path / "health"
    path.write_text("well")
    HealthFile(path)
    assert not path.exists()


def test_a_health_file_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(
        InvalidInput,
        match=r"health file \S+/no/health cannot be written: \S+/no is no folder, or this",
    ):
        HealthFile(tmp_path / "no/health")
    with pytest.raises(InvalidInput, match="cannot be written: it is a folder"):
        HealthFile(tmp_path)


def test_an_unwritable_health_file_ages_and_is_logged_once(tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    health = HealthFile(folder / "health")
    folder.rmdir()
    for renewed_s in (1.0, 2.0):
        health.renew(renewed_s, "well")
    assert caplog.text.count("gets old") == 1


def test_a_process_without_one_writes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    health = HealthFile()
    health.renew(1.0, "well")
    health.remove()
    assert list(tmp_path.iterdir()) == []
