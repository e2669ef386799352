"""The view and the scripts agree on what fits."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.needs import Resources, parse_resources
from parsync_redis.placement.fits import fits
from parsync_redis.store import Store
from parsync_redis.store.scripts import lua_folder

AMOUNTS = st.dictionaries(st.sampled_from(["gpu", "mem", "cpu"]), st.integers(0, 3) | st.integers(0, 2**53 - 1))
LABELS = st.dictionaries(
    st.sampled_from(["zone", "gpu", "z", "zone.a"]), st.sampled_from(["a", "ab", "a.b", "%a", "-"][:3])
)
RESOURCES = st.builds(Resources.of, st.integers(1, 4), AMOUNTS, LABELS)
PAIRS = st.tuples(RESOURCES, RESOURCES) | RESOURCES.map(lambda resources: (resources, resources))
SCRIPT = (
    (Path(lua_folder()) / "lib" / "fits.lua").read_text()
    + """
local answers = {}
for i = 1, #ARGV, 2 do answers[#answers + 1] = fits(ARGV[i], ARGV[i + 1]) and 1 or 0 end
return answers
"""
)


def test_what_fits_for_the_view_fits_for_the_scripts(any_store: Store):
    client: Any = any_store.client

    @given(st.lists(PAIRS, min_size=1, max_size=50))
    def same(pairs: list[tuple[Resources, Resources]]) -> None:
        answers = client.eval(SCRIPT, 0, *(resources.text for pair in pairs for resources in pair))
        assert [bool(answer) for answer in answers] == [fits(offer, needs) for offer, needs in pairs]
        assert all(parse_resources(resources.text) == resources for pair in pairs for resources in pair)

    same()
