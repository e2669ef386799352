"""The page of `parsync top` fits its window, shows first what is not well, and says how
old it is.
"""

from dataclasses import replace

import pytest

from parsync_redis.cli.top import page_lines
from parsync_redis.inspect.glance import Glance
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.model.views import KindView, NodeView
from parsync_redis.store.reads.demand import Counts
from parsync_redis.store.reads.schedulers import SchedulerView

NOW_MS = 1_795_633_448_000


def node(name, held=0, state="up"):
    return NodeView(
        name,
        0,
        state,
        False,
        1,
        1.0,
        4,
        4 - held,
        held,
        {"mem": 2**34},
        {"mem": 2**33},
        {},
        note="its disk",
    )


def running(id, s):
    times = {"submitted": NOW_MS - s * 1000, "started": NOW_MS - s * 1000, "finished": None}
    return TaskStatus(
        id,
        TaskState.RUNNING,
        "proj.render",
        1,
        1,
        0,
        "n1",
        0,
        needs="slots=1 mem=8589934592",
        times=times,
    )


ALIVE = SchedulerView("s1", 0, True, 1, {"delay_ms": "3.5"}, 0.1, True)
SILENT = SchedulerView("s2", 1, False, 1, {}, 99.0, False)
GLANCE = Glance(
    NOW_MS,
    [*(node(f"n{n}", n % 5) for n in range(40)), node("broken", 0, "suspect")],
    [
        SchedulerView("s1", 0, True, 1, {"delay_ms": "3.5"}, 0.1, True),
        SchedulerView("s2", 1, False, 1, {}, 99.0, False),
    ],
    [
        KindView(f"proj.k{n} slots=1", f"proj.k{n}", "slots=1", "", n, 0, "2 nodes fit: n1 is full")
        for n in range(30)
    ],
    Counts(4, 0, 44, 0, 0, 0),
    NOW_MS - 200_000,
    {"full": 400, "no_fit": 35},
    12.34,
    0.021,
    [running(f"task-{n}", 1000 - n) for n in range(20)],
    "",
)


@pytest.mark.parametrize("height", [16, 24, 50])
def test_top_fits_the_window_and_shows_the_worst_first(height):
    lines = page_lines(GLANCE, "", 0.0, "studio", 80, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= 80
    assert lines[:3] == [
        "studio 19:04:08 UTC  placed 12.3/s  conflicts 2.1%  delay 4ms",
        "schedulers 1 of 2, leader s1  slots 80 of 164 held",
        "waiting 435 (oldest 3m20s)  not due 4  placed or running 44  dead 0",
    ]
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["broken"].split()[:4] == ["broken", "suspect", "0", "4"]
    assert height < 24 or "mem=8GiB/16GiB" in rows["n14"]  # four of its four slots are held
    assert rows["task-0"].split()[-3:] == ["16m40s", "slots=1", "mem=8GiB"]
    assert "waiting: full 400, no_fit 35, of which" in "\n".join(lines)


def test_top_reports_an_absent_server_and_the_age_of_its_data():
    assert page_lines(None, "", 0.0, "studio", 80, 24)[0] == "cluster studio: it is being read"
    assert page_lines(None, "no answer", 0.0, "studio", 80, 24)[0] == "cluster studio: no answer"
    first, second, *_ = page_lines(GLANCE, "no answer", 12.0, "studio", 80, 24)
    assert first == "this is 12s old, and it is tried again: no answer"
    assert second.startswith("studio 19:04:08 UTC")


def test_a_cluster_of_nothing_has_a_page():
    empty = replace(
        GLANCE,
        nodes=[],
        schedulers=[],
        kinds=[],
        runs=[],
        reasons={},
        oldest_ms=None,
        placed_s=None,
    )
    assert "schedulers 0 of 0, leader none  slots 0 of 0 held" in page_lines(
        empty, "", 0.0, "studio", 80, 24
    )
