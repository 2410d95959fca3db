"""
Will this model server do, and what would the proxy do with it?

`compaction-proxy check` asks the server what a running proxy would ask, and says the
answers to a person, with advice for the server's flags. Nothing is generated.
"""

import asyncio
import json
import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.check_advice import advice, enlarge, without_window
from proxy.check_prefix import REQUEST, check_prefix
from proxy.config import Config
from proxy.core.budget import Budget, reserve_for
from proxy.core.overflow import LEAST_WINDOW
from proxy.discovery import Ask, Found, ServerKind, count, discover
from proxy.discovery_answers import Server, dict_of, dicts_of, parsed
from proxy.errors import ConfigError, ProxyError
from proxy.tokenizer import Tokenizer
from proxy.upstream import Upstream
from proxy.way_out import proxy_for

NAMES = {
    ServerKind.LLAMA_CPP: "llama.cpp",
    ServerKind.VLLM: "vLLM",
    ServerKind.SGLANG: "SGLang",
    ServerKind.OLLAMA: "Ollama",
    ServerKind.LM_STUDIO: "LM Studio",
    ServerKind.OPENAI: "OpenAI",
    ServerKind.OPENROUTER: "OpenRouter",
    ServerKind.TGI: "TGI",
    ServerKind.OTHER: "an OpenAI-like server of a kind that it does not say",
}
# Of a line of the report; terminals have 80 to 120.
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    What a check found.

    Attributes:
        title: What the server is.
        facts: Names with what was found.
        problems: Why it cannot work, each with its remedy; empty where it can.
        advice: What could be better.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def run(config: Config) -> int:
    """Check `config.upstream`, print the report, and say by the exit status whether it will do: 0 or 1."""
    report = asyncio.run(_check(config))
    print(render(report))
    return 1 if report.problems else 0


async def _check(config: Config) -> Report:
    upstream = Upstream(
        url=config.upstream.url,
        key=os.environ.get(config.upstream.key_env, "") if config.upstream.key_env else "",
        proxy=proxy_for(config.upstream.url, os.environ),
        connect_timeout_seconds=config.upstream.connect_timeout_seconds,
    )
    try:
        return await examine(upstream.ask, config)
    finally:
        await upstream.close()


async def examine(ask: Ask, config: Config) -> Report:
    """Ask everything that a proxy with *config* would go by. Never raises."""
    url = config.upstream.url
    try:
        listing = await ask("GET", "/v1/models")
    except ProxyError as error:
        return Report(title=f"{url} does not answer", problems=(str(error),))
    kind = None if config.upstream.kind == "auto" else ServerKind(config.upstream.kind)
    found, model = await _of_some_model(ask, kind, dicts_of(dict_of(parsed(listing.body)).get("data")))
    problems: list[str] = []
    if listing.status in (401, 403) and found.window is None:
        problems.append(
            f"it wants a key (HTTP {listing.status}): put the key into an environment variable and name that "
            "in upstream.key_env"
        )
    window, source = found.window, found.window_source
    if isinstance(config.context.window, int):
        window, source = config.context.window, "context.window"
    facts = [("window", f"{window} tokens, from {source}" if window else "not known")]
    if model:
        facts.insert(0, ("model", model))
    if window is None:
        problems += [] if problems else [without_window(found)]
    elif window < LEAST_WINDOW:
        problems.append(f"a window of {window} tokens is too small for an agent: {enlarge(found.kind)}")
    else:
        try:
            facts += list(_plan(config, found, window))
        except ConfigError as error:
            problems.append(str(error))
    facts.append(("counting", await _counting(ask, found, model)))
    if found.kind is ServerKind.LLAMA_CPP:
        facts.append(("cached prefix", str(await check_prefix(ask, model))))
    props = dict_of(await Server(ask, model, ()).get("/props"))
    return Report(
        title=f"{url} is {NAMES[found.kind]}" + (f" with {_slots(found.slots)}" if found.slots else ""),
        facts=tuple(facts),
        problems=tuple(problems),
        advice=tuple(advice(found, props, window)),
    )


def render(report: Report) -> str:
    """The report as text for a terminal."""
    widest = max((len(name) for name, _ in report.facts), default=0)
    lines = [report.title, *([""] if report.facts else [])]
    for name, said in report.facts:
        lines += _wrapped(said, f"  {name:<{widest}}  ")
    for heading, texts in (("Advice", report.advice), ("It cannot work like this", report.problems)):
        if texts:
            lines += ["", f"{heading}:"]
            for text in texts:
                lines += _wrapped(text, "  - ")
    if not report.problems:
        lines += ["", "It will work."]
    return "\n".join(lines)


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


async def _of_some_model(
    ask: Ask, kind: ServerKind | None, listed: list[dict[str, Any]]
) -> tuple[Found, str]:
    """What is found of the one model there is, of the one that is loaded, or of the first in the list."""
    names = [entry["id"] for entry in listed if isinstance(entry.get("id"), str)]
    found = await discover(ask, names[0] if len(names) == 1 else "", kind=kind)
    if len(names) == 1:
        return found, names[0]
    if found.kind is ServerKind.LLAMA_CPP:
        # A question about a model that is not loaded would load it.
        names = [name for name, entry in zip(names, listed, strict=False) if _is_loaded(entry)]
    if found.window is None and names:
        return await discover(ask, names[0], kind=kind), names[0]
    return found, ""


def _is_loaded(entry: dict[str, Any]) -> bool:
    return dict_of(entry.get("status")).get("value") == "loaded"


def _plan(config: Config, found: Found, window: int) -> Iterator[tuple[str, str]]:
    """
    What the proxy would do.

    Raises:
        ConfigError: If the configuration leaves no room in the window.
    """
    context = config.context
    configured = context.reserve if isinstance(context.reserve, int) else None
    budget = Budget(
        window=window,
        reserve=reserve_for(window, None, configured, enforced=found.enforces_limit),
        compact_at=context.compact_at,
        compact_to=context.compact_to,
    )
    own = "just that" if found.enforces_limit else "that, up to a quarter of the window"
    yield (
        "budget",
        f"{budget.limit} tokens for a prompt, {budget.reserve} kept for the answer (where a request limits "
        f"its output: {own})",
    )
    if budget.compact_at:
        yield (
            "compaction",
            f"when a prompt grows past {int(budget.compact_at * budget.limit)} tokens, down to about "
            f"{int(budget.compact_to * budget.limit)}",
        )
    else:
        yield "compaction", "off (context.compact_at is 0); what does not fit is trimmed"


async def _counting(ask: Ask, found: Found, model: str) -> str:
    """How tokens are counted, by trying it."""
    body = json.dumps(dict(REQUEST, model=model)).encode()
    exact = await count(ask, found, "/v1/chat/completions", body)
    known = await asyncio.to_thread(Tokenizer().load)
    estimate = (
        "estimated with the o200k vocabulary" if known else "estimated from bytes (no vocabulary found)"
    )
    learned = f"{estimate}, corrected by what the server reports after each answer"
    if exact is None:
        return learned
    return f"{learned}; near a limit exactly, by {found.count_path} (it counted {exact} for a test prompt)"


def _slots(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"
