"""Small benches on a server of their own: reading a partition, submitting, an idle cluster."""

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from parsync_lab import Stopped
from parsync_redis.client import ParsyncClient
from parsync_redis.errors import ServerUnfit
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.store.server.embedded import EmbeddedServer, find_wheel
from parsync_redis.store.store import Store

from . import app as plain
from .figures import ratio
from .load import BENCH_TASK
from .ours import BENCH_CLUSTER, ParsyncContender, set_up
from .parameters import BenchParameters
from .placement import Say, facts_of
from .processes import Processes, cpu_of

WARM: Final = 3
"""The number of warm-up rounds, which do not count."""


def run_read(slots: int, rounds: int, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Compare a read of a fully held partition with HGETALL of its leases.

    Returns server time and total time, in us.
    """
    nodes = max(1, slots // 100)
    with EmbeddedServer() as server:
        store = Store.from_url(server.url, BENCH_CLUSTER)
        set_up(store, BenchParameters(schedulers=1, partitions=1))
        homes = [(f"n{number}", slots // nodes) for number in range(nodes)]
        registrations = store.run_all(
            [store.commands.register_node(0, name, 0, 1.0, f"slots={size}") for name, size in homes]
        )
        epoch = store.run(store.commands.read_partition(0)).epoch
        claims = [
            Claim(f"t-{name}-{slot}", "1@1.000000", 0, name, (slot,), inc, "", first, epoch)
            for (name, size), (inc, first) in zip(homes, registrations, strict=True)
            for slot in range(size)
        ]
        won = 0
        for start in range(0, len(claims), MAX_BATCH):
            won += sum(
                v.won
                for v in store.run(
                    store.commands.commit(0, claims[start : start + MAX_BATCH])
                ).verdicts
            )
        key = store.keys.partition(0, "slots")
        ways: dict[str, Callable[[], Any]] = {
            "snapshot": lambda: store.run(store.commands.read_partition(0)),
            "hgetall": lambda: store.client.hgetall(key),
        }
        figures: dict[str, Any] = {"slots": slots, "held": won, "facts": facts_of(server)}
        for read, ask in ways.items():
            say(read)
            figures[read] = _timed(store, server, ask, rounds, stop)
    shot = figures["snapshot"]
    whole = figures["hgetall"]
    return {
        **figures,
        "server_ratio": ratio(whole["server_us"], shot["server_us"], 1),
        "client_ratio": ratio(whole["client_us"], shot["client_us"], 1),
    }


def _timed(
    store: Store, server: EmbeddedServer, ask: Callable[[], Any], rounds: int, stop: threading.Event
) -> dict[str, float]:
    """Return a call's median times in us: the server's, and that until the reply is parsed."""
    client: Any = store.client
    server_us: list[float] = []
    client_us: list[float] = []
    for number in range(rounds + WARM):
        if stop.is_set():
            raise Stopped
        client.config_resetstat()
        began_s = time.perf_counter()
        ask()
        took_s = time.perf_counter() - began_s
        stats = client.info("commandstats")
        # A script's time includes that of its commands.
        rows = [
            stats[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_hgetall") if name in stats
        ]
        if number >= WARM:
            server_us.append(float(rows[0]))
            client_us.append(took_s * 1e6)
    return {"server_us": round(median(server_us), 1), "client_us": round(median(client_us), 1)}


def run_submit(tasks: int, rounds: int, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Return the messages per second of submit_many and apply_async, measured by turns."""
    with EmbeddedServer() as server:
        store = Store.from_url(server.url, BENCH_CLUSTER)
        set_up(store, BenchParameters(schedulers=1, partitions=1))
        known_tasks = KnownTasks.of({BENCH_TASK: None, plain.PLACED_TASK: None})
        store.run(
            store.commands.offer("n1", offer_with(Resources.of(4), known_tasks).text, known_tasks)
        )
        celery = plain.make_app(server.url, BENCH_CLUSTER)
        rates: dict[str, list[float]] = {"submit_many": [], "apply_async": []}
        with ParsyncClient.from_url(server.url, BENCH_CLUSTER) as client:
            ways: dict[str, Callable[[], Any]] = {
                "submit_many": lambda: client.submit_many(
                    {"name": plain.PLACED_TASK} for _ in range(tasks)
                ),
                "apply_async": lambda: [
                    celery.tasks[plain.PLAIN_TASK].apply_async() for _ in range(tasks)
                ],
            }
            for number in range(rounds + 1):
                for call, submit in ways.items():
                    if stop.is_set():
                        raise Stopped
                    say(f"round {number} of {rounds}: {call}")
                    began_s = time.perf_counter()
                    submit()
                    if number:
                        rates[call].append(tasks / (time.perf_counter() - began_s))
                store.client.unlink(plain.BENCH_QUEUE)
        rates_per_s = {call: round(median(values), 1) for call, values in rates.items()}
        pairs = zip(rates["submit_many"], rates["apply_async"], strict=True)
        return {
            "tasks": tasks,
            "rounds": rounds,
            **rates_per_s,
            "ratio": round(median(a / b for a, b in pairs), 2),
            "facts": facts_of(server),
        }


def run_idle(parameters: BenchParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Run an idle cluster; return its requests per second and its CPU time.

    requests: scripts that schedulers run, without nodes' renewals, which come at a fixed rate.
    commands: all commands, with those inside scripts.
    """
    parameters.check()
    # the wheel has Valkey: Redis does not count the commands of each client
    with EmbeddedServer(find_wheel()) as server, Processes(stop) as processes:
        contender = ParsyncContender(server.url, parameters, processes, idle=True)
        contender.start(say)
        processes.pause(2 * parameters.gap_s)
        client: Any = contender.store.client

        def look() -> tuple[float, dict[str, int], dict[str, float], float, int]:
            counts: dict[str, int] = {}
            for row in client.client_list():
                if "tot-cmds" not in row:
                    raise ServerUnfit(
                        "bench idle needs a server that counts the commands of each client: Valkey "
                        "9"
                    )
                kind = row["name"].partition(":")[0] or "bench"
                counts[kind] = counts.get(kind, 0) + int(row["tot-cmds"])
            scripts = int(client.info("commandstats")["cmdstat_evalsha"]["calls"])
            return time.monotonic(), counts, processes.cpu_s(), cpu_of(server.process.pid), scripts

        began = look()
        until_s = time.monotonic() + parameters.seconds
        while (rest_s := until_s - time.monotonic()) > 0:
            processes.pause(min(1.0, rest_s))
            say(f"{max(0.0, until_s - time.monotonic()):.0f} s to go")
        ended = look()
        seconds = ended[0] - began[0]
        a_second = {
            kind: round((ended[1][kind] - began[1].get(kind, 0)) / seconds, 1) for kind in ended[1]
        }
        renewals = parameters.nodes / (parameters.lease_s / 5)
        scripts = (ended[4] - began[4]) / seconds - renewals
        contender.end([])
        return {
            "schedulers": parameters.schedulers,
            "nodes": parameters.nodes,
            "partitions": parameters.partitions,
            "gap_s": parameters.gap_s,
            "seconds": parameters.seconds,
            "commands_per_s": a_second,
            "requests_per_scheduler_and_s": round(scripts / parameters.schedulers, 1),
            "commands_per_scheduler_and_s": round(
                a_second["schedulers"] / parameters.schedulers, 1
            ),
            "partitions_per_gap": parameters.partitions / parameters.gap_s,
            "cpu_share": {
                **{
                    kind: round((ended[2][kind] - began[2][kind]) / seconds, 3) for kind in ended[2]
                },
                "redis": round((ended[3] - began[3]) / seconds, 3),
            },
            "facts": facts_of(server),
        }
