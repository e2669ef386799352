"""Calls on what the cluster shares: settings, schedulers, the assignment of nodes to partitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ....model.booking import Booking
from ....model.replies import Members, WrittenPolicy
from ....model.streak import Compared, Elsewhere
from ....model.times import HALVE_ABOVE, RunTimes
from ....model.used_share import half_life_ms
from ..header import Once
from ..lengths import cut
from ..scripts import Script
from .base import Call, Calls, Reply, pairs, text

CONFIGURE: Final = Script("configure")
DEAL_NODE: Final = Script("deal_node")
RENEW_SCHEDULER: Final = Script("renew_scheduler")
RECORD_LOSS: Final = Script("record_loss")
LEARN_TIMES: Final = Script("learn_times")
REPORT_FAILURES: Final = Script("report_failures")
BOOK: Final = Script("book")
WRITE_POLICY: Final = Script("write_policy")
NOTE_SHARES: Final = Script("note_shares")
CLUSTER_SCRIPTS: Final = (
    CONFIGURE,
    DEAL_NODE,
    RENEW_SCHEDULER,
    RECORD_LOSS,
    LEARN_TIMES,
    BOOK,
    REPORT_FAILURES,
    WRITE_POLICY,
    NOTE_SHARES,
)

_NAME_VALUE: Final = ("name", "value")


class ClusterCalls(Calls):
    """Calls on the keys of the whole cluster. A script's header says what the script does."""

    def configure(
        self, settings: Mapping[str, str | int], over: bool = False
    ) -> Call[dict[str, str]]:
        """Write the cluster's settings if it has none; return its settings. {} only reads.

        over: replace other values, because they are damaged.
        """

        def read(reply: Reply) -> dict[str, str]:
            return {text(name): text(value) for name, value in pairs(reply)}

        return Call(
            CONFIGURE,
            [self.keys.shared("config")],
            CONFIGURE.arguments(
                {"over": int(over)},
                _NAME_VALUE,
                [word for pair in settings.items() for word in pair],
            ),
            read,
        )

    def deal_node(
        self, node: str, partitions: int, labels: str, slots: int, score: float
    ) -> Call[int]:
        """Return the number of the partition that a node belongs to; slots 0 forgets the node.

        node '': remove the sums that are 0, which earlier versions left; return 0.
        """
        once: Once = {
            "node": node,
            "partitions": partitions,
            "labels": labels,
            "slots": slots,
            "score": repr(score),
        }
        return Call(DEAL_NODE, [self.keys.shared("dealt")], DEAL_NODE.arguments(once), int)

    def renew_scheduler(
        self,
        me: str,
        seen_leader: str = "",
        lost: str = "",
        stats: Mapping[str, str | int | float] | None = None,
        stay: bool = True,
        at_most: int = 0,
    ) -> Call[Members]:
        """Move this scheduler's counter, or with `stay` False leave; return the members.

        seen_leader: the leader's lease if it stood still too long; this scheduler takes over then.
        lost: 'NAME COUNTER' of a member that is lost.
        stats: figures of this scheduler.
        at_most: join only while there are fewer members, else stand by; 0 always joins.
        """

        def read(reply: Reply) -> Members:
            return Members(
                text(reply[0]), int(reply[1]), {text(name): int(n) for name, n in pairs(reply[2:])}
            )

        once: Once = {
            "scheduler": me,
            "seen_leader": seen_leader,
            "stay": "stay" if stay else "",
            "lost": lost,
            "at_most": at_most,
        }
        figures = [word for pair in (stats or {}).items() for word in pair]
        keys = [self.keys.shared("schedulers"), self.keys.shared("leader"), self.keys.stats(me)]
        return Call(
            RENEW_SCHEDULER, keys, RENEW_SCHEDULER.arguments(once, _NAME_VALUE, figures), read
        )

    def record_loss(self, losses: str, keep_s: int) -> Call[int]:
        """Record a loss of writes: 'WHO NAME=WAS->IS ...'; return 1 if the loss is new."""
        once: Once = {"seen": cut(losses), "keep_s": keep_s}
        return Call(RECORD_LOSS, [self.keys.shared("losses")], RECORD_LOSS.arguments(once), int)

    def learn_times(self, times_by_name: Mapping[str, RunTimes]) -> Call[int]:
        """Add run times by name; return how many names have run times."""
        words = [word for name, times in times_by_name.items() for word in (name, times.text)]
        arguments = LEARN_TIMES.arguments({"kept": HALVE_ABOVE}, ("name", "text"), words)
        return Call(LEARN_TIMES, [self.keys.shared("times")], arguments, int)

    def book(self, bookings: Iterable[Booking], keep_s: int) -> Call[int]:
        """Keep these nodes, and no others, for kinds that have waited long; return their number.

        keep_s: how long the bookings last unless they are renewed.
        """
        words = [word for booking in bookings for word in (booking.node, booking.text)]
        arguments = BOOK.arguments({"keep_s": keep_s}, ("node", "text"), words)
        return Call(BOOK, [self.keys.shared("bookings")], arguments, int)

    def note_shares(
        self, rows: Sequence[tuple[str | bytes, float, float, float]], keep_s: int = 0
    ) -> Call[int]:
        """Note what tenants hold, and let what they used before fade; return how many are kept.

        rows: (tenant, its share, its half-life in seconds, the work of its slots). The share is a
        part of the nodes, from 0 to 1. A half-life of 0 with the work 1 forgets the tenant. keep_s:
        how long the notes last unless they are written again; 0 leaves that as it is.
        """
        words = [
            word
            for tenant, share, half_life_s, work in rows
            for word in (tenant, f"{share:.9f}", half_life_ms(half_life_s), f"{work:.6f}")
        ]
        once: Once = {"keep_s": keep_s}
        names = ("tenant", "share", "half_life_ms", "work")
        arguments = NOTE_SHARES.arguments(once, names, words)
        return Call(NOTE_SHARES, [self.keys.shared("shares")], arguments, int)

    def write_policy(
        self, version: int, document: str, by: str, changes: str, history: str
    ) -> Call[WrittenPolicy]:
        """Write the document of the policy, unless another version than this one is stored.

        version: the version that was read, 0 for none. changes: what changes, in words. history:
        the versions before, as JSON.
        """

        def read(reply: Reply) -> WrittenPolicy:
            is_written, version, writer, when = (text(word) for word in reply)
            return WrittenPolicy(is_written == "1", int(version), writer, when)

        once: Once = {
            "version": version,
            "text": document,
            "by": by,
            "changes": cut(changes),
            "history": history,
        }
        arguments = WRITE_POLICY.arguments(once)
        return Call(WRITE_POLICY, [self.keys.shared("policy")], arguments, read)

    def report_failures(
        self,
        partition: int,
        node: str,
        inc: int,
        since_ms: int,
        all_fail: bool,
        counts: Sequence[tuple[str, int, int, int, int]],
    ) -> Call[Compared]:
        """Compare a node's streaks of failures with other nodes.

        counts: (name, runs, failures since `since_ms`, streak, hold in ms). node '': drop lines of
        these names that are an hour old.
        """

        def read(reply: Reply) -> Compared:
            rows = zip(*(map(int, reply[2 + column :: 3]) for column in range(3)), strict=True)
            elsewhere = {counts[row - 1][0]: Elsewhere(runs, failed) for row, runs, failed in rows}
            return Compared(int(reply[0]), bool(int(reply[1])), elsewhere)

        once: Once = {
            "partition": partition,
            "node": node,
            "inc": inc,
            "since": since_ms,
            "all": int(all_fail),
        }
        values = [word for row in counts for word in row]
        arguments = REPORT_FAILURES.arguments(
            once, ("name", "runs", "failed", "length", "held"), values
        )
        return Call(
            REPORT_FAILURES,
            [self.keys.shared("streaks"), self.keys.shared("dealt")],
            arguments,
            read,
        )
