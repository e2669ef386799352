"""Read what waits, by kind: the demand that the nodes do not meet now."""

import logging
from typing import Final

from ..model.ids import shown
from ..model.kind import Kind, KindLine
from ..model.views import KindView
from .store import Store

log = logging.getLogger("parsync.store")

_SHOWN: Final = 3


def read_demand(store: Store) -> list[KindView]:
    """Return the kinds of which tasks wait, in the order of their first tasks. Raises ServerUnreachable.

    One read. Lines that cannot be read are left out, and a warning in the log names some: the leader repairs them.
    """
    found: list[tuple[int, KindView]] = []
    damaged: list[str] = []
    for text, line in store.hash(store.keys.queue("kinds")).items():
        try:
            kind, waits = Kind.of(text), KindLine.of(line)
        except ValueError:
            damaged.append(text)
            continue
        view = KindView(text, kind.name, kind.needs, kind.strategy, waits.count, waits.priority, waits.why)
        found.append((waits.first, view))
    if damaged:
        named = ", ".join(map(shown, damaged[:_SHOWN])) + (", ..." if len(damaged) > _SHOWN else "")
        log.warning("lines of kinds that cannot be read are left out: %d, of %s", len(damaged), named)
    return [view for _, view in sorted(found, key=lambda pair: pair[0])]
