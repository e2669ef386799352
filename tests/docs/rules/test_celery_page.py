from collections import Counter

from tests.parity.cases import CASES
from tests.parity.page import PAGE, page


def test_the_celery_page_equals_what_the_suite_generates() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.parity"


def test_every_case_has_a_unique_name_and_an_area() -> None:
    assert [id for id, n in Counter(case.id for case in CASES).items() if n > 1] == []
    assert len(CASES) >= 200
    assert all(case.area and case.pools for case in CASES)
