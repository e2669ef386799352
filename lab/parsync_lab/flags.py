"""The check of numbers that come from flags."""

from parsync_redis.errors import InvalidInput


def check_flag(flag: str, value: float, least: float, most: float, right: str = "") -> None:
    """Raise InvalidInput unless a number is from `least` to `most`.

    right: the rule for the message, if it says more than the range.
    """
    if not least <= value <= most:
        raise InvalidInput(
            f"{flag} {value:.15g} is not valid: it must be {right or f'from {least:g} to {most:,}'}"
        )
