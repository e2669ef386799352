"""A program that uses AsyncParsyncClient and prints what blocked its event loop."""

import asyncio
import importlib.metadata
import sys
import threading
import time
from contextlib import suppress

from parsync_redis import AsyncParsyncClient

ASKED = {
    "statuses": (["a", "b", "none"],),
    "explain": ("a",),
    "plan": ("proj.render",),
    "demand": (),
    "names": (),
    "dead": (),
    "nodes": (),
    "partitions": (),
    "evenness": (),
    "declared": (["proj.render"],),
}
"""Questions to a client: methods and their arguments."""

BLOCKS = ("open", "import", "subprocess.Popen", "socket.getaddrinfo")
seen: list[str] = []


def audit(event, args):
    """Take a call of Python's that blocks."""
    if "dist-info" in str(args[:1]) or ".zip" in str(args[:1]):
        return  # the look-up of an installed package
    if event in BLOCKS or (event == "socket.connect" and args[0].gettimeout() != 0):
        seen.append(f"{event} {args[0]!r}")


def profile(frame, event, called):
    """Take a sleep, of which Python 3.11 tells no audit hook."""
    if event == "c_call" and called is time.sleep:
        seen.append(f"time.sleep of {frame.f_code.co_name}")


async def main(url, cluster):
    """Ask for everything that there is."""
    client = AsyncParsyncClient.from_url(url, cluster=cluster)
    # as redis-py does for each connection; it imports a parser the first time
    importlib.metadata.version("redis")
    sys.addaudithook(audit)
    sys.setprofile(profile)
    async with client:
        await client.submit("proj.render", id="a")
        for method, args in ASKED.items():
            await getattr(client, method)(*args)
        await client.with_reasons([await client.status("a")])
        with suppress(TimeoutError):
            await client.wait(["a"], 0.02)
        async for _ in client.events():
            pass
        await client.cancel_where()
        await client.purge("cancelled")
    sys.setprofile(None)
    if threading.active_count() > 1:
        seen.append(f"threads {threading.enumerate()}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    print("blocked by", [*seen])
