"""Connect an AsyncParsyncClient, and say how that went."""

import asyncio

from parsync_redis import AsyncParsyncClient, Settings


def check_async(url: str) -> None:
    """Connect an AsyncParsyncClient; it tries once."""

    async def main() -> None:
        async with AsyncParsyncClient(Settings(url=url), retry_for_s=0.0) as client:
            await client.check()

    asyncio.run(main())
