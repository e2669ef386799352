"""The audit of the index of kinds: the lines and versions agree with the kinds' queues."""

from collections.abc import Iterator, Mapping

from parsync_redis.model.kind import KindLine

Orders = Mapping[str, float]
"""Waiting task -> its order."""


def audit_kinds(
    queues: Mapping[str, Orders],
    lines: Mapping[str, str],
    versions: Mapping[str, float],
    version: int,
) -> Iterator[str]:
    """Yield a sentence for each fault of the index.

    queues: kind -> its waiting tasks. lines: kind -> its line in the index.
    versions: kind -> the queue's version when the line changed. version: the queue's version now.
    """
    for kind in sorted({kind for kind, orders in queues.items() if orders} | lines.keys()):
        orders = queues.get(kind, {}).values()
        try:
            line = KindLine.of(lines[kind]) if kind in lines else None
        except ValueError as error:
            yield f"kind {kind}: {error}"
            continue
        if line is None or len(orders) != line.count:
            yield (
                f"kind {kind}: {len(orders)} tasks wait, its line says "
                f"{line.count if line else 'nothing'}"
            )
        elif min(orders) != line.first or max(orders) > line.last:
            yield (
                f"kind {kind}: its tasks are from {min(orders):.0f} to {max(orders):.0f}, its line "
                f"says {line}"
            )
        if not 1 <= versions.get(kind, 0) <= version:
            yield (
                f"kind {kind}: its line changed at version {versions.get(kind)}, the queue is at "
                f"{version}"
            )
    if len(set(versions.values())) < len(versions):
        yield "two kinds changed at the same version"
