"""
Open the status page in a real Chromium, and hold it to what it promises: no error, no other host.
"""

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing() -> str:
    """Why no page can be opened here; empty where one can."""
    if not CHROMIUM:
        return "Chromium is not installed (Debian and Ubuntu: apt install chromium)"
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError:
        return "the Python package playwright is not installed (pip install '.[dev]')"
    return ""


needs_chromium = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@dataclass(slots=True)
class Opened:
    """
    A page that is open.

    Attributes:
        page: Playwright's page.
        errors: What it wrote to the console as an error or a warning, and what it threw.
        hosts: Where its requests went.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def row(self, text: str = "") -> Any:
        """The row of the list that has *text*."""
        return self.page.locator(".row", has_text=text) if text else self.page.locator(".row")


@contextlib.asynccontextmanager
async def browser(*flags: str) -> AsyncIterator[Any]:
    """A Chromium, without a window; *flags* are further ones of its command line."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS, *flags])
        try:
            yield launched
        finally:
            await launched.close()


@contextlib.asynccontextmanager
async def opened(
    url: str, *, width: int = 1440, height: int = 900, scheme: str = "light", scale: float = 1
) -> AsyncIterator[Opened]:
    """The status page of the proxy at *url*, loaded and connected."""
    async with browser() as launched:
        page = await launched.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=scale
        )
        seen = Opened(page)
        page.on("console", lambda said: seen.errors.extend(_complaints(said)))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
        await page.goto(f"{url}/status")
        await page.locator("#live[data-state=ok]").wait_for()
        yield seen


def _complaints(said: Any) -> Iterator[str]:
    if said.type in ("error", "warning"):
        yield said.text
