"""A reader parses only texts that have changed; its result is that of parsing all texts anew."""

from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.needs import Resources
from parsync_redis.placement.columns import Columns
from parsync_redis.scheduler.core.free_amounts import AmountsReader

OFFER = Resources.of(2, {"mem": 8, "cpu": 4})
INDEX = {f"n{at}": at for at in range(3)}
TEXTS = st.sampled_from(
    ["", "mem=8 cpu=4", "mem=1", "cpu=2", "mem=8 apart_web=0", "apart_web=0 apart_db=0", "x y"]
)
SNAPSHOTS = st.lists(
    st.dictionaries(st.sampled_from([*INDEX, "gone"]), TEXTS), min_size=1, max_size=5
)


def reader() -> AmountsReader:
    return AmountsReader(Columns([OFFER] * len(INDEX)), INDEX)


@given(SNAPSHOTS)
def test_a_long_lived_reader_shows_the_same_as_a_new_reader(
    snapshots: list[dict[str, str]],
) -> None:
    needs = [Resources.made(1, [(name, 1000)], ()) for name in ("mem", "apart_web")]
    one = reader()
    for texts in snapshots:
        left = one.read(texts)
        anew = reader().read(texts)
        for index in INDEX.values():
            mine = left.of_node(index)
            other = anew.of_node(index)
            assert {
                name: amount for name, amount in mine.items() if amount or name.startswith("apart_")
            } == {
                name: amount
                for name, amount in other.items()
                if amount or name.startswith("apart_")
            }
        left.take(needs[len(texts) % 2], [0])  # what a copy takes is its own
