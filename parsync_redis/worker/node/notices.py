"""Notices: how a node learns when it leaves, from a file, a URL, a function or its cloud.

The text of a source is empty while the node stays. Else it is the time at which the node leaves, a
date and time or the seconds from when the text was first read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.error import HTTPError

from ...errors import InvalidInput
from ...model.ids import shown
from ...model.node import MAX_LEAVING_S
from .sources import CGROUP, TextSource, checked_url, read_url, source_of

INTERVAL_S: Final = 5.0
"""Interval at which a node asks for its notice."""
METADATA_VARIABLE: Final = "PARSYNC_METADATA_URL"
"""The environment variable with the address of a cloud's metadata service."""
GCP_NOTICE_S: Final = 25
"""Seconds that a preempted machine of Google Cloud has left: 30, and INTERVAL_S may be over."""
SAME_S: Final = 2.0
"""A countdown that says another time by so many seconds at most has told nothing new."""
_LINK_LOCAL: Final = "http://169.254.169.254"
_AZURE_HEADERS: Final = {"Metadata": "true"}
_AZURE_ENDINGS: Final = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""The events of Azure after which no process of the machine lives; Freeze only holds them up."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """When a node leaves: at a time, or so many seconds after the text was read (monotonic)."""

    at_ms: int | None
    due_s: float = 0.0

    def until_ms(self, now_ms: int) -> int:
        """Return when the node leaves by the server's clock, at least 1."""
        if self.at_ms is not None:
            return max(1, self.at_ms)
        return max(1, now_ms + round(1000 * (self.due_s - time.monotonic())))

    def is_like(self, before: Leaving | None) -> bool:
        """Return whether two texts say the same time."""
        if before is None or self.at_ms is not None or before.at_ms is not None:
            return self == before
        return abs(self.due_s - before.due_s) <= SAME_S


def read_leaving(text: str, now_s: float) -> Leaving | None:
    """Return what the text of a source says, None if the node stays; raises ValueError.

    now_s: monotonic seconds.
    """
    words = text.strip()
    if not words:
        return None
    is_number = words.replace(".", "", 1).isdecimal() and words.isascii()
    try:
        moment = None if is_number else datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(
            f"{shown(words)} is no notice: it must be empty, a date and time "
            "(2026-11-28T14:30:00Z) or a number of seconds"
        ) from None
    if moment is not None:
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return Leaving(round(1000 * at_s))
    ahead_s = float(words)
    if ahead_s > MAX_LEAVING_S:
        raise ValueError(f"{shown(words)} is no notice: a year from now is the longest time")
    return Leaving(None, now_s + ahead_s)


def read_aws(base_url: str) -> str:
    """Return the notice of a spot instance of AWS; raises OSError or ValueError."""
    token = read_url(
        f"{base_url}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"
    )
    try:
        action = read_url(
            f"{base_url}/latest/meta-data/spot/instance-action",
            {"X-aws-ec2-metadata-token": token},
        )
    except HTTPError as error:
        if error.code == 404:  # no interruption is due
            return ""
        raise
    return str(json.loads(action)["time"])


def read_gcp(base_url: str) -> str:
    """Return the notice of a machine of Google Cloud; raises OSError."""
    preempted = read_url(
        f"{base_url}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}
    )
    return str(GCP_NOTICE_S) if preempted.strip().upper() == "TRUE" else ""


def read_azure(base_url: str) -> str:
    """Return the notice of a machine of Azure; raises OSError or ValueError.

    The events of other machines of a set are in the same document.
    """
    document = json.loads(
        read_url(
            f"{base_url}/metadata/scheduledevents?api-version=2020-07-01", headers=_AZURE_HEADERS
        )
    )
    events = [event for event in document["Events"] if event["EventType"] in _AZURE_ENDINGS]
    if not events:
        return ""
    name = read_url(
        f"{base_url}/metadata/instance/compute/name?api-version=2021-02-01&format=text",
        headers=_AZURE_HEADERS,
    ).strip()
    times = [_begin_of(event) for event in events if name in event["Resources"]]
    return min(times) if times else ""


def _begin_of(event: Mapping[str, str]) -> str:
    """Return when an event of Azure begins at the earliest; '0', now, if it has begun."""
    if not event["NotBefore"] or event["EventStatus"] == "Started":
        return "0"
    return parsedate_to_datetime(event["NotBefore"]).astimezone(UTC).isoformat()


CLOUDS: Final[Mapping[str, tuple[Callable[[str], str], str]]] = {
    "aws": (read_aws, _LINK_LOCAL),
    "gcp": (read_gcp, "http://metadata.google.internal"),
    "azure": (read_azure, _LINK_LOCAL),
}
"""By name of a cloud: how to read its notice, and where its metadata service is."""


def notice_source(flag: str, text: str) -> TextSource:
    """Return the source of notices that a flag names; raises InvalidInput.

    flag: the flag or variable, for messages.
    """
    if text in CLOUDS:
        read, base_url = CLOUDS[text]
        own_url = os.environ.get(METADATA_VARIABLE, "")
        return partial(read, checked_url(METADATA_VARIABLE, own_url) if own_url else base_url)
    if text == CGROUP:
        raise InvalidInput(
            f"{flag} {text} is not valid: it must be {', '.join(CLOUDS)}, the path of a file, "
            "http://HOST/PATH or module:function"
        )
    source = source_of(flag, text, absent=True)

    def read_if_there() -> str:
        try:
            return source()
        except FileNotFoundError:  # the file comes with the notice
            return ""

    return read_if_there
