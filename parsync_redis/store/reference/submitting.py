"""Submission in the store in memory.

A method with `keys` and `args` is a script; `admit` is submit on values.
"""

from collections.abc import Sequence

from ...model.account import limits_of, pattern_of
from ...model.apps import KnownTasks, digest_of
from ...model.kind import Kind, split_kind
from ...model.needs import QUEUE_LABEL, parse_needs, parse_resources
from ...model.order import PATIENCE_MS, order_of
from ...model.policy import DECLARED_MARK
from ...model.task import StoredState
from ...placement.fits import fits
from .accounts import is_covered
from .records import RUNNING, Args, Job, Successor, Task
from .tasks import Tasks


class Submitting(Tasks):
    """The scripts that submit tasks and record what nodes offer."""

    def submit(self, keys: Sequence[str], args: Args) -> list[str]:
        """Create each task once."""
        if refused := self._refused(args):
            return [word for number in range(len(args.rows)) for word in (str(number + 1), refused)]
        kinds = [line.partition(" ") for line in args.what.splitlines()]
        replies = []
        for number, r in enumerate(args.rows, 1):
            priority, _, kind = kinds[int(r.kind) - 1]
            options = dict(word.split("=", 1) for word in r.options.split())
            max_starts = int(options["max"]) if "max" in options else None
            job = Job(
                kind,
                r.message,
                int(priority),
                max_starts,
                options.get("pub", ""),
                "any" not in options,
            )
            due = self._after(options.get("delay", ""))
            expiry = self._after(options.get("expiry", ""))
            start = int(options["start"]) if "start" in options else None
            after = options.get("after", "")
            word = self._admit(r.id, job, due, options.get("wait", ""), after, expiry, start)
            if word != "submitted":
                replies += [str(number), word]
        self._write_kinds(args.channel)
        return replies

    def _refused(self, args: Args) -> str:
        if self.shards not in ("", args.shards):
            return "elsewhere"
        return "" if args.apps in ("", str(self.apps_ms)) else "changed"

    def fix_shards(self, keys: Sequence[str], args: Args) -> int:
        """Fix the number of shards."""
        fixed = self.shards
        if fixed in ("", "?"):
            fixed = args.usual if self.submitted else args.shards
            self.shards = "?" if args.shards == "0" else fixed
        return int(fixed)

    def admit(
        self,
        id: str,
        job: Job,
        due: int | None = None,
        wait: bool = False,
        after: str = "",
        expiry: int | None = None,
        start: int | None = None,
    ) -> str:
        """Submit one task and return its word."""
        word = self._admit(id, job, due, "1" if wait else "", after, expiry, start)
        self.write_kinds()
        return word

    def _admit(
        self,
        id: str,
        job: Job,
        due: int | None,
        wait: str,
        after: str,
        expiry: int | None,
        start: int | None,
    ) -> str:
        task = self.find(id)
        published = (
            {task.job.publication, task.next.job.publication if task.next else ""}
            if task
            else set()
        )
        anew = not after and job.publication not in ("", *published)
        from_its_run = task is not None and task.state == RUNNING and after == task.attempt
        if task and (from_its_run or (anew and task.has_run and not task.state.final)):
            kind = split_kind(job.kind)
            task_kind = split_kind(task.job.kind)
            asks_anew = (*task_kind[:2], task_kind.limits) != (*kind[:2], kind.limits)
            if asks_anew and (refusal := self._judge(job, wait)):
                return refusal
            published_next = task.next is not None and task.next.job.publication
            if not (from_its_run and published_next):  # A published successor precedes a retry.
                order = None if start is None else self._new_order(job, start)
                task.next = Successor(
                    job._replace(publication="" if after else job.publication), due, expiry, order
                )
            if expiry is not None:
                self.expires[id] = expiry
            return "next"
        if task and after:
            return "stale"
        revoked = (
            task is not None
            and task.state == StoredState.CANCELLED
            and job.publication.startswith("s")
        )
        if task and not (anew and task.state.final and not revoked):
            return "exists"
        if refusal := self._judge(job, wait):
            return refusal
        self.forget(id)
        self.submitted += 1
        order = self._new_order(job, PATIENCE_MS if start is None else start)
        now_ms = self.world.now_ms
        task = self.tasks[id] = Task(
            job, order, self.submitted, now_ms, ready_ms=now_ms, expires_ms=expiry
        )
        if expiry is not None:
            self.expires[id] = expiry
        self._to_pending(id, task, due)
        return "submitted"

    def _new_order(self, job: Job, start: int) -> int:
        """Return the order of a task that should start so many ms after its submission."""
        self.version = self.next_version
        return order_of(job.priority, self.version + 100 * start)

    def _judge(self, job: Job, wait: str) -> str:
        """Return why the task is refused, '' if it is not. wait: an option of submit's row."""
        if wait == "1":
            return ""
        offers = [parse_resources(offer) for offer in set(self.shapes.values())]
        kind = split_kind(job.kind)
        knowing = [offer for offer in offers if self._knows(digest_of(offer), kind.name)]
        if offers and not knowing:
            return "unknown"
        needs = parse_needs(
            " ".join(word for word in kind.needs.split() if not word.startswith(f"{QUEUE_LABEL}:"))
        )
        if offers and not any(fits(offer, needs) for offer in knowing):
            return "infeasible"
        return "nolimit" if not wait and self._lacks_limit(job.kind) else ""

    def _lacks_limit(self, kind: str) -> bool:
        """Return whether the policy does not know a limit of a kind."""
        limits = limits_of(Kind.of(kind).limits)
        return any(self.accounts.ceiling_text(account.name) is None for account in limits)

    def _limits_in_use(self) -> set[str]:
        """Return the limits and patterns that apps declare, or that tasks hold or wait under."""
        declared = {name for tasks in self.names.values() for name in tasks.limits}
        accounts = {name for name, line in self.accounts.lines.items() if line.holders}
        waited_for = [limits_of(Kind.of(kind).limits) for kind in self.kinds]
        accounts |= {account.name for limits in waited_for for account in limits}
        return declared | accounts | {pattern_of(name) for name in accounts}

    def set_policy(self, keys: Sequence[str], args: Args) -> int:
        """Replace the ceilings, or remove declared ones; let every account be tried again."""
        before = self.accounts.ceilings
        texts = {row.account: row.text for row in args.rows}
        if args.how == "remove":
            used = self._limits_in_use()
            ceilings = {
                name: text
                for name, text in before.items()
                if name not in texts or DECLARED_MARK not in text or name in used
            }
        else:
            ceilings = texts | {
                name: text
                for name, text in before.items()
                if DECLARED_MARK in text and name not in texts and not is_covered(texts, name)
            }
        changes = {
            name
            for name in before.keys() | ceilings.keys()
            if before.get(name) != ceilings.get(name)
        }
        self.accounts.ceilings = ceilings
        if changes:
            self.accounts.let_try(changes)
            self.write_kinds()
            self._wake(args.channel)
        return len(changes)

    def allot(self, keys: Sequence[str], args: Args) -> list[str]:
        """Write and tell allotments."""
        rows = [(row.account, row.text, row.next) for row in args.rows]
        answer = self.accounts.allot(args.seal, args.salt, rows)
        if answer is None:
            return [""]
        seal, names = answer
        words = [word for name in names for word in (name, *self.accounts.allotment_words(name))]
        self.write_kinds()
        if any(row.next for row in args.rows):
            self._wake(args.channel)
        return [seal, str(self.world.now_ms), *words]

    def _knows(self, digest: str, name: str) -> bool:
        return not digest or (digest in self.names and name in self.names[digest].declared)

    def offer(self, keys: Sequence[str], args: Args) -> int:
        """Record what a node offers, and the tasks that its worker knows."""
        node = args.node
        offer = args.offer
        digest = args.digest
        before = self.shapes.get(node, "")
        changed = self.shapes.get(node, "") != offer
        moved = False
        if offer:
            self.shapes[node] = offer
        else:
            self.shapes.pop(node, None)
        if digest and digest not in self.names:
            self.names[digest] = KnownTasks(args.tasks)
            changed = True
            self.apps[digest] = max(self.apps.values(), default=0) + 1
            moved = True
        used = {digest_of(parse_resources(stored_offer)) for stored_offer in self.shapes.values()}
        old = digest_of(parse_resources(before)) if before else ""
        if old and old not in used:
            self.names.pop(old, None)
            self.apps.pop(old, None)
            moved = True
        if self.accounts.declare(KnownTasks(args.tasks).limits, self.shards):
            self.write_kinds()
            self._wake(args.channel)
        if moved:
            self.apps_ms = max(self.apps_ms + 1, self.world.now_ms)
        return int(changed)
