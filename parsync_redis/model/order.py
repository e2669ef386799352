"""The order of a task: its priority, and the time by which it should start.

The task with the lowest order is taken first. lua/lib/task/order.lua has the same numbers.
"""

from typing import Final

ORDERS_OF_PRIORITY: Final = 9 * 10**14
"""Number of orders of a priority.

An order is (9 - priority) * ORDERS_OF_PRIORITY plus the time by which the task should start, in
hundredths of a ms since 2020. That is below 2^53, so a double has each order exactly.
"""

ORDERS_OF_MS: Final = 100
"""Number of orders of a ms."""

MAX_ORDER: Final = 10 * ORDERS_OF_PRIORITY - 1
"""The highest order."""

YEAR_2020: Final = 157_783_680_000_000
"""2020-01-01, in hundredths of a ms since 1970."""

PATIENCE_MS: Final = 600_000
"""A task should start so long after its submission, unless its submission says another time."""

EARLIEST_START_MS: Final = -86_400_000
LATEST_START_MS: Final = 31_536_000_000
"""A task should start at most a day before its submission, and at most a year after it."""


def order_of(priority: int, start_by: int) -> int:
    """Return the order of a task of this priority.

    start_by: the time by which it should start, in hundredths of a ms since 1970.
    """
    return (9 - priority) * ORDERS_OF_PRIORITY + start_by - YEAR_2020


def priority_of(order: int) -> int:
    """Return the priority of a task with this order, 0 to 9."""
    return 9 - min(order // ORDERS_OF_PRIORITY, 9)


def with_priority(order: int, priority: int) -> int:
    """Return an order with another priority, and the same time."""
    return (9 - priority) * ORDERS_OF_PRIORITY + order % ORDERS_OF_PRIORITY
