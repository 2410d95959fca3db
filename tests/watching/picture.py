"""
Take the picture of the status page that the README shows: `scripts/screenshot [FILE]`.

Four sessions run through a proxy before a scripted upstream: one long, one whose notes
fail, one that fits, one that has just begun.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.answers import Answer
from tests.watching.browser import missing, opened
from tests.watching.watched import Agent, Watched, watched

DEFAULT = Path(__file__).parents[2] / "docs" / "status.png"


async def work(proxy: Watched, agent: Agent, turns: int, lines: tuple[int, ...] = (22, 9, 30, 14)) -> None:
    """So many turns, with results of these lengths in turn."""
    for turn in range(turns):
        await proxy.send(agent)
        agent.work(lines[turn % len(lines)])


async def take(file: Path, *, width: int, height: int, scheme: str) -> None:
    """Let the sessions run, open the longest, and write what is seen to *file*."""
    async with watched() as proxy:
        fits = Agent("Write the release notes.", model="devstral-small-2507")
        await work(proxy, fits, 6)
        long = Agent("Reconcile the ledger of March.", model="qwen3-coder-30b-a3b")
        await work(proxy, long, 42)
        failing = Agent("Find the slow query.", model="gemma-3-12b-it")
        proxy.upstream.script = lambda asked: Answer(text="") if proxy.upstream.is_notes(asked) else None
        await work(proxy, failing, 21)
        proxy.upstream.script = lambda _: None
        await work(proxy, Agent("Port the parser.", model="gpt-oss-20b"), 2)
        await work(proxy, long, 11)
        async with opened(proxy.url, width=width, height=height, scheme=scheme) as seen:
            await seen.row(long.model).click()
            await seen.page.locator("#plot svg path.edge").wait_for()
            await seen.page.mouse.move(0, 0)
            await seen.page.screenshot(path=file)


def main() -> int:
    """Take the picture, into the file that is named or into the README's."""
    why = missing()
    if why:
        print(why, file=sys.stderr)
        return 1
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    file.parent.mkdir(exist_ok=True)
    asyncio.run(take(file, width=1400, height=620, scheme="dark"))
    print(f"{file}: {file.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
