"""The to-do list after a compaction, whatever set it off, as the model sees it."""

import pytest

from tests.support.answers import Answer
from tests.support.prompts import text_of
from tests.support.proxied import proxied
from tests.support.talks import (
    NOTES_MARKER,
    PAGE,
    Messages,
    block_of,
    body,
    call,
    noting_upstream,
    say,
    until_compacted,
)

NOTES = "Read pages/p1.txt."
TOOLS = ("read", "todowrite")
ITEMS = [
    {"content": "port the reader", "status": "completed"},
    {"content": "port the writer", "status": "in_progress"},
    {"content": "run the tests", "status": "pending"},
]
SHOWN = "- [completed] port the reader\n- [in_progress] port the writer\n- [pending] run the tests"
SECTION = f"## To-do list as these turns left it\n{SHOWN}\n</record-"


def begun() -> Messages:
    messages: Messages = [{"role": "user", "content": "Please port the importer."}]
    call(messages, "todowrite", {"todos": ITEMS}, "Todos updated")
    return messages


def pages(messages: Messages, number: int) -> None:
    for _ in range(number):
        call(messages, "read", {"path": f"pages/p{len(messages)}.txt"}, PAGE)


async def test_after_a_compaction_by_size() -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        block = block_of(await until_compacted(proxy, begun(), TOOLS))
    assert SECTION in block
    reminder = block[block.index("<system-reminder>") :]
    assert reminder.endswith("</system-reminder>")
    assert "look at that list once" in reminder
    assert block.index("</record-") < block.index("<system-reminder>")


async def test_after_an_overflow_answer() -> None:
    upstream = noting_upstream(NOTES, window=2048)
    async with upstream.running(), proxied(upstream, window=16384) as proxy:
        messages = begun()
        pages(messages, 7)
        walk = await proxy.send(body(messages, TOOLS))
    assert walk.status == 200
    assert len(walk.turns) == 2
    assert SECTION in block_of(walk)


async def test_after_notes_in_steps() -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        messages = begun()
        pages(messages, 20)
        walk = await proxy.send(body(messages, TOOLS))
    assert len(walk.notes) > 1
    assert SECTION in block_of(walk)


async def test_after_a_trim_that_leaves_turns_out() -> None:
    upstream = noting_upstream(NOTES)
    refusing = Answer(status=500, body={"error": {"message": "no notes today"}})
    upstream.script = lambda request: refusing if upstream.is_notes(request) else None
    async with upstream.running(), proxied(upstream) as proxy:
        messages = begun()
        pages(messages, 40)
        walk = await proxy.send(body(messages, TOOLS))
    assert walk.outcome == "trimmed"
    assert SECTION in block_of(walk)


async def test_after_a_fold_it_is_the_newest_list() -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        messages = begun()
        await until_compacted(proxy, messages, TOOLS)
        call(messages, "todowrite", {"todos": [{"content": "write it up", "status": "pending"}]}, "ok")
        block = block_of(await until_compacted(proxy, messages, TOOLS))
    assert "## To-do list as these turns left it\n- [pending] write it up\n</record-" in block
    assert block.count("port the writer") == 0


async def test_a_newer_list_in_the_tail_is_pointed_at_instead() -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        messages = begun()
        pages(messages, 5)
        call(messages, "todowrite", {"todos": ITEMS[1:]}, "Todos updated")
        walk = await proxy.send(body(messages, TOOLS))
    assert walk.outcome == "compacted"
    block = block_of(walk)
    assert "To-do list as these turns left it" not in block
    assert "one of the messages below" in block


async def test_a_single_change_in_the_tail_does_not_hide_the_list() -> None:
    tools = ("read", "TaskCreate", "TaskUpdate", "TaskList")
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        messages: Messages = [{"role": "user", "content": "Please port the importer."}]
        for n in (1, 2):
            call(
                messages, "TaskCreate", {"subject": f"part {n}"}, f"Task #{n} created successfully: part {n}"
            )
        pages(messages, 5)
        call(messages, "TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1 status")
        walk = await proxy.send(body(messages, tools))
    assert walk.outcome == "compacted"
    assert "- #1 [no state] part 1\n- #2 [no state] part 2\n" in block_of(walk)
    assert "`TaskList`" in block_of(walk)


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param(("read", "bash", "edit", "write"), id="pi"),
        pytest.param(("bash",), id="mini-swe-agent"),
        pytest.param((), id="no tools"),
    ],
)
async def test_agents_without_a_list_get_neither_list_nor_reminder(tools: tuple[str, ...]) -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await until_compacted(proxy, begun(), tools)
    assert "To-do list as" not in block_of(walk)
    assert "system-reminder" not in b"".join(r.body for r in walk.turns).decode()


async def test_a_list_of_two_hundred_items_leaves_room_for_the_conversation() -> None:
    upstream = noting_upstream(NOTES)
    items = [
        {"content": f"port module {n}", "status": "completed" if n < 60 else "pending"} for n in range(200)
    ]
    async with upstream.running(), proxied(upstream) as proxy:
        messages: Messages = [{"role": "user", "content": "Please port the importer."}]
        call(messages, "todowrite", {"todos": items[:60]}, "ok")
        call(messages, "todowrite", {"todos": items[60:]}, "ok")
        walk = await until_compacted(proxy, messages, TOOLS)
    block = block_of(walk)
    section = block[block.index("## To-do list") : block.index("</record-")]
    # A twentieth of the budget, by the proxy's own count.
    assert upstream.count({"messages": [{"role": "user", "content": section}]}) < 0.08 * walk.budget
    assert "more open, not listed" in section
    assert walk.tokens < 0.6 * walk.budget


async def test_the_notes_request_carries_no_reminder_of_ours_before_the_first_compaction() -> None:
    upstream = noting_upstream(NOTES)
    async with upstream.running(), proxied(upstream) as proxy:
        messages = begun()
        say(messages, "Go on.")
        walk = await until_compacted(proxy, messages, TOOLS)
    (asked,) = walk.notes
    assert NOTES_MARKER in text_of(asked.messages[-1])
    assert all("<system-reminder>" not in text_of(message) for message in asked.messages)
