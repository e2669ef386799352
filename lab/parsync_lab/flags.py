"""Check the numbers that flags of the lab's commands give."""

from parsync_redis.errors import InvalidInput


def check_flag(flag: str, value: float, least: float, most: float, right: str = "") -> None:
    """Raise InvalidInput unless a number is from `least` to `most`.

    right: what it must be, if that says more.
    """
    if not least <= value <= most:
        raise InvalidInput(
            f"{flag} {value:.15g} is not valid: it must be {right or f'from {least:g} to {most:,}'}"
        )
