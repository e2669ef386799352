"""The parts of `parsync serve` that let submitters and operators change the cluster.

Each part is there only with its flag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.routing import Route

from ..client import ParsyncClient
from ..errors import InvalidInput
from .asker import Asker
from .gate import OperatorAuth, check_header, read_proxies
from .operate import OperatorPages
from .pages import Pages
from .passwords import load_operators
from .submit import SubmitterApi
from .submitters import Submitters, load_submitters
from .writer import Writer


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of `parsync serve` about submitters and operators."""

    submitters: Path | None = None
    submit_only: bool = False
    operators: Path | None = None
    operator_header: str = ""
    trusted_proxy: Sequence[str] = ()

    def check(self) -> None:
        """Raise InvalidInput for flags that do not go together."""
        if self.submit_only and not self.submitters:
            raise InvalidInput(
                "--submit-only leaves nothing but what --submitters opens: name the file of "
                "submitters"
            )
        if self.submit_only and (self.operators or self.operator_header):
            raise InvalidInput(
                "--submit-only shows no pages, so there is nothing for operators: leave one of "
                "them out"
            )
        if self.operators and self.operator_header:
            raise InvalidInput(
                "--operators and --operator-header are two ways to tell operators: give one"
            )
        if self.operator_header and not self.trusted_proxy:
            raise InvalidInput(
                "--operator-header needs --trusted-proxy, the address of the proxy: anybody else "
                "could set that header"
            )
        if self.trusted_proxy and not (self.operators or self.operator_header):
            raise InvalidInput(
                "--trusted-proxy is for operators: give --operators or --operator-header as well"
            )


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """The parts of `parsync serve` that may change the cluster.

    `WriteAccess()` changes nothing. opened: the threads that `close` ends.
    """

    submitters: Submitters | None = None
    submit_only: bool = False
    auth: OperatorAuth | None = None
    client: ParsyncClient | None = None
    opened: list[Asker | Writer] = field(default_factory=list)

    @classmethod
    def read(cls, flags: Flags, client: ParsyncClient) -> "WriteAccess":
        """Read the files that the flags name. Raises InvalidInput."""
        flags.check()
        submitters = load_submitters(flags.submitters) if flags.submitters else None
        auth = None
        cluster = client.settings.cluster
        proxies = read_proxies(flags.trusted_proxy)
        if flags.operators:
            auth = OperatorAuth(cluster, load_operators(flags.operators), proxies=proxies)
        elif flags.operator_header:
            auth = OperatorAuth(cluster, {}, check_header(flags.operator_header), proxies)
        return cls(submitters, flags.submit_only, auth, client)

    def routes(self, pages: Pages) -> list[Route]:
        """Return the routes for submitters and operators, and start their threads.

        These routes must stand before the routes for viewers. Call `close` afterwards.
        """
        if self.client is None or not (self.submitters or self.auth):
            return []
        # submitters have an asker of their own, so viewers cannot keep them waiting
        asker = Asker(self.client)
        writer = Writer()
        self.opened.extend((asker, writer))
        routes: list[Route] = []
        if self.submitters:
            routes += SubmitterApi(
                self.submitters, self.client, asker, writer, self.submit_only
            ).routes()
        if self.auth:
            routes += OperatorPages(self.auth, pages, self.client, writer).routes()
        return routes

    def close(self) -> None:
        """End the threads after what they have begun."""
        for thread in self.opened:
            thread.close()
