"""`parsync replay`: the tasks of a real cluster's trace, placed by our own schedulers."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from parsync_lab import Stopped
from parsync_redis.cli.common import Json, print_table

from .measuring import measuring
from .replay_serving import serving

app = typer.Typer(
    no_args_is_help=True, help="Replay the trace of a real cluster with our own schedulers."
)


def register(parent: typer.Typer) -> None:
    """Add the group of these commands to the app."""
    parent.add_typer(app, name="replay")


@app.command("gpu")
def _gpu(
    folder: Annotated[
        Path,
        typer.Argument(help="A folder with openb_node_list*.csv and openb_pod_list*.csv, or .gz."),
    ],
    live: Annotated[
        bool, typer.Option("--live", help="Go through the scripts of a server that it starts.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="Like --live, on this server; it leaves nothing there.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many pods, the first.", show_default=False)
    ] = None,
    ends: Annotated[
        bool, typer.Option("--ends", help="Pods end when the trace says; by default they stay.")
    ] = False,
    schedulers: Annotated[int, typer.Option(help="Schedulers, each with a view of its own.")] = 4,
    partitions: Annotated[
        int, typer.Option(help="Partitions, at least as many as schedulers.")
    ] = 8,
    gap_s: Annotated[float, typer.Option("--gap", help="Synchronisation gap, seconds.")] = 0.5,
    speedup: Annotated[
        float, typer.Option(help="The trace's time runs so many times faster.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.json.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The folder for result.json, PNG and SVG.", metavar="DIR")
    ] = None,
    no_plots: Annotated[
        bool, typer.Option("--no-plots", help="Draw nothing; matplotlib is not needed then.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay Alibaba's GPU nodes and pods: placed pods, GPU share used, reasons to wait."""
    from ..replay.gpu_trace import read_gpu_trace
    from ..replay.replay import ReplayParameters
    from ..replay.result import as_json as text_of
    from ..replay.result import replay_gpu, write_result
    from ..simulate.plots import new_figure

    parameters = ReplayParameters(schedulers, partitions, gap_s, speedup, ends, seed)
    trace = read_gpu_trace(folder, limit)
    plots = out is not None and not no_plots
    if plots:
        new_figure()  # fails at once if matplotlib is missing, not after minutes
    with measuring() as (stop, line):

        def say(text: str) -> None:
            if stop.is_set():
                raise Stopped
            line(text)

        outcome = replay_gpu(trace, parameters, live or url is not None, url, say)
    files = write_result(outcome, out, plots) if out else []
    print(text_of(outcome.result)) if as_json else _print(outcome.result)
    print(
        f"{outcome.wall_s:.1f} s, {outcome.cpu_s:.1f} s of CPU time in this process",
        file=sys.stderr,
    )
    if files:
        print("written: " + ", ".join(map(str, files)), file=sys.stderr)


@app.command("azure")
def _azure(
    trace: Annotated[
        Path,
        typer.Option(
            "--trace",
            help="A file of Azure's packing trace of 2020, .csv or .csv.gz.",
            metavar="FILE",
        ),
    ],
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="How servers are chosen; may be repeated: pack, pack-whole, spread, random, "
            "best-fit.",
            show_default="all",
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Count the refusals on so many servers; by default, find how many are enough.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many requests, the first.", show_default=False),
    ] = None,
    schedulers: Annotated[int, typer.Option(help="Schedulers, each with a view of its own.")] = 4,
    partitions: Annotated[
        int, typer.Option(help="Partitions, at least as many as schedulers.")
    ] = 8,
    gap_s: Annotated[
        float, typer.Option("--gap", help="Synchronisation gap, seconds of the trace.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    as_json: Json = False,
) -> None:
    """Replay Azure's requests for machines: on how many servers none is refused."""
    from ..replay.azure_trace import read_azure_trace
    from ..replay.packing import PackingParameters, replay_azure

    parameters = PackingParameters(schedulers, partitions, gap_s, seed)
    requests = read_azure_trace(trace, limit)
    with measuring() as (stop, line):

        def say(text: str) -> None:
            if stop.is_set():
                raise Stopped
            line(text)

        result = replay_azure(requests, policies or (), servers, parameters, say)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"trace      {result['requests']:,} requests, one in {result['interval_s']:.1f} s; they "
        f"hold what {result['least_servers']:,} servers have"
    )
    print(
        f"views      {schedulers} schedulers, {partitions} partitions, a gap of {gap_s:g} s: a "
        f"copy is {result['requests_behind']:.1f} requests old on average\n"
    )
    print_table(
        ("POLICY", "SERVERS", "REFUSED", "CLAIMS", "LOST", "LOST %", "MOST ON A SERVER", "CPU S"),
        [
            (
                name,
                row["servers"],
                row["refused"],
                row["claims"],
                row["lost_claims"],
                f"{100 * row['lost_claims'] / max(1, row['claims']):.2f}",
                row["most_machines"],
                f"{row['cpu_s']:.0f}",
            )
            for name, row in result["policies"].items()
        ],
        "no policy",
    )


app.command("serving")(serving)


@app.command("report")
def _report(
    results: Annotated[
        Path, typer.Argument(help="A folder with a folder of results for each replay.")
    ],
    document: Annotated[
        Path, typer.Argument(help="The Markdown file to write; figures go beside it.")
    ],
) -> None:
    """Write one document of the results of several replays."""
    from ..replay.page import write_page

    print(f"written: {document}, of {', '.join(write_page(results, document))}")


def _print(result: dict[str, Any]) -> None:
    trace = result["trace"]
    share = result["gpu_share"]
    pods = f"{result['placed']:,} of {trace['pods']:,} placed, {result['waiting']:,} wait"
    print(
        f"trace      {trace['nodes']:,} nodes with {trace['gpus']:,} GPUs; the pods ask for "
        f"{trace['gpus_asked']:,g}"
    )
    print(f"pods       {pods}")
    print(
        f"GPU share  {share['mean']:.1%} mean over time, {share['most']:.1%} at most, "
        f"{share['last']:.1%} at the end"
    )
    print(
        f"claims     {result['claims']:,}, of which {result['lost_claims']:,} were lost to another "
        "scheduler"
    )
    print(f"decisions  {result['decisions']} (equal for equal placements, virtual or live)")
    if "audit" in result:
        print(f"audit      {len(result['audit'])} faults in the server's state")
    print()
    print_table(
        (
            "MODEL",
            "GPUS",
            "ASKED BY PODS THAT ACCEPT NO OTHER",
            "HELD",
            "HELD BY PODS THAT ACCEPT OTHERS",
        ),
        [
            [f"{value:g}" if isinstance(value, float) else value for value in use.values()]
            for use in result["models"]
        ],
        "no node has a GPU",
    )
    print()
    print_table(
        ("PODS WAIT", "ACCEPTED MODELS", "NODES FIT", "WHAT KEEPS THE NEAREST NODE"),
        [
            (row["pods"], row["models"] or "any", row["fitting"], row["why"])
            for row in result["reasons"]
        ],
        "no pod waits",
    )
