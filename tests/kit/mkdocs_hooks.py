"""A hook of MkDocs: the navigation lists every decision, so that a new one needs no line in
mkdocs.yml.
"""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Fill in the section Decisions."""
    docs = Path(config["docs_dir"])
    found = [
        path.relative_to(docs).as_posix() for path in sorted((docs / "decisions").glob("*.md"))
    ]
    for section in config["nav"]:
        if "Decisions" in section:
            section["Decisions"] = found
    return config
