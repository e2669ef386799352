"""`make celery-suite` reads the reports of Celery's own suite, and each difference is explained."""

import pytest

from tests.kit.documents import Document
from tests.kit.offenders import none_wrong
from tests.parity.celery_suite.compare import complaints, differences, read, unknown

BOTH = {"passes": True, "fails": False}
ALL = {"passes": True, "fails": True}
KNOWN = {"fails": "a passage"}
ID = '<properties><property name="id" value="t/test_a.py::{}"/></properties>'
REPORT = f"""<testsuites><testsuite>
<testcase classname="t.test_a" name="passed">{ID.format("passed")}</testcase>
<testcase classname="t.test_a" name="failed">{ID.format("failed")}<failure/></testcase>
<testcase classname="t.test_a" name="erred">{ID.format("erred")}<error/></testcase>
<testcase classname="t.test_a" name="skipped">{ID.format("skipped")}<skipped type="pytest.skip"/></testcase>
<testcase classname="t.test_a" name="expected">{ID.format("expected")}<skipped type="pytest.xfail"/></testcase>
<testcase classname="t.test_a" name="ended">{ID.format("ended")}</testcase>
<testcase classname="t.test_a" name="ended">{ID.format("ended")}<error/></testcase>
<testcase classname="" name="t.test_b"><error/></testcase>
</testsuite></testsuites>"""


def test_the_passage_of_each_difference_is_on_the_page():
    page = " ".join(Document("docs/celery.md").text.split())
    assert differences()
    none_wrong(
        "a passage is on the page",
        {passage for passage in differences().values() if passage not in page},
    )


@pytest.mark.parametrize(
    ("plain", "placed", "known", "wrong"),
    [
        ({}, ALL, {}, None),
        (BOTH, BOTH, {}, None),
        ({}, BOTH, KNOWN, None),
        (ALL, BOTH, {}, "fails passes plain and does not pass placed"),
        ({}, BOTH, {}, "fails passes plain and does not pass placed"),
        ({}, ALL, KNOWN, "fails passes placed: take it out"),
        ({}, ALL, {"gone": "a passage"}, "gone of differences.toml is no test"),
    ],
)
def test_each_difference_must_be_listed_and_each_listed_difference_must_occur(
    plain, placed, known, wrong
):
    lines = [*complaints(plain, placed, known)]
    assert len(lines) == (wrong is not None)
    assert all(line.startswith(wrong) for line in lines)


def test_an_unlisted_failure_runs_again_under_plain_celery():
    assert unknown(BOTH, {}) == ["fails"]
    assert unknown(BOTH, KNOWN) == []


def test_a_report_tells_passed_tests_from_failed_tests(tmp_path):
    (tmp_path / "junit.xml").write_text(REPORT)
    assert read(tmp_path / "junit.xml") == {
        "t/test_a.py::passed": True,
        "t/test_a.py::failed": False,
        "t/test_a.py::erred": False,
        "t/test_a.py::expected": True,
        "t/test_a.py::ended": False,
        ".t.test_b": False,
    }
