"""The health of this process, and whether the cluster can place tasks. Pure."""

from dataclasses import asdict
from typing import Any

from ..inspect.checkup import judge_nodes, judge_schedulers, judge_writes
from ..inspect.server_checks import Check
from .surveyor import LatestSurvey


def freshness(latest: LatestSurvey) -> dict[str, Any]:
    """Return the fields of every answer that say how old the survey is."""
    age_s = latest.age_s
    fields = {"age_s": None if age_s is None else round(age_s, 3), "stale": latest.stale}
    return fields | ({"error": latest.error} if latest.error else {})


def judge_health(latest: LatestSurvey) -> tuple[bool, dict[str, Any]]:
    """Return whether the survey is recent, and the answer for /healthz."""
    return not latest.stale, {"ok": not latest.stale, **freshness(latest)}


def judge_health_for_submitters(latest: LatestSurvey) -> tuple[bool, dict[str, Any]]:
    """Judge as `judge_health`, without the error, which names the Redis server."""
    well, answer = judge_health(latest)
    return well, {key: value for key, value in answer.items() if key != "error"}


def judge_readiness(latest: LatestSurvey) -> tuple[bool, dict[str, Any]]:
    """Return whether a task can be placed, and the answer for /readyz."""
    checks = checks_of(latest)
    failed = [check for check in checks if check.level == "fail"]
    warned = [check for check in checks if check.level == "warn"]
    answer = {
        "ready": not failed,
        "reasons": [*map(asdict, failed)],
        "warnings": [*map(asdict, warned)],
    }
    return not failed, {**answer, **freshness(latest)}


def checks_of(latest: LatestSurvey) -> list[Check]:
    """Return the checks that fail or warn."""
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
