"""Write the README of a distribution for an index page, which has no files beside it."""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)#]+)(#[^)]*)?\)")
_NOTE: Final = "\nPaths such as `docs/start.md` name files of the source distribution.\n"


class IndexReadme(MetadataHookInterface):
    """Makes the readme of the metadata, which pyproject.toml says is dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the readme to the metadata of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text, source)}


def index_readme(text: str, source: str = "") -> str:
    """Return the README with no relative link.

    `[start](docs/start.md)` becomes 'start (`docs/start.md`)'. source: the address under which the
    files can be read, from `project.urls`; links and pictures then begin with it.
    """

    def absolute(match: re.Match[str]) -> str:
        picture, words, path, anchor = match.groups(default="")
        if source:
            return f"{picture}[{words}]({source.rstrip('/')}/{path}{anchor})"
        if picture:
            return ""
        return words if words == path else f"{words} (`{path}`)"

    return _LINK.sub(absolute, text) + ("" if source else _NOTE)
