"""
What does the proxy add to a request?

    python -m benchmarks.overhead              all of it, about three minutes
    python -m benchmarks.overhead --quick      a tenth of the requests, to see that it runs
    python -m benchmarks.overhead --write      put the tables into docs/speed.md

The proxy runs as it is installed (its command, a SQLite store, metrics, a known window), each
server in a process of its own. Rounds are interleaved, and every ratio is the median of those of
single rounds: what else the machine does hits all alike.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.agent_sessions import Session, session
from benchmarks.load import Connection, Load, ask_all, connected
from benchmarks.overhead_servers import NOTES_MARKER, quick_loop
from benchmarks.page import put_into_page

TARGETS = ("direct", "relay", "proxy")
KB = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: which body, to how many connections, how often."""

    name: str
    size: int
    messages: int
    stream: bool = False
    model: str = "roomy"
    connections: int = 1
    each: int
    """Requests on every connection in a round."""
    goal: str = ""


@dataclass(slots=True)
class Result:
    """What was measured of one case, by target and round."""

    case: Case
    loads: dict[str, list[Load]] = field(default_factory=lambda: {target: [] for target in TARGETS})
    cpu_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TARGETS, 0.0))

    def p50(self, target: str) -> float:
        """Median latency over all rounds, in milliseconds."""
        return 1000 * statistics.median(t for load in self.loads[target] for t in load.latencies)

    def rate(self, target: str) -> float:
        """Median throughput of the rounds, in requests per second."""
        return statistics.median(len(load.latencies) / load.seconds for load in self.loads[target])

    def ratio(self) -> float:
        """Proxy against relay: p50 with one connection, throughput with several."""
        rounds = zip(self.loads["proxy"], self.loads["relay"], strict=True)
        if self.case.connections > 1:
            return statistics.median(relay.seconds / proxy.seconds for proxy, relay in rounds)
        return statistics.median(
            statistics.median(p.latencies) / statistics.median(r.latencies) for p, r in rounds
        )

    def added(self) -> float:
        """Milliseconds that the proxy's p50 is above the relay's: median of the rounds."""
        rounds = zip(self.loads["proxy"], self.loads["relay"], strict=True)
        return 1000 * statistics.median(
            statistics.median(p.latencies) - statistics.median(r.latencies) for p, r in rounds
        )

    def undisturbed(self, target: str) -> float:
        """Fifth percentile of the latencies in milliseconds: what a request takes that nothing interrupts."""
        times = [t for load in self.loads[target] for t in load.latencies]
        return 1000 * (statistics.quantiles(times, n=20)[0] if len(times) > 1 else times[0])

    def cpu(self, target: str) -> float:
        """Processor milliseconds that the server itself spent on one request."""
        return 1000 * self.cpu_seconds[target] / sum(len(load.latencies) for load in self.loads[target])


_SMALL, _LARGE = {"size": 3 * KB, "messages": 6}, {"size": 440 * KB, "messages": 450}
CASES = (
    Case(name="3 KB", **_SMALL, each=100, goal="<= 1.0 x"),
    Case(name="3 KB, 200-chunk stream", **_SMALL, stream=True, each=25, goal="<= 1.0 x"),
    Case(name="440 KB", **_LARGE, each=15, goal="<= +2 ms"),
    Case(name="440 KB, 200-chunk stream", **_LARGE, stream=True, each=10),
    Case(name="440 KB, compacted", **_LARGE, model="narrow", each=15, goal="<= +2 ms"),
    Case(name="3 KB", **_SMALL, connections=16, each=15, goal=">= 1.0 x"),
    Case(name="3 KB, 200-chunk stream", **_SMALL, stream=True, connections=16, each=3, goal=">= 1.0 x"),
    Case(name="440 KB", **_LARGE, connections=16, each=2, goal=">= 1.0 x"),
    Case(name="440 KB, compacted", **_LARGE, model="narrow", connections=16, each=2, goal=">= 1.0 x"),
)  # fmt: skip


async def measure(case: Case, servers: "Servers", rounds: int) -> Result:
    """*rounds* rounds of each target, each in another order."""
    first = (1, 0) if case.size < 10 * KB else (6, 4)
    sessions = [
        session(
            f"{case.name} {case.connections} {i}", size=case.size, messages=case.messages, model=case.model,
            stream=case.stream, tools=1 if case.size < 10 * KB else 12, first=first,
        )
        for i in range(case.connections)
    ]  # fmt: skip
    numbers = itertools.count(10_000)
    connections: dict[str, list[Connection]] = {}
    result = Result(case)
    for target in TARGETS:
        port = servers.ports[target]
        connections[target] = [await connected(port) for _ in sessions]
        # First the history without the newest turn: a compaction happens here.
        await ask_all(connections[target], lambda i: request(sessions[i]), 1)
        await ask_all(connections[target], lambda i: request(sessions[i], next(numbers)), 3)
    for number in range(rounds):
        shift = number % len(TARGETS)
        for target in TARGETS[shift:] + TARGETS[:shift]:
            before = servers.cpu_seconds(target)
            load = await ask_all(
                connections[target], lambda i: request(sessions[i], next(numbers)), case.each
            )
            result.cpu_seconds[target] += servers.cpu_seconds(target) - before
            result.loads[target].append(load)
    for connection in itertools.chain(*connections.values()):
        connection.close()
    return result


def request(conversation: Session, number: int | None = None) -> tuple[bytes, ...]:
    """The next request of a conversation, head and body, in pieces."""
    body = conversation.body(number)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUser-Agent: benchmark\r\nAccept: */*\r\n"
        "Authorization: Bearer none\r\nContent-Type: application/json\r\n"
        f"Content-Length: {sum(map(len, body))}\r\n\r\n"
    )
    return (head.encode(), *body)


@dataclass(slots=True)
class Servers:
    """The three processes, where they listen, and when they were begun, by `perf_counter`."""

    ports: Mapping[str, int]
    processes: Mapping[str, "subprocess.Popen[bytes]"]
    began_at: Mapping[str, float]

    def cpu_seconds(self, target: str) -> float:
        """Processor time of a target so far, of all its threads; 0 where the system does not tell."""
        tasks = Path(f"/proc/{self.processes[target].pid}/task")
        with contextlib.suppress(OSError):
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
        return 0.0

    def memory(self, target: str) -> float:
        """Resident megabytes of a target; 0 where the system does not tell."""
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self.processes[target].pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]) / 1024
        return 0.0


@contextlib.contextmanager
def running(context: str = "") -> Iterator[Servers]:
    """
    Upstream, relay and proxy, each in a process of its own, and listening.

    *context* is more of the proxy's table `[context]`.
    """
    ports = dict(zip(TARGETS, _free_ports(3), strict=True))
    upstream = f"http://127.0.0.1:{ports['direct']}"
    here = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        config = Path(folder) / "config.toml"
        config.write_text(
            f'[upstream]\nurl = "{upstream}"\n[server]\nlisten = "127.0.0.1:{ports["proxy"]}"\n'
            f'[store]\npath = "{folder}/store.sqlite"\n'
            f'[context]\nnotes_instruction = "{NOTES_MARKER.decode()} write notes"\n{context}\n',
            encoding="utf-8",
        )
        python = [sys.executable, "-m"]
        commands = {
            "direct": [*python, "benchmarks.overhead_servers", "upstream", str(ports["direct"])],
            "relay": [*python, "benchmarks.overhead_servers", "relay", str(ports["relay"]), upstream],
            "proxy": [*python, "proxy", "serve", "--config", str(config)],
        }
        processes, began_at = {}, {}
        for target, command in commands.items():
            began_at[target] = time.perf_counter()
            began = subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL)
            stack.callback(began.wait)
            stack.callback(began.terminate)
            processes[target] = began
            wait_for(ports[target], began)
        yield Servers(ports, processes, began_at)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """
    Wait until *process* listens.

    Raises:
        RuntimeError: If it ends before, or does not within half a minute.
    """
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.005)
    raise RuntimeError(f"{process.args!r} does not listen")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in made]


def table(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    lines = [
        "| body, answer | connections | direct | bare relay | proxy | proxy / relay | added | goal | met |"
        " relay, undisturbed | proxy, undisturbed | CPU of relay | CPU of proxy |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        case = result.case
        many = case.connections > 1
        told = [f"{result.rate(t):.0f}/s" if many else f"{result.p50(t):.2f} ms" for t in TARGETS]
        cells = [
            case.name, str(case.connections), *told, f"{result.ratio():.2f}",
            "" if many else f"{result.added():+.2f} ms", case.goal, met(result),
            *("" if many else f"{result.undisturbed(t):.2f} ms" for t in TARGETS[1:]),
            f"{result.cpu('relay'):.2f} ms", f"{result.cpu('proxy'):.2f} ms",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def met(result: Result) -> str:
    """Whether the goal of the case was met; empty where it has none."""
    match result.case.goal:
        case "<= 1.0 x":
            return "yes" if result.ratio() <= 1.0 else "no"
        case ">= 1.0 x":
            return "yes" if result.ratio() >= 1.0 else "no"
        case "<= +2 ms":
            return "yes" if result.added() <= 2.0 else "no"
        case _:
            return ""


async def measure_all(servers: Servers, rounds: int, wanted: str) -> list[Result]:
    """Every case whose name holds *wanted*, told as it goes."""
    results = []
    for case in CASES:
        label = f"{case.name} x{case.connections}"
        if wanted in label:
            results.append(await measure(case, servers, rounds))
            print(
                f"{label} {results[-1].ratio():.2f} {results[-1].added():+.2f} ms",
                file=sys.stderr,
                flush=True,
            )
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each case (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two rounds of each case")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    arguments = parser.parse_args()
    with running() as servers, asyncio.Runner(loop_factory=quick_loop) as runner:
        results = runner.run(measure_all(servers, 2 if arguments.quick else arguments.rounds, arguments.only))
    machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores"
    found = f"{table(results)}\n\n{machine}, load {os.getloadavg()[0]:.1f}."
    print(found)
    if arguments.write:
        put_into_page("overhead", found)


if __name__ == "__main__":
    main()
