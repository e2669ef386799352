"""What `.ci/celery-suite` makes of the reports of Celery's suite, and that each difference is explained."""

import pytest

from tests.celery_suite.compare import complaints, differences, read
from tests.documents import Document

SAME = {"passes": True, "fails": False}
KNOWN = {"fails": "a passage"}
REPORT = """<testsuites><testsuite>
<testcase classname="t.integration.test_canvas.test_chain" name="test_a"/>
<testcase classname="t.integration.test_canvas.test_chain" name="test_b"><failure/></testcase>
<testcase classname="t.integration.test_canvas.test_chain" name="test_c"><error/></testcase>
<testcase classname="t.integration.test_worker" name="test_d"><skipped type="pytest.skip"/></testcase>
<testcase classname="t.integration.test_worker" name="test_e"><skipped type="pytest.xfail"/></testcase>
<testcase classname="t.integration.test_worker" name="test_f"/>
<testcase classname="t.integration.test_worker" name="test_f"><error/></testcase>
</testsuite></testsuites>"""


def test_the_passage_of_each_difference_is_on_the_page():
    page = Document("docs/celery.md").text
    assert differences()
    assert {*differences().values()} == {passage for passage in differences().values() if passage in page}


@pytest.mark.parametrize(
    ("plain", "placed", "known", "wrong"),
    [
        (SAME, SAME, {}, None),
        (SAME, {**SAME, "fails": True}, {}, None),
        ({**SAME, "fails": True}, SAME, KNOWN, None),
        ({**SAME, "fails": True}, SAME, {}, "fails passes plain and does not pass placed"),
        (SAME, {**SAME, "fails": True}, KNOWN, "fails passes placed: take it out"),
        (SAME, {"passes": True}, {}, "fails ran plain only"),
        ({"passes": True}, SAME, {}, "fails ran placed only"),
        (SAME, SAME, {"gone": "a passage"}, "gone of differences.toml is no test"),
    ],
)
def test_a_difference_must_be_known_and_one_that_is_known_must_be_there(plain, placed, known, wrong):
    lines = [*complaints(plain, placed, known)]
    assert len(lines) == (wrong is not None)
    assert all(line.startswith(wrong) for line in lines)


def test_a_report_says_what_passed(tmp_path):
    (tmp_path / "junit.xml").write_text(REPORT)
    assert read(tmp_path / "junit.xml") == {
        "test_canvas.test_chain.test_a": True,
        "test_canvas.test_chain.test_b": False,
        "test_canvas.test_chain.test_c": False,
        "test_worker.test_e": True,
        "test_worker.test_f": False,
    }
