"""Write every script into folders, and run luacheck on it: `python -m tests.kit.lua_lint LUACHECK`.

luacheck reads the whole script before the loader puts functions where they are called
(parsync_redis/store/scripts/inline.py), because that hides names. luacheck also reads the script as
it is sent, for names that nothing declares. Each warning names the script and shows the line,
because line numbers are those of the composed text.
"""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.scripts import compose, lua_folder
from tests.kit import REPO
from tests.kit.waiting import run

WARNING = re.compile(r"(\w+)\.lua:(\d+):\d+: (.*)")


def lint(luacheck: str, folder: Path) -> list[str]:
    """Return luacheck's warnings of the scripts before their functions are put where they are called,
    and of the scripts as they are sent, each once.

    The second check is of syntax and globals only (0, 1): moved functions leave shadowed names.
    """
    whole = {
        script.verb: compose(script.header, lua_folder(), inline=False) for script in ALL_SCRIPTS
    }
    sent = {script.verb: script.text for script in ALL_SCRIPTS}
    return check(luacheck, folder, whole) + check(
        luacheck, folder / "sent", sent, "--only", "0", "1"
    )


def check(luacheck: str, folder: Path, texts: Mapping[str, str], *options: str) -> list[str]:
    """Return luacheck's warnings of these texts, by verb, each once."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for verb, text in texts.items():
        (folder / f"{verb}.lua").write_text(text, encoding="utf-8")
    command = [
        luacheck,
        "--config",
        str(REPO / ".luacheckrc"),
        "--formatter",
        "plain",
        "--codes",
        ".",
        *options,
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
    warnings = lint(sys.argv[1], REPO / "build" / "lua")
    print("\n".join(warnings) or f"luacheck: {len(ALL_SCRIPTS)} scripts, no warnings")
    sys.exit(bool(warnings))
