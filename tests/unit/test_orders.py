"""Orders: by when a task should start, as a policy says."""

from itertools import count, pairwise
from pathlib import Path

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.model.order import EARLIEST_START_MS, LATEST_START_MS, PATIENCE_MS
from parsync_redis.orders import BUILT_IN, OrderFacts, find_order, offset_ms

MINUTE = 60_000
NUMBERS = count()
"""The numbers of the distributions of orders that the tests install."""


@pytest.mark.parametrize(
    ("order", "facts", "start_ms"),
    [
        ("age", OrderFacts("f"), PATIENCE_MS),
        ("age", OrderFacts("f", 5.0, age_ms=MINUTE, ran_ms=7), PATIENCE_MS - MINUTE),
        ("shortest", OrderFacts("f"), PATIENCE_MS),
        ("shortest", OrderFacts("f", 250.4), 2504),
        ("shortest", OrderFacts("f", 250.0, age_ms=MINUTE), 2500 - MINUTE),
        ("least", OrderFacts("f", 250.0), 0),
        ("least", OrderFacts("f", age_ms=MINUTE, ran_ms=2000), 20_000 - MINUTE),
        ("shortest", OrderFacts("f", 1e12), LATEST_START_MS),
        ("age", OrderFacts("f", age_ms=10**12), EARLIEST_START_MS),
    ],
)
def test_an_order_says_by_when_a_task_should_start(
    order: str, facts: OrderFacts, start_ms: int
) -> None:
    assert offset_ms(order, facts) == start_ms


@pytest.mark.parametrize("order", BUILT_IN)
def test_waiting_makes_no_task_later(order: str) -> None:
    starts = [
        age_ms + offset_ms(order, OrderFacts("f", 250.0, age_ms, 3000))
        for age_ms in range(0, 3_600_000, 60_000)
    ]
    assert all(later == before for before, later in pairwise(starts))


@pytest.mark.parametrize(
    ("order", "hint"), [("shortst", "; did you mean shortest?"), ("random", ""), ("", "")]
)
def test_an_unknown_order_is_refused_with_the_known_ones(order: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_order(order)
    assert str(caught.value) == f"no order {order!r}: known are age, shortest, least{hint}"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    """Install a distribution that adds an order; return the name of the order."""
    name = f"order{next(NUMBERS)}"
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[parsync.orders]\n{name} = {name}:Own\n")
    monkeypatch.syspath_prepend(folder)
    return name


def test_a_distribution_adds_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = install(
        tmp_path,
        monkeypatch,
        "class Own:\n    def start_by_ms(self, facts):\n        return 7 * len(facts.name)\n",
    )
    assert offset_ms(name, OrderFacts("abc")) == 21
    with pytest.raises(InvalidInput, match=f"known are age, shortest, least, {name}"):
        find_order("nothing")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nothing_like_this", "cannot be made: ModuleNotFoundError"),
        ("Other = 1", "cannot be made: AttributeError"),
        ("class Own:\n    def __init__(self, x): ...", "cannot be made: TypeError"),
        ("class Own: ...", "is not valid: it must be a class with start_by_ms(facts)"),
        (
            "class Own:\n    def start_by_ms(self, facts): return 1.5",
            "returned 1.5 for f: it must return a whole number of milliseconds",
        ),
        (
            "class Own:\n    def start_by_ms(self, facts): return facts.wrong",
            "failed for f: AttributeError",
        ),
    ],
)
def test_an_order_that_does_not_work_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    name = install(tmp_path, monkeypatch, code)
    with pytest.raises(InvalidInput) as caught:
        offset_ms(name, OrderFacts("f"))
    assert str(caught.value).startswith(f"order {name}")
    assert says in str(caught.value)
