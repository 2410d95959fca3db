"""A recorded session, replayed without a server: what would happen, and what is no recording."""

import asyncio
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from proxy import __main__, replay_lines
from proxy.asked import Outcome
from proxy.config import Config, ContextConfig
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.responses import RESPONSES
from proxy.replay import NoRequest, Replayed, replay
from proxy.replay_files import Recording, Unreadable, read_recording
from proxy.replay_upstream import Cache
from proxy.terminal import Screen
from tests.support.early import EARLY
from tests.watching.watched import Agent, watched

WINDOW = 8192


def session(turns: int = 20, **members: Any) -> dict[str, Any]:
    """A recorded session of so many requests, the last of them answered."""
    agent = Agent("Reconcile the ledger.")
    for _ in range(turns):
        agent.work()
    return {"model": agent.model, "messages": agent.messages[:-1]} | members


def replayed(
    body: dict[str, Any], tmp_path: Path, *, notes_tokens: int | None = None, **context: Any
) -> Replayed:
    file = tmp_path / "session.json"
    file.write_text(json.dumps(body))
    config = Config(context=ContextConfig(**(EARLY | {"window": WINDOW} | context)))
    return replay(config, read_recording(file), notes_tokens=notes_tokens)


# What a recording is


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "session"
    file.write_text(text)
    return file


def sent(tmp_path: Path, text: str, output_limit: int | None = None) -> list[Any]:
    return [json.loads(body) for body in read_recording(write(tmp_path, text), output_limit).bodies]


U, A = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "lengths"),
    [
        pytest.param([U], [1], id="not answered yet"),
        pytest.param([U, A], [1], id="one answer"),
        pytest.param([U, A, U], [1, 3], id="a question that was not answered"),
        pytest.param([U, A, U, A], [1, 3], id="two answers"),
        pytest.param([A, U, A], [2], id="begins with an answer"),
        pytest.param([A], [1], id="nothing but an answer"),
    ],
)
def test_a_session_is_taken_apart_before_each_answer(
    tmp_path: Path, messages: list[Any], lengths: list[int]
) -> None:
    bodies = sent(tmp_path, json.dumps({"messages": messages, "tools": [], "model": "m"}))
    assert [len(body["messages"]) for body in bodies] == lengths
    assert all((body["tools"], body["model"]) == ([], "m") for body in bodies)


def test_a_line_each_is_a_request_each(tmp_path: Path) -> None:
    text = "".join(json.dumps({"messages": [U, A, U][:n]}) + "\n\n" for n in (1, 3))
    assert [len(body["messages"]) for body in sent(tmp_path, text)] == [1, 3]


def test_an_output_limit_takes_the_place_of_every_other(tmp_path: Path) -> None:
    text = json.dumps({"messages": [U], "max_completion_tokens": 5, "n_predict": 6})
    assert sent(tmp_path, text, 99) == [{"messages": [U], "max_tokens": 99}]


def test_half_a_character_is_no_fault(tmp_path: Path) -> None:
    text = '{"messages": [{"role": "user", "content": "\\ud800"}]}'
    assert sent(tmp_path, text)[0]["messages"][0]["content"] == "\ud800"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", r"session: is empty; expected a JSON body", id="empty"),
        pytest.param("{", r"line 1, column 2: not JSON", id="cut off"),
        pytest.param("hello\nthere", r"line 1, column 1: not JSON", id="a text"),
        pytest.param("[]", r"an empty list, expected a JSON body", id="a list"),
        pytest.param("null", r"null, expected a JSON body", id="null"),
        pytest.param("3", r"a number, expected a JSON body", id="a number"),
        pytest.param("{}", r"no messages, expected a list of messages", id="no messages"),
        pytest.param('{"messages": []}', r"messages is an empty list", id="empty messages"),
        pytest.param('{"messages": {}}', r"messages is an object", id="messages of another kind"),
        pytest.param('{"messages": [1]}', r"message 1 is a number", id="a message that is none"),
        pytest.param('{"messages": [{"role": 1}]}', r"message 1 has no role", id="no role"),
        pytest.param("[" * 100_000, r"session: not JSON that can be read", id="nested too deeply"),
        pytest.param('{"messages": [{"role": "user"}]}\n{', r"line 2: not JSON", id="a line cut off"),
        pytest.param('{"messages": [{"role": "user"}]}\n{}', r"line 2: no messages", id="a line without any"),
    ],
)
def test_what_is_no_recording_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        read_recording(write(tmp_path, text))


def test_a_missing_and_a_binary_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="none: cannot be read"):
        read_recording(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\x80\x81")
    with pytest.raises(Unreadable, match="no text in UTF-8"):
        read_recording(tmp_path / "binary")


def test_a_body_that_the_proxy_would_not_understand_is_named() -> None:
    with pytest.raises(NoRequest, match="request 2 of the recording"):
        bodies = (b'{"messages": [{"role": "user", "content": "u"}]}', b"{")
        replay(Config(), Recording(CHAT_COMPLETIONS, bodies))


# What it may be of


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "o"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "o"}]}


@pytest.mark.parametrize(
    ("body", "dialect", "lengths"),
    [
        pytest.param({"messages": [U, A, U]}, CHAT_COMPLETIONS, [1, 3], id="chat completions"),
        pytest.param({"messages": [U, USE, RESULT]}, ANTHROPIC_MESSAGES, [1, 3], id="by a block"),
        pytest.param({"system": "s", "messages": [U, A]}, ANTHROPIC_MESSAGES, [1], id="by its system field"),
        pytest.param(
            {"tools": [{"name": "f", "input_schema": {}}], "messages": [U]},
            ANTHROPIC_MESSAGES,
            [1],
            id="by a tool",
        ),
        pytest.param({"tools": 3, "messages": [U]}, CHAT_COMPLETIONS, [1], id="tools that are none"),
        pytest.param({"input": [U, CALL, OUTPUT]}, RESPONSES, [1, 3], id="items"),
        pytest.param(
            {"input": [U, {"type": "reasoning"}, CALL, CALL, OUTPUT, OUTPUT, A]},
            RESPONSES,
            [1, 6],
            id="an answer of several items",
        ),
        pytest.param({"input": "u"}, RESPONSES, [1], id="a text"),
    ],
)
def test_its_shape_tells_the_wire_format(
    tmp_path: Path, body: dict[str, Any], dialect: Dialect, lengths: list[int]
) -> None:
    found = read_recording(write(tmp_path, json.dumps(body)))
    assert found.dialect is dialect
    name = "input" if "input" in body else "messages"
    assert [len(json.loads(request)[name]) for request in found.bodies] == lengths


def test_a_line_of_another_wire_format_is_said(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [U]}), json.dumps({"input": [U]})]
    with pytest.raises(Unreadable, match="request 2 is of another wire format"):
        read_recording(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("dialect", [RESPONSES, ANTHROPIC_MESSAGES], ids=["responses", "messages"])
def test_sessions_of_every_wire_format_are_replayed_alike(tmp_path: Path, dialect: Dialect) -> None:
    chat = session()
    body: dict[str, Any] = {"model": chat["model"]}
    if dialect is RESPONSES:
        body["input"] = [item for message in chat["messages"] for item in as_items(message)]
    else:
        body |= {"max_tokens": 1024, "messages": [as_blocks(message) for message in chat["messages"]]}
    found, as_chat = replayed(body, tmp_path), replayed(chat, tmp_path)
    assert found.totals.requests == as_chat.totals.requests
    assert found.totals.refused_alone is not None
    assert found.totals.refused == 0
    assert found.totals.compactions >= 2
    assert found.totals.notes_processed > 0
    assert all(turn.sent <= turn.budget for turn in found.turns)


def as_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat message as items of the Responses API."""
    if message["role"] == "tool":
        answered = {"call_id": message["tool_call_id"], "output": message["content"]}
        return [{"type": "function_call_output", **answered}]
    said = [{"role": message["role"], "content": message["content"]}] if message.get("content") else []
    calls = [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in message.get("tool_calls", ())
    ]
    return [*said, *calls]


def as_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """A chat message as one of Anthropic's."""
    if message["role"] == "tool":
        result = {"tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [{"type": "tool_result", **result}]}
    said = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["function"]["name"],
         "input": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls", ())
    ]  # fmt: skip
    role = "assistant" if message["role"] == "assistant" else "user"
    return {"role": role, "content": [*said, *calls]}


# What would happen


def test_a_long_session_is_compacted_and_would_have_died(tmp_path: Path) -> None:
    found = replayed(session(), tmp_path)
    totals = found.totals
    assert totals.requests == 20
    assert totals.compactions >= 2
    assert totals.refused_alone is not None and totals.refused == 0
    assert found.turns[totals.refused_alone - 1].whole >= WINDOW > found.turns[totals.refused_alone - 2].whole
    assert all(turn.sent <= turn.budget for turn in found.turns)


def test_prompts_are_rewritten_only_where_something_changed(tmp_path: Path) -> None:
    found = replayed(session(), tmp_path)
    assert [t.number for t in found.turns if t.is_rewritten] == [t.number for t in found.turns if t.changes]
    assert found.totals.rewritten == found.totals.compactions + found.totals.trims


def test_between_rewrites_only_what_is_new_is_processed(tmp_path: Path) -> None:
    found = replayed(session(), tmp_path)
    for before, turn in zip(found.turns, found.turns[1:], strict=False):
        if not turn.changes:
            assert turn.processed == pytest.approx(turn.sent - before.sent, rel=0.2)
        else:
            assert turn.processed > 0.5 * turn.sent


def test_a_session_that_fits_is_left_alone(tmp_path: Path) -> None:
    found = replayed(session(), tmp_path, window=131072)
    assert {turn.outcome for turn in found.turns} == {Outcome.NONE}
    totals = found.totals
    assert (totals.compactions, totals.rewritten, totals.refused_alone) == (0, 0, None)
    assert totals.processed == totals.processed_alone


def test_thresholds_decide(tmp_path: Path) -> None:
    early = replayed(session(), tmp_path, compact_at=0.4, compact_to=0.2)
    late = replayed(session(), tmp_path, compact_at=0.9, compact_to=0.2)
    assert early.totals.compactions > late.totals.compactions
    off = replayed(session(), tmp_path, compact_at=0.0)
    assert off.totals.compactions == 0 and off.totals.trims > 0


def test_the_size_of_the_notes_is_what_is_assumed(tmp_path: Path) -> None:
    small = replayed(session(), tmp_path, notes_tokens=100)
    large = replayed(session(), tmp_path)
    at = next(t.number for t in large.turns if t.changes) - 1
    assert small.turns[at].sent < large.turns[at].sent - 300


def test_a_limit_that_fills_the_window_is_forwarded_untouched(tmp_path: Path) -> None:
    config = Config(context=ContextConfig(window=WINDOW, reserve=WINDOW))
    body = json.dumps(session(2)).encode()
    (turn,) = replay(config, Recording(CHAT_COMPLETIONS, (body,))).turns
    assert (turn.budget, turn.outcome) == (0, Outcome.NONE)


async def test_a_real_proxy_does_the_same(tmp_path: Path) -> None:
    agent, compacted = Agent("Reconcile the ledger."), []
    async with watched(window=WINDOW) as proxy:
        for number in range(1, 16):
            if await proxy.send(agent) == "compacted":
                compacted.append(number)
            agent.work()
    body = {"model": agent.model, "messages": agent.messages[:-2]}
    # Another tokenizer decides a turn earlier or later.
    found = await asyncio.to_thread(replayed, body, tmp_path, notes_tokens=120)
    assumed = [turn.number for turn in found.turns if turn.outcome is Outcome.COMPACTED]
    assert len(assumed) == len(compacted) and all(
        abs(a - b) <= 2 for a, b in zip(assumed, compacted, strict=True)
    )


def test_the_log_is_as_before_afterwards(tmp_path: Path) -> None:
    replayed(session(3), tmp_path)
    assert not logging.getLogger("proxy").disabled


def test_the_cache_keeps_the_longest_common_beginning() -> None:
    cache = Cache()
    seen = [cache.take(prompt) for prompt in (b"abc", b"abcdef", b"abX", b"", b"q")]
    assert [(s.chars, s.new) for s in seen] == [(3, 3), (6, 3), (3, 1), (0, 0), (1, 1)]


# How it is said


def test_lines_say_what_is_assumed_and_what_happened(tmp_path: Path) -> None:
    said = "\n".join(replay_lines.lines(replayed(session(), tmp_path), Screen()))
    for part in (
        "notes are assumed",
        "estimates",
        "▼ compacted: ",
        "prompts had a rewritten prefix",
        "refused at request",
    ):
        assert part in said
    assert "\x1b" not in said


def test_both_strategies_can_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, json.dumps(session()))
    totals, said = {}, {}
    for strategy in ("notes", "mask-first"):
        arguments = ["replay", str(file), "--window", "8192", "--strategy", strategy]
        assert __main__.main([*arguments, "--json"]) == 0
        totals[strategy] = json.loads(capsys.readouterr().out)["totals"]
        assert __main__.main(arguments) == 0
        said[strategy] = capsys.readouterr().out
    assert totals["notes"]["masks"] == 0 < totals["mask-first"]["masks"]
    assert totals["mask-first"]["compactions"] < totals["notes"]["compactions"]
    assert totals["mask-first"]["notes_processed"] < totals["notes"]["notes_processed"]
    assert "masked: " in said["mask-first"] and "old results became a line each" in said["mask-first"]
    assert "mask" not in said["notes"]
    assert __main__.main(["replay", str(file), "--strategy", "mask_first"]) == 2
    assert 'did you mean "mask-first"?' in capsys.readouterr().err


def test_no_content_is_said(tmp_path: Path) -> None:
    found = replayed(session(), tmp_path)
    said = "\n".join(replay_lines.lines(found, Screen())) + replay_lines.to_json(found).decode()
    assert "canary" not in said


def test_the_command_writes_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, json.dumps(session()))
    arguments = ["replay", str(file), "--window", "8192", "--compact-at", "0.5", "--json"]
    assert __main__.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["window"], told["compact_at"], told["compact_to"]) == (8192, 0.5, 0.25)
    assert told["assumed"]["token_counts"] == "estimates"
    assert len(told["turns"]) == told["totals"]["requests"] == 20
    assert any(change["what"] == "compacted" for turn in told["turns"] for change in turn["changes"])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        pytest.param(["--compact-at", "0.2"], 2, "expected compact_to below compact_at", id="contradiction"),
        pytest.param(["--compact-at", "60"], 2, "0.6 for 60 percent", id="percent"),
        pytest.param([], 1, "not JSON", id="no recording"),
    ],
)
def test_faults_are_said_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    assert __main__.main(["replay", str(write(tmp_path, "x")), *arguments]) == status
    assert message in capsys.readouterr().err


def test_it_writes_to_the_stream_that_it_is_given(tmp_path: Path) -> None:
    out = io.StringIO()
    file = write(tmp_path, json.dumps(session(2)))
    assert replay_lines.run(file, Config(), out=out) == 0
    assert "window 32,768" in out.getvalue()
