"""Libraries of Lua as tests run them: with what they include, and all functions at hand."""

import re

from parsync_redis.store.scripts.scripts import expand, lua_folder


def library_text(name: str) -> str:
    """Return the text of a library; `in_full()` has every function of it."""
    text = expand(f"lib/{name}", lua_folder(), [])
    functions = ", ".join(
        f"{found} = {found}" for found in re.findall(r"^local function (\w+)", text, re.MULTILINE)
    )
    return f"local in_full\n{text}\nfunction in_full() return {{{functions}}} end\n"
