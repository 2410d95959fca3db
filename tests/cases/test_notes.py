"""The request for notes: what it must not carry, and what is done when nothing usable comes back."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.cases.table import case
from tests.support import wire_bytes as wire
from tests.support.agent_sessions import TOOLS, AgentSession, remembering_upstream
from tests.support.answers import Answer, error
from tests.support.discovery import Server
from tests.support.formats import FORMATS, Format
from tests.support.prompts import STRICT, text_of
from tests.support.proxied import Walked, proxied
from tests.support.raw_upstream import RawUpstream, Send, Step
from tests.support.recorded import Recorded
from tests.support.scripted import ScriptedUpstream
from tests.support.talks import NOTES_MARKER, Messages, call
from tests.support.watched import watched

EACH_FORMAT = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda f: f.name)
GOOD = "The agent read the pages one after the other."
WINDOW = 4096


def noted(upstream: ScriptedUpstream, answer: Answer) -> None:
    upstream.script = lambda request: answer if upstream.is_notes(request) else None


def marked(**members: Any) -> ScriptedUpstream:
    return ScriptedUpstream(**{"window": WINDOW, "notes_marker": NOTES_MARKER} | members)


# What it carries


@pytest.mark.parametrize(
    "members",
    [
        case("R22", "no choice of tools where there are none", {"tool_choice": "auto"}),
        case(
            "R22", "nor whether calls may be parallel", {"tool_choice": "auto", "parallel_tool_calls": True}
        ),
        case("R23", "an empty list of tools brings no choice", {"tools": [], "tool_choice": "none"}),
        case("R23", "nor does one beside auto", {"tools": [], "tool_choice": "auto"}),
    ],
)
@pytest.mark.parametrize("server", [Server.LLAMA_CPP, Server.BARE], ids=["keeps tools", "unknown"])
@EACH_FORMAT
async def test_what_is_about_tools_is_left_out_where_there_are_none(
    wire_format: Format, members: Mapping[str, Any], server: Server
) -> None:
    upstream = marked(server=server)
    noted(upstream, Answer(text=GOOD))
    body = AgentSession(name="alice", has_tools=False).step(26).body(stream=False)
    value = wire_format.write(body) | dict(members)
    async with upstream.running(), proxied(upstream, window=WINDOW) as proxy:
        walk = await proxy.send(value, path=wire_format.path)
    assert walk.outcome == "compacted"
    notes = [
        request.json for request in upstream.chats if NOTES_MARKER in text_of(request.chat["messages"][-1])
    ]
    assert notes
    # Messages has no such member, and what is not known goes through.
    left_out = {"tools", "tool_choice", *(["parallel_tool_calls"] if wire_format.name != "messages" else ())}
    assert not any(left_out & body.keys() for body in notes)


SHAPING = {
    "response_format": {"type": "json_object"},
    "n": 3,
    "logprobs": True,
    "top_logprobs": 5,
    "stop": ["\n"],
}


async def test_r22_nothing_that_shapes_an_answer_is_in_it() -> None:
    upstream = marked()
    noted(upstream, Answer(text=GOOD))
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(AgentSession(name="alice").step(16).body(**SHAPING))
    assert (walk.outcome, len(walk.notes)) == ("compacted", 1)
    assert not SHAPING.keys() & walk.notes[0].json.keys()
    # The tools stay, since they stand at the beginning of the prompt that is cached.
    assert (walk.notes[0].json["tools"], walk.notes[0].json["tool_choice"]) == (TOOLS, "none")
    assert all(walk.turns[-1].json[name] == value for name, value in SHAPING.items())


# When nothing usable comes back

CALLING = Answer(calls=(("read", {}),), finish_reason="tool_calls")
USELESS = pytest.mark.parametrize(
    "answer",
    [
        case("R24", "a call and no text", CALLING),
        case("X32", "an empty text with a 200", Answer(text="")),
        case("X32", "only blank space", Answer(text=" \n\n ")),
        case("X32", "only reasoning", Answer(reasoning="Let me see.")),
    ],
)


@USELESS
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_useless_notes_are_not_stored_and_not_asked_for_at_every_turn(
    answer: Answer, stream: bool
) -> None:
    upstream, session = marked(), AgentSession(name="alice", result_words=30)
    noted(upstream, answer)
    turns = 60
    async with upstream.running(), watched(upstream.url) as proxy:
        got = [await proxy.send(session.step().body(stream=stream)) for _ in range(turns)]
        # What stands there are failures and trims, never notes.
        assert proxy.names().count("context.compacted") == 0
        failures = proxy.names().count("context.compaction_failed")
    assert {one.status for one in got} == {200}
    assert 2 <= failures <= 6, "after 3, 6, 12 and more turns"
    assert len(upstream.notes) <= 2 * failures
    assert "trimmed" in {one.outcome for one in got}
    assert all(upstream.count(turn.chat) < WINDOW for turn in upstream.turns)


@EACH_FORMAT
async def test_r24_a_call_instead_of_notes_leaves_the_request_as_it_came(wire_format: Format) -> None:
    upstream = marked()
    noted(upstream, CALLING)
    raw = wire_format.wire(AgentSession(name="alice").step(17).body())
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(raw, path=wire_format.path)
    assert (walk.status, walk.outcome, walk.view) == (200, "failed", raw)
    # Asked for once more, in plainer words.
    assert len(walk.notes) == 2


# Histories far beyond the window


@EACH_FORMAT
async def test_x37_no_request_for_notes_parts_a_call_from_its_result(wire_format: Format) -> None:
    upstream = remembering_upstream(window=WINDOW, strict=STRICT)
    session = AgentSession(name="alice").step(100)
    assert upstream.count(session.body()) > 3 * WINDOW
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send(wire_format.wire(session.body()), path=wire_format.path)
    assert walk.status == 200
    assert len(walk.notes) > 2
    assert {notes.status for notes in walk.notes} == {200}


async def test_x39_huge_results_are_shortened_before_notes_are_made_of_them() -> None:
    window = 16384
    upstream = marked(window=window)
    noted(upstream, Answer(text=GOOD))
    messages: Messages = [{"role": "user", "content": "Look at the pictures."}]
    for number in range(10):
        call(
            messages,
            "read",
            {"path": f"{number}.png"},
            f"data:image/png;base64,{number}" + "iVBORw0KGgo" * 6000,
        )
    assert upstream.count({"messages": messages}) > 9 * window
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await proxy.send({"messages": messages, "model": "m"})
        call(messages, "read", {"path": "last.txt"}, "the end")
        later = await proxy.send({"messages": messages, "model": "m"})
    assert (walk.status, later.status) == (200, 200)
    assert walk.notes
    for notes in walk.notes:
        assert (notes.status, upstream.count(notes.chat) < window) == (200, True)
    assert upstream.count(walk.turns[-1].chat) < window


# What was asked stays between the proxy and the model


def asked(request: Recorded) -> str:
    """The instruction as the model got it."""
    text = text_of(request.chat["messages"][-1])
    return text[text.index(NOTES_MARKER) :]


def repeats(before: str, after: str = "") -> Callable[[Recorded], Answer]:
    return lambda request: Answer(text=f"{before}{asked(request)}{after}")


def says_nothing_of_it(text: bytes, instruction: str) -> bool:
    lines = [line for line in instruction.splitlines() if len(line) > 30]
    return NOTES_MARKER.encode() not in text and not any(
        json.dumps(line, ensure_ascii=False)[1:-1].encode() in text for line in lines
    )


@pytest.mark.parametrize(
    "answer",
    [
        case("X41", "where the notes are refused", lambda _: error(500, "no")),
        case("X41", "where they come to nothing", lambda _: Answer(text="")),
        case("X41", "where the model repeats what it was asked first", repeats("", f"\n\n{GOOD}")),
        case("X41", "where it repeats it last", repeats(f"{GOOD}\n\n")),
        case("X41", "where it says nothing else", repeats("")),
    ],
)
@EACH_FORMAT
async def test_the_instruction_reaches_neither_client_nor_later_requests(
    answer: Callable[[Recorded], Answer], wire_format: Format
) -> None:
    upstream, session = marked(), AgentSession(name="alice").step(14)
    upstream.script = lambda request: answer(request) if upstream.is_notes(request) else None
    async with upstream.running(), proxied(upstream) as proxy:
        walks: list[Walked] = []
        for _ in range(12):
            walks.append(await proxy.send(wire_format.wire(session.step().body()), path=wire_format.path))
    assert {walk.status for walk in walks} == {200}
    instruction = asked(upstream.notes[0])
    assert all(says_nothing_of_it(walk.answer, instruction) for walk in walks)
    assert all(says_nothing_of_it(turn.body, instruction) for turn in upstream.turns)


async def test_x41_an_answer_that_breaks_off_on_notes_shows_nothing_of_them() -> None:
    good = remembering_upstream(window=WINDOW)

    def script(request: Recorded) -> list[Step] | None:
        if not request.is_chat or not good.is_notes(request):
            return None
        return [
            Send(wire.response(json.dumps({"error": request.json["messages"][-1]}).encode(), status="500 No"))
        ]

    async with good.running():
        raw = RawUpstream(script=script, behind=good.url)
        async with raw.running(), watched(raw.url) as proxy:
            got = await proxy.send(AgentSession(name="alice").step(16).body())
            again = await proxy.send(AgentSession(name="alice").step(17).body())
    assert (got.outcome, again.status) == ("failed", 200)
    seen = (got.body, again.body, *(turn.body for turn in good.turns))
    assert all(says_nothing_of_it(body, NOTES_MARKER) for body in seen)
