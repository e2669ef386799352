"""Judge whether this process is well, and whether the cluster can place anything. Pure."""

from dataclasses import asdict
from typing import Any

from ..inspect.checkup import judge_nodes, judge_schedulers, judge_writes
from ..inspect.server_checks import Check
from .surveyor import Latest


def freshness(latest: Latest) -> dict[str, Any]:
    """Return for programs how old the survey is: every answer has these fields."""
    age_s = latest.age_s
    found = {"age_s": None if age_s is None else round(age_s, 3), "stale": latest.stale}
    return found | ({"error": latest.error} if latest.error else {})


def judge_health(latest: Latest) -> tuple[bool, dict[str, Any]]:
    """Return whether the last reading is recent, and the answer for /healthz."""
    return not latest.stale, {"ok": not latest.stale, **freshness(latest)}


def judge_health_for_submitters(latest: Latest) -> tuple[bool, dict[str, Any]]:
    """Return the same without the error, which names the address of the Redis server."""
    well, answer = judge_health(latest)
    return well, {key: value for key, value in answer.items() if key != "error"}


def judge_readiness(latest: Latest) -> tuple[bool, dict[str, Any]]:
    """Return whether anything can be placed, and the answer for /readyz: failures and warnings."""
    checks = checks_of(latest)
    failed = [check for check in checks if check.level == "fail"]
    warned = [check for check in checks if check.level == "warn"]
    answer = {
        "ready": not failed,
        "reasons": [*map(asdict, failed)],
        "warnings": [*map(asdict, warned)],
    }
    return not failed, {**answer, **freshness(latest)}


def checks_of(latest: Latest) -> list[Check]:
    """Return what is wrong, or not as usual."""
    if latest.stale or latest.survey is None:
        age = "never" if latest.age_s is None else f"{latest.age_s:.0f} s ago"
        text = f"the cluster was last read {age}: {latest.error or 'the reading takes long'}"
        return [Check("survey", "fail", text, "parsync doctor")]
    survey = latest.survey
    checks = [
        *judge_writes(survey.refusals, of_a_part="warn"),
        *judge_schedulers(survey.schedulers, survey.refusals),
        *judge_nodes(list(survey.nodes)),
    ]
    return [check for check in checks if check.level != "ok"]
