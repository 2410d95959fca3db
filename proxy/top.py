"""
Show the status list of a running proxy in a terminal.

It reads `/status.json` and nothing else. Into a pipe, or with `--once`, it writes one
snapshot; in a terminal it goes on until Ctrl-C.
"""

import json
import sys
import time
from typing import Any, TextIO
from urllib.parse import urlsplit

import httpx

from proxy.errors import ConfigError, ProxyError
from proxy.terminal import BOLD, CYAN, DIM, RED, YELLOW, Screen, ago, grouped, short

# A change is seen soon enough, and the proxy asks its upstream far less often by itself.
_EVERY_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 8 * 1024 * 1024
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Another screen, so that what stood in the terminal stands there again afterwards.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
# Of a short id; and of a bar that can still be read.
_ID, _LEAST_BAR, _MOST_BAR = 12, 8, 40
_OUTCOMES = {"none": "passed untouched", "reused": "notes reused"}
_COLOURS = {"compacted": CYAN, "masked": CYAN, "trimmed": YELLOW, "failed": RED}


class NotAProxy(ProxyError):
    """What answered is no proxy with a status page."""


def run(url: str, *, once: bool = False, out: TextIO | None = None, key: str = "") -> int:
    """
    Show the proxy at *url*, with *key* where it asks for one; returns the exit status.

    Raises:
        ConfigError: If *url* is none.
        ProxyError: If a snapshot cannot be had. A live list says so and tries again.
    """
    out = sys.stdout if out is None else out
    asked = status_url(url)
    if once or not Screen.of(out).is_live:
        print("\n".join(lines(fetch(asked, key), Screen.of(out))), file=out)
        return 0
    shown = lines(fetch(asked, key), Screen.of(out))
    out.write(_ENTER)
    try:
        while True:
            out.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in shown) + _CLEAR_BELOW)
            out.flush()
            time.sleep(_EVERY_SECONDS)
            try:
                shown = lines(fetch(asked, key), Screen.of(out))
            except ProxyError as error:
                screen = Screen.of(out)
                shown = [screen.paint(screen.fit(f"{error}; trying again", screen.width), RED), *shown[1:]]
    except KeyboardInterrupt:
        return 0
    finally:
        out.write(_LEAVE)
        out.flush()


def status_url(url: str) -> str:
    """
    Where `/status.json` is, for an address with or without `/v1` or `/status`, or its scheme.

    Raises:
        ConfigError: If *url* is no address of a server.
    """
    whole = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not whole.isprintable() or " " in whole:
        raise ConfigError(f"top: {url!r} is no address of a proxy; expected one like http://127.0.0.1:8400")
    path = parts.path.rstrip("/")
    for end in ("/status.json", "/status", "/v1"):
        path = path.removesuffix(end)
    return f"{parts.scheme}://{parts.netloc}{path}/status.json"


def fetch(url: str, key: str = "") -> dict[str, Any]:
    """
    The proxy's status; *key* is sent where it is not empty.

    Raises:
        NotAProxy: If what answers has no status of ours.
        ProxyError: If nothing answers.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        status, body = _asked(url, headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise ProxyError(f"no answer from {url} ({why}); is the proxy running there?") from error
    if status == 401:
        raise ProxyError(
            f"{url} asks for {'another' if key else 'a'} key; put one of the proxy's server.admin_keys "
            "into a variable, and name that with --key-env"
        )
    try:
        told = json.loads(body) if status == 200 else None
    except (ValueError, RecursionError) as error:
        raise _not_a_proxy(url) from error
    if not isinstance(told, dict) or not isinstance(told.get("conversations"), list):
        raise _not_a_proxy(url)
    return told


def _asked(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Status and body of an answer. A key is for this proxy, and not for where it may lead."""
    # The environment's proxy would be asked for 127.0.0.1 too.
    with (
        httpx.Client(trust_env=False, timeout=_PATIENCE_SECONDS) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        body = b""
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                break
        return answer.status_code, body[:_MOST_BYTES]


def lines(told: dict[str, Any], screen: Screen) -> list[str]:
    """
    The status as lines, none longer than the screen.

    Raises:
        NotAProxy: If it is not what this version can read.
    """
    try:
        rows = told["conversations"]
        shown = [_head(told, screen), screen.paint(_columns(screen), DIM)]
        shown += [_row(row, told["now"], screen) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAProxy(
            f"the status cannot be read ({type(error).__name__}: {error}); is the proxy of another version?"
        ) from error
    return shown if rows else [*shown, "no conversation yet"]


def _head(told: dict[str, Any], screen: Screen) -> str:
    totals = told["totals"]
    # Where none are made nobody need know of masks.
    keys = ("requests", "compactions", *(("masks",) if totals.get("masks") else ()), "trims", "failures")
    counted = ", ".join(f"{grouped(totals[key])} {key}" for key in keys)
    troubles = [f"{name}: {state}" for name, state in told["health"].items() if state not in ("ok", "")]
    title = f"compaction-proxy {told['version']}"
    text = "; ".join([counted, *troubles])
    room = max(0, screen.width - len(title) - 2)
    counts = screen.paint(screen.fit(text, room).rstrip(), RED if troubles else "")
    return f"{screen.paint(title, BOLD)}  {counts}"


def _widths(screen: Screen) -> tuple[int, int, int]:
    """Columns of the model, the bar and the last event; a narrow screen has neither of the last two."""
    left = screen.width - _ID - len(_numbers("", "", "", "", "", "")) - 5
    model = min(28, max(8, left // 4))
    bar = min(_MOST_BAR, (left - model) // 2)
    return (model, bar, left - model - bar) if bar >= _LEAST_BAR else (max(8, left + 2), 0, 0)


def _numbers(share: str, prompt: str, budget: str, *counts: str) -> str:
    counted = " ".join(f"{count:>4}" for count in counts)
    return f"{share:>5} {prompt:>6}/{budget:<6} {counted}"


def _columns(screen: Screen) -> str:
    model, bar, last = _widths(screen)
    numbers = _numbers("", "prompt", "budget", "cmp", "trim", "fail")
    whole = f"{'id':<{_ID}} {'model':<{model}} {'':<{bar}} {numbers}  {'last event':<{last}}"
    return screen.fit(whole, screen.width).rstrip()


def _row(row: dict[str, Any], now: float, screen: Screen) -> str:
    model, bar, last = _widths(screen)
    totals, budget = row["totals"], row["budget"]
    share = row["tokens"] / budget if budget else 0.0
    numbers = _numbers(
        f"{share:.0%}",
        short(row["tokens"]),
        short(budget),
        str(totals["compactions"] + totals.get("masks", 0)),
        *(str(totals[key]) for key in ("trims", "failures")),
    )
    drawn = screen.bar(share, bar, compact_at=row["compact_at"], compact_to=row["compact_to"])
    named = f"{screen.fit(row['id'], _ID)} {screen.fit(row['model'], model)}"
    told, colour = _last(row, now, screen)
    return f"{named} {drawn} {numbers}  {screen.paint(screen.fit(told, last).rstrip(), colour)}".rstrip()


def _last(row: dict[str, Any], now: float, screen: Screen) -> tuple[str, str]:
    change = row["last"]
    if row["is_noting"]:
        return "writing notes", YELLOW
    if change is None:
        return f"{_OUTCOMES.get(row['last_outcome'], 'asked')}, {ago(now - row['last_at'])}", DIM
    what = str(change["what"])
    sizes = f"{short(change['before'])} {screen.arrow} {short(change['after'])}"
    told = str(change["why"]).replace("_", " ") if what == "failed" else sizes
    return f"{what} {told}, {ago(now - change['at'])}", _COLOURS.get(what, "")


def _not_a_proxy(url: str) -> NotAProxy:
    return NotAProxy(
        f"{url} is no status of a compaction-proxy; is the address right, and `status.enabled` on?"
    )
