"""The site builds strictly, with every page in its navigation; the pictures are small, and have
texts.
"""

import json
import logging
import re
import struct

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.kit import REPO
from tests.kit.blocks import all_pages, check_shell
from tests.kit.documents import Document

PICTURES = sorted((REPO / "docs/pictures").iterdir())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("mkdocs")
    logger.addHandler(handler)
    try:
        build(load_config(str(REPO / "mkdocs.yml"), site_dir=str(folder)))
    finally:
        logger.removeHandler(handler)
    assert found == [], "a link, an anchor or the navigation is wrong"
    return folder


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site):
    html = {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
    }
    pages = {
        name.removeprefix("docs/").replace(".md", ".html")
        for name in all_pages()
        if name != "README.md"
    }
    assert pages | {"404.html"} == html.keys()
    assert "0001-dependencies.html" in html["index.html"], "the navigation has the decisions"
    for name, text in html.items():
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//", text)
        assert not loaded, f"{name} loads something from elsewhere"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_a_link_into_a_page_leads_to_a_heading(name, site):
    for page, anchor in re.findall(r"\]\(docs/([\w/-]+)\.md#([\w-]+)\)", Document(name).text):
        assert f'id="{anchor}"' in (site / f"{page}.html").read_text(encoding="utf-8"), (
            f"{page}.md#{anchor}"
        )


def test_the_readme_is_a_first_screen():
    text = Document("README.md").text
    assert len(text.splitlines()) <= 150
    for word in (
        "@app.task(parsync=",
        "pictures/placement.svg",
        "pip install",
        "parsync dev",
        "error: task needs",
    ):
        assert word in text, f"README.md lacks {word}"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_shown_with_a_text(path):
    data = path.read_bytes()
    assert len(data) < 200_000
    pages = "".join(Document(name).text for name in all_pages() if name.count("/") < 2)
    assert re.search(rf"\[[^\]]{{10,}}\]\((?:docs/)?pictures/{re.escape(path.name)}\)", pages), (
        "no page shows it"
    )
    if path.suffix == ".svg":
        assert b'role="img"' in data
        assert b"<title" in data
        assert not re.search(rb"(?:href|src|url)\s*[=(]\s*[\"']?https?:", data), (
            "it loads something from elsewhere"
        )
    if path.suffix == ".png":
        assert struct.unpack(">I", data[16:20])[0] <= 1200, "it is wider than a page"


def test_the_recorded_session_types_commands_that_there_are():
    head, *events = map(
        json.loads, (REPO / "docs/pictures/session.cast").read_text(encoding="utf-8").splitlines()
    )
    assert head["version"] == 2
    assert [at for at, *_ in events] == sorted(at for at, *_ in events)
    shown = "".join(text for _, kind, text in events if kind == "o")
    lines = re.findall(r"\$\x1b\[0m (parsync .*?)\r\n", shown)
    assert len(lines) >= 4
    check_shell("\n".join(lines))
    assert "error: task needs" in shown
