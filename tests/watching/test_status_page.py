"""
The status page in a real Chromium, while sessions run through the proxy.

Every page that is opened here must end without an error in its console, and without a
request to another host than the proxy.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.answers import Answer
from tests.watching.browser import Opened, needs_chromium, opened
from tests.watching.watched import CANARY, WINDOW, Agent, Watched, watched

pytestmark = needs_chromium

# What the page owes a person; playwright looks at it many times until then.
SOON_MS = 2000


@contextlib.asynccontextmanager
async def looking(at: Watched, **how: Any) -> AsyncIterator[Opened]:
    """The page of a proxy, held to what every page promises."""
    async with opened(at.url, **how) as seen:
        yield seen
        assert seen.errors == []
        assert seen.hosts == {urlsplit(at.url).netloc}


async def filled(seen: Opened) -> float:
    """How much of the first row's bar is filled, in percent."""
    return float(await seen.page.locator(".fill").first.evaluate("fill => parseFloat(fill.style.width)"))


async def focused(seen: Opened) -> str:
    """What tells the focused element: its id, or the conversation of a row."""
    script = "document.activeElement.dataset.id || document.activeElement.id"
    return str(await seen.page.evaluate(script))


async def two_conversations(proxy: Watched) -> list[str]:
    """Two sessions of a few turns; their ids, newest first."""
    for agent in (Agent("Reconcile March."), Agent("Reconcile April.")):
        for _ in range(3):
            await proxy.send(agent)
            agent.work()
    return [summary.id for summary in proxy.proxy.board.summaries()]


async def test_a_session_is_seen_while_it_runs() -> None:
    agent = Agent("Reconcile the ledger.")
    async with watched() as proxy, looking(proxy) as seen:
        await seen.page.get_by_text("No conversation yet").wait_for()
        await proxy.send(agent)
        await seen.row(agent.model).wait_for(timeout=SOON_MS)
        at_first = await filled(seen)

        agent.work()
        await proxy.send(agent)
        moved = "before => parseFloat(document.querySelector('.fill').style.width) > before"
        await seen.page.wait_for_function(moved, arg=at_first, timeout=SOON_MS)

        await proxy.until_compacted(agent)
        await seen.row("compacted").wait_for(timeout=SOON_MS)
        assert await seen.page.locator(".count.compacted").inner_text() == "1"
        assert await filled(seen) < 30


async def test_trims_and_failures_are_seen() -> None:
    agent = Agent("Reconcile the ledger.")
    async with watched() as proxy, looking(proxy) as seen:
        proxy.upstream.script = lambda asked: Answer(text="") if proxy.upstream.is_notes(asked) else None
        outcomes = set()
        for _ in range(30):
            outcomes.add(await proxy.send(agent))
            agent.work()
        assert {"failed", "trimmed"} <= outcomes
        await seen.row().press("Enter")
        await seen.page.locator("#changes .m-trimmed").first.wait_for()
        await seen.page.locator("#changes .m-failed").first.wait_for()
        assert await seen.page.locator("#plot text.m-trimmed").count() >= 1
        assert await seen.page.locator("#plot text.m-failed").count() >= 1


@pytest.mark.parametrize("key", ["Enter", "Space"])
async def test_the_time_line_opens_by_keyboard_and_escape_gives_the_focus_back(key: str) -> None:
    async with watched() as proxy:
        newest, older = await two_conversations(proxy)
        async with looking(proxy) as seen:
            await seen.row(older).wait_for()
            await seen.page.keyboard.press("Tab")
            assert await focused(seen) == newest
            await seen.page.keyboard.press("ArrowDown")
            assert await focused(seen) == older
            await seen.page.keyboard.press(key)
            await seen.page.locator("#plot svg path.edge").wait_for()
            assert older in await seen.page.locator("#detail-title").inner_text()
            assert await seen.row(older).get_attribute("aria-expanded") == "true"

            await seen.page.locator("#plot").focus()
            await seen.page.keyboard.press("Home")
            assert "request 1, turn 0" in await seen.page.locator("#readout").inner_text()
            await seen.page.keyboard.press("Escape")
            assert await seen.page.locator("#detail").is_hidden()
            assert await focused(seen) == older


async def test_an_open_time_line_goes_on_as_requests_come() -> None:
    agent = Agent("Reconcile the ledger.")
    async with watched() as proxy, looking(proxy) as seen:
        await proxy.send(agent)
        await seen.row(agent.model).press("Enter")
        await proxy.until_compacted(agent)
        await seen.page.locator("#changes .m-compacted").wait_for(timeout=SOON_MS)
        await seen.page.locator("#plot line.drop").wait_for(state="attached", timeout=SOON_MS)


async def test_names_are_shown_as_text_whatever_they_say() -> None:
    hostile = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
    agent = Agent("Reconcile.", model=hostile)
    async with watched() as proxy, looking(proxy) as seen:
        await proxy.send(agent)
        await seen.row("onerror").press("Enter")
        await seen.page.locator("#detail-title", has_text="onerror").wait_for()
        assert await seen.page.locator(".row .model").inner_text() == hostile
        assert await seen.page.locator("img, main script").count() == 0
        assert await seen.page.title() == "compaction-proxy"


@pytest.mark.parametrize("show_content", [False, True], ids=["off: not there", "on: there"])
async def test_the_block_is_there_only_where_content_is_shown(show_content: bool) -> None:
    agent = Agent("Reconcile the ledger.")
    async with watched(show_content=show_content) as proxy, looking(proxy) as seen:
        await proxy.until_compacted(agent)
        await seen.row(agent.model).press("Enter")
        await seen.page.locator("#changes .m-compacted").wait_for()
        assert (CANARY in await seen.page.locator("#block").inner_text()) is show_content
        assert (CANARY in await seen.page.content()) is show_content


async def test_a_page_connects_again_by_itself_after_a_restart() -> None:
    agent = Agent("Reconcile the ledger.")
    async with watched() as proxy:
        port = urlsplit(proxy.url).port or 0
        context = opened(proxy.url)
        seen = await context.__aenter__()
        await proxy.send(agent)
        await seen.row(agent.model).wait_for()
        proxy.proxy.status.close()
        await seen.page.locator("#live[data-state=bad]").wait_for()
    try:
        async with watched(port=port) as again:
            await seen.page.locator("#live[data-state=ok]").wait_for()
            # The new process knows nothing of what was.
            await seen.page.get_by_text("No conversation yet").wait_for()
            await again.send(agent)
            await seen.row(agent.model).wait_for()
    finally:
        await context.__aexit__(None, None, None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone(scheme: str) -> None:
    agent = Agent("Reconcile.", model="a-model-with-a-name-that-is-longer-than-any-phone-is-wide/" * 2)
    async with watched() as proxy:
        await proxy.until_compacted(agent)
        async with looking(proxy, width=360, height=740, scheme=scheme) as seen:
            width = "document.documentElement.scrollWidth"
            await seen.row("compacted").wait_for()
            assert await seen.page.evaluate(width) == 360
            await seen.row("compacted").press("Enter")
            await seen.page.locator("#plot svg path.edge").wait_for()
            detail = "document.getElementById('detail').scrollWidth"
            assert (await seen.page.evaluate(width), await seen.page.evaluate(detail)) == (360, 360)


async def test_text_can_be_read_in_light_and_dark() -> None:
    async with watched() as proxy:
        await two_conversations(proxy)
        for scheme in ("light", "dark"):
            async with looking(proxy, scheme=scheme) as seen:
                await seen.row().first.press("Enter")
                await seen.page.locator("#plot svg path.edge").wait_for()
                # 4.5 to 1 is what WCAG asks of text of this size.
                poor = await seen.page.evaluate(_POOR_CONTRAST)
                assert poor == []


async def test_an_upstream_in_trouble_is_seen() -> None:
    async with watched() as proxy:
        port = urlsplit(proxy.upstream.url).port
        await proxy.stop_upstream()
        async with looking(proxy) as seen:
            await seen.page.locator("#upstream[data-state=bad]").wait_for()
            told = await seen.page.get_by_role("alert").inner_text()
            assert f"127.0.0.1:{port}" in told


async def test_the_bar_marks_the_thresholds() -> None:
    async with watched(compact_at=0.5, compact_to=0.2) as proxy, looking(proxy) as seen:
        await proxy.send(Agent("Reconcile."))
        ticks = seen.page.locator(".tick")
        await ticks.first.wait_for(state="attached")
        places = await ticks.evaluate_all("ticks => ticks.map(tick => tick.style.left)")
        assert sorted(places) == ["calc(20% - 1px)", "calc(50% - 1px)"]
        budget = proxy.proxy.board.summaries()[0].budget
        assert 0 < budget < WINDOW


_POOR_CONTRAST = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].reduce((sum, part, i) => {
    const c = part / 255;
    return sum + [0.2126, 0.7152, 0.0722][i] * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = rgb(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest(".unseen, svg, .none")) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName} ${node.className}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
