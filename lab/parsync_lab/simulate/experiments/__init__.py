"""The experiments: each module has parameters, runs, a summary and the claims that it checks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ..claims import ClaimCheck
from ..parameters import Parameters
from ..runs import SimRun
from . import (
    conflicts,
    extra_slots,
    fairness,
    jobs,
    omega,
    staleness,
    statesync,
    strategies,
    trace,
    unequal,
)


class Experiment(Protocol):
    """The interface of a module of this package.

    TITLE: the heading of its results.
    DEFAULTS: the parameters that differ from `Parameters`.
    USES: the parameters that have a meaning for it.
    """

    TITLE: str

    @property
    def DEFAULTS(self) -> Mapping[str, Any]: ...  # noqa: D102, N802

    @property
    def USES(self) -> frozenset[str]: ...  # noqa: D102, N802

    def runs(self, parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
        """Return the runs; `chosen` names the parameters that the user chose."""
        ...

    def checks(
        self, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
    ) -> list[ClaimCheck]:
        """Check the claims against the means over all seeds."""
        ...

    def draw(
        self,
        figure: Any,
        parameters: Parameters,
        series: Mapping[str, Any],
        summary: Mapping[str, Any],
    ) -> None:
        """Draw the plot on an empty matplotlib figure, in the layout of the paper's figure."""
        ...


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "strategies": strategies,
    "statesync": statesync,
    "conflicts": conflicts,
    "staleness": staleness,
    "extra-slots": extra_slots,
    "omega": omega,
    "trace": trace,
    "fairness": fairness,
    "jobs": jobs,
    "unequal": unequal,
}
