"""A map renderer: a Celery app whose tasks parsync places. `docker compose up` runs it.

    celery -A examples.tiles worker --concurrency 4 --parsync-score 2 --parsync-resource mem=2GiB
    parsync submit tiles.render 5

The map is the Mandelbrot set, cut into tiles. A tile is a list of rows; a row is a list of the
number of steps after which each point escaped. No tile needs a file, so the example runs anywhere,
and each tile uses real processor time.
"""

import os
import zlib
from typing import TypedDict

from celery import Celery, chord

from parsync_redis import Parsync, Settings

ACROSS = 8
"""Tiles along each side of the map, which is square."""

PIXELS = 48
"""Points along each side of a tile."""

MAX_STEPS = 200
"""A point that has not escaped after this many steps belongs to the set."""

Tile = list[list[int]]


class Summary(TypedDict):
    """The summary of a drawn tile."""

    points: int
    inside: int
    crc32: int


# Celery's broker and results: another server if the tasks are in a Redis Cluster, which Celery
# cannot use.
# with the password of PARSYNC_PASSWORD_FILE
url = Settings.load(url=os.environ.get("TILES_BROKER_URL")).url
app = Celery("tiles", broker=url, backend=url)
app.conf.update(result_expires=3600, broker_connection_retry_on_startup=True)
Parsync(app)


@app.task(name="tiles.render", parsync={"slots": 1, "priority": 5, "strategy": "quality"})
def render(tile: int) -> Tile:
    """Draw a tile, 0 to 63, on the best free node."""
    if not 0 <= tile < ACROSS * ACROSS:
        raise ValueError(f"tile {tile}: the map has the tiles 0 to {ACROSS * ACROSS - 1}")
    row, column = divmod(tile, ACROSS)
    side = 3.0 / ACROSS
    left_edge = -2.25 + column * side
    top = -1.5 + row * side
    step = side / PIXELS
    return [
        [steps_to_escape(complex(left_edge + x * step, top + y * step)) for x in range(PIXELS)]
        for y in range(PIXELS)
    ]


@app.task(name="tiles.summarize", parsync={"strategy": "latency"})
def summarize(tile: Tile) -> Summary:
    """Count the points of a drawn tile.

    The task is short, so it runs where the view is freshest.
    """
    points = [steps for row in tile for steps in row]
    return {
        "points": len(points),
        "inside": sum(steps == MAX_STEPS for steps in points),
        "crc32": zlib.crc32(repr(tile).encode()),
    }


@app.task(name="tiles.area", parsync={"priority": 9})
def area(summaries: list[Summary]) -> float:
    """Return the area of the set from the share of points inside.

    It is the last step of `survey`, so its priority is high.
    """
    return 9.0 * sum(s["inside"] for s in summaries) / sum(s["points"] for s in summaries)


@app.task(name="tiles.mosaic", parsync={"slots": 2, "resources": {"mem": "256MiB"}})
def mosaic(tiles: list[Tile]) -> Tile:
    """Join the tiles of one row of the map.

    The task holds them all, so it asks for two slots and for memory.
    """
    return [[steps for row in rows for steps in row] for rows in zip(*tiles, strict=True)]


@app.task(name="tiles.ping")
def ping() -> str:
    """Return pong; without `parsync=` the task goes through the broker."""
    return "pong"


def survey() -> float:
    """Draw the whole map and return its area, about 1.5.

    A chord of chains, of which parsync places each step.
    """
    drawn = chord((render.s(tile) | summarize.s() for tile in range(ACROSS * ACROSS)), area.s())
    return float(drawn.apply_async().get(timeout=600))


def steps_to_escape(c: complex) -> int:
    """Count the steps of z -> z*z + c from 0 that stay within 2, at most MAX_STEPS."""
    z = 0j
    for step in range(MAX_STEPS):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
        z = z * z + c
    return MAX_STEPS
