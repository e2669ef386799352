"""The reader of Azure's packing trace of 2020: requests for virtual machines, on equal servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from parsync_redis.model.needs import Resources

from .records import DAY_S, CsvRow, read_records

MACHINE_COLUMNS: Final = ("vmId", "cores", "ram", "starttime", "endtime")
SERVER_CORES: Final = 9600
SERVER_RAM: Final = 2250
"""What a server has, in the units of the trace."""

SERVER_SLOTS: Final = 100
"""The slots of a server. Each machine needs one, and no server may run out of them."""

MOST_DAYS: Final = 100_000.0


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A request for a virtual machine, which is there from `at_s` until before `end_s` (or inf)."""

    name: str
    cores: int
    ram: int
    at_s: float
    end_s: float

    @property
    def needs(self) -> Resources:
        """Return what the machine needs."""
        return Resources.needed(1, {"cores": self.cores, "ram": self.ram}, {})


@dataclass(frozen=True)
class AzureTrace:
    """The requests in the order in which they come; the first comes at 0 s."""

    requests: Sequence[MachineRequest]

    @cached_property
    def interval_s(self) -> float:
        """The mean time from one request to the next."""
        return self.requests[-1].at_s / max(1, len(self.requests) - 1)

    @cached_property
    def least_servers(self) -> int:
        """The number of servers that have as much as all machines hold at once, at the most."""
        steps = [(request.at_s, 1, request) for request in self.requests]
        steps += [(request.end_s, -1, request) for request in self.requests]
        steps.sort(key=lambda step: step[:2])
        most = 0.0
        cores = 0
        ram = 0
        for _, sign, request in steps:
            cores += sign * request.cores
            ram += sign * request.ram
            most = max(most, cores / SERVER_CORES, ram / SERVER_RAM)
        return max(1, -int(-most // 1))


def read_azure_trace(path: Path, limit: int | None = None) -> AzureTrace:
    """Read the first `limit` requests; raises InvalidInput.

    Machines that are there from the start come before all others, one after another at the mean
    interval of the others.
    """
    requests = sorted(read_records(path, MACHINE_COLUMNS, _request), key=lambda r: r.at_s)
    old = [request for request in requests if request.at_s < 0]
    new = requests[len(old) :]
    interval_s = (new[-1].at_s - new[0].at_s) / (len(new) - 1) if len(new) > 1 else 1.0
    begin_s = len(old) * interval_s
    arrivals_s = [number * interval_s for number in range(len(old))]
    arrivals_s += [begin_s + request.at_s for request in new]
    return AzureTrace(
        [
            MachineRequest(r.name, r.cores, r.ram, at_s, max(at_s, begin_s + r.end_s))
            for r, at_s in zip(requests, arrivals_s, strict=True)
        ][:limit]
    )


def _request(row: CsvRow) -> MachineRequest:
    begin = row.number_from("starttime", -MOST_DAYS, MOST_DAYS, "a number of days")
    end = row.number_from("endtime", begin, float("inf"), "a number of days, after starttime")
    request = MachineRequest(
        row.named("vmId"),
        _amount(row, "cores", SERVER_CORES),
        _amount(row, "ram", SERVER_RAM),
        begin * DAY_S,
        end * DAY_S,
    )
    row.check(lambda: request.needs)
    return request


def _amount(row: CsvRow, column: str, most: int) -> int:
    """Return an amount, which the file may write as 400.0."""
    right = f"a whole number from 1 to {most:,}, what a server has"
    amount = row.number_from(column, 1, most, right)
    if amount % 1:
        raise row.error(f"{column} {amount:g} is not valid: it must be {right}")
    return int(amount)
