"""Write every script as it is sent into a folder, and run luacheck on it: `python -m tests.lua.lint
LUACHECK`.

Each warning names the script and shows the line, because line numbers are those of the composed
text.
"""

import re
import sys
from pathlib import Path

from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from tests.waiting import run

ROOT = Path(__file__).resolve().parents[2]
WARNING = re.compile(r"(\w+)\.lua:(\d+):\d+: (.*)")


def lint(luacheck: str, folder: Path) -> list[str]:
    """Return luacheck's warnings, each once."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in ALL_SCRIPTS:
        (folder / f"{script.verb}.lua").write_text(script.text, encoding="utf-8")
    command = [
        luacheck,
        "--config",
        str(ROOT / ".luacheckrc"),
        "--formatter",
        "plain",
        "--codes",
        ".",
    ]
    done = run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"luacheck failed: {done.stdout}{done.stderr}")
    found: dict[tuple[str, str], str] = {}
    for verb, line, warning in WARNING.findall(done.stdout):
        text = (
            (folder / f"{verb}.lua").read_text(encoding="utf-8").splitlines()[int(line) - 1].strip()
        )
        found.setdefault((text, warning), f"{verb}: {warning}\n    {text}")
    return list(found.values())


if __name__ == "__main__":
    warnings = lint(sys.argv[1], ROOT / "build" / "lua")
    print("\n".join(warnings) or f"luacheck: {len(ALL_SCRIPTS)} scripts, no warnings")
    sys.exit(bool(warnings))
