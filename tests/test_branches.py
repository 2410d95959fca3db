"""
A session that is edited, rewound or forked: which of its notes go on, and which must not.

A compaction applies to requests that continue the whole history that its notes saw. What
happened on another branch, even inside the tail, is in no view of this one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.agent_sessions import AgentSession, marks, names, remembering_upstream
from tests.support.proxied import Proxied, Walked, extends, proxied

WINDOW = 4096


@dataclass(frozen=True, slots=True)
class Compacted:
    """A session just after a compaction; `replaced` and `seen` count messages from the history's start."""

    session: AgentSession
    walk: Walked
    replaced: int
    seen: int


async def compacted(proxy: Proxied, session: AgentSession, times: int = 1) -> Compacted:
    """Send the growing *session* until it has been compacted so many times."""
    for _ in range(60):
        walk = await proxy.send(session.step().body())
        times -= walk.outcome == "compacted"
        if not times:
            shown = len(walk.messages) - 2
            return Compacted(session, walk, len(session.messages) - shown, len(session.messages))
    raise AssertionError("nothing was compacted")


async def grow(proxy: Proxied, session: AgentSession, turns: int) -> list[Walked]:
    walked = []
    for turn in range(turns):
        walked.append(await proxy.send(session.step(turn > 0).body()))
        assert walked[-1].status == 200
    return walked


def only_its_own(session: AgentSession, walked: list[Walked]) -> bool:
    """Whether every mark in what reached the upstream is in the history as *session* has it."""
    own = marks(str(session.messages))
    return all(marks(body.body) <= own for walk in walked for body in (*walk.turns, *walk.notes))


@pytest.mark.parametrize(
    ("keep", "is_inherited"),
    [
        pytest.param(lambda c: 4, False, id="rewound to the first turn"),
        pytest.param(lambda c: c.replaced - 2, False, id="rewound into the replaced range"),
        pytest.param(lambda c: c.replaced, False, id="rewound to the tail's start"),
        pytest.param(lambda c: c.seen - 2, False, id="rewound inside the tail"),
        pytest.param(lambda c: c.seen, True, id="forked right after the tail"),
    ],
)
@pytest.mark.parametrize("times", [1, 3], ids=["after one compaction", "after three"])
async def test_a_rewound_session_gets_only_its_own_notes(
    keep: Callable[[Compacted], int], is_inherited: bool, times: int
) -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"), times)
        branch = before.session.fork("branch", keep=keep(before))
        walked = await grow(proxy, branch.step(), 30)
        assert only_its_own(branch, walked)
        block = before.walk.messages[1]["content"]
        # Notes of its own may say the same: what they saw may be the same.
        is_found = walked[0].outcome == "reused" and walked[0].messages[1]["content"] == block
        assert is_found is is_inherited
        assert any(walk.outcome == "compacted" for walk in walked)
        # The other branch goes on as before, with its own notes.
        (back,) = await grow(proxy, before.session.step(), 1)
        assert (back.outcome, back.notes) == ("reused", ())
        assert extends(back.view, before.walk.view)


@pytest.mark.parametrize("place", ["replaced range", "tail"])
@pytest.mark.parametrize("role", ["assistant", "tool"])
async def test_an_edited_message_takes_its_notes_out_of_use(place: str, role: str) -> None:
    """P07: a compaction that saw another text does not apply."""
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"))
        edited = before.session.fork("edited")
        at = 4 if place == "replaced range" else before.replaced
        at += edited.messages[at]["role"] != role
        assert edited.messages[at]["role"] == role
        edited.messages[at] = edited.messages[at] | {"content": "mark-edited-999 stands here. " * 20}
        walk = await proxy.send(edited.body())
        assert walk.status == 200 and len(walk.notes) == 1
        assert only_its_own(edited, [walk])
        # Notes of its own, and where they saw another text they say so.
        assert (before.walk.messages[1] != walk.messages[1]) is (place == "replaced range")


async def test_a_rewind_to_before_the_newest_fold_uses_the_one_before() -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        first = await compacted(proxy, AgentSession(name="alice"))
        second = await compacted(proxy, first.session)
        branch = second.session.fork("branch", keep=second.seen - 4)
        (walk, *_) = await grow(proxy, branch.step(), 1)
        assert (walk.outcome, walk.notes) == ("reused", ())
        assert walk.messages[1] == first.walk.messages[1]
        assert only_its_own(branch, [walk])


async def test_a_rewind_to_below_the_threshold_goes_as_it_came() -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"))
        branch = before.session.fork("branch", keep=10)
        (walk, *_) = await grow(proxy, branch.step(), 1)
        assert (walk.outcome, walk.view) == ("none", walk.body)


async def test_a_clients_own_summary_is_a_new_history_and_no_error() -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"))
        own = AgentSession(name="fresh", task=before.session.task + " Summary so far: three files are done.")
        walked = await grow(proxy, own, 30)
        assert only_its_own(own, walked)
        assert walked[0].view == walked[0].body


async def test_swapped_results_of_parallel_calls_are_another_history() -> None:
    upstream = remembering_upstream(window=WINDOW)
    session = AgentSession(name="alice")
    calls = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": "read_file", "arguments": f'{{"path": "same{i}.py"}}'},
        }
        for i in range(2)
    ]
    session.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    session.messages += [
        {"role": "tool", "tool_call_id": "call_0", "content": "left"},
        {"role": "tool", "tool_call_id": "call_1", "content": "right"},
    ]
    async with upstream.running(), proxied(upstream) as proxy:
        await compacted(proxy, session)
        same = await proxy.send(session.body())
        assert (same.outcome, same.notes) == ("reused", ())
        swapped = session.fork("swapped")
        swapped.messages[3] = {"role": "tool", "tool_call_id": "call_1", "content": "left"}
        swapped.messages[4] = {"role": "tool", "tool_call_id": "call_0", "content": "right"}
        walk = await proxy.send(swapped.body())
        assert len(walk.notes) == 1


class Aider:
    """A session without tools whose last user message is made anew on every call, as aider does."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session

    def body(self, state: int) -> dict[str, object]:
        body = self.session.body()
        messages = [dict(message) for message in self.session.messages]
        messages[-1]["content"] += (
            f"\n\n*Files as they are now*\nstate {state} of the file: " + "x = 1\n" * 20
        )
        return body | {"messages": messages}


async def test_a_tail_that_is_rendered_anew_is_found_by_its_range() -> None:
    """Where the tail that was seen held no call, the replaced range alone is enough."""
    upstream = remembering_upstream(window=WINDOW)
    aider = Aider(AgentSession(name="aider", has_tools=False))
    walked = []
    async with upstream.running(), proxied(upstream) as proxy:
        for state in range(60):
            walked.append(await proxy.send(aider.body(state)))
            aider.session.step()
    assert {walk.status for walk in walked} == {200}
    compactions = [i for i, walk in enumerate(walked) if walk.outcome == "compacted"]
    assert 2 <= len(compactions) <= 60 / 4
    first = compactions[0]
    assert all(walk.outcome in {"reused", "compacted"} for walk in walked[first:])
    assert all("state" in walk.messages[-1]["content"] for walk in walked)
    # Its newest rendering, and no older one, stands at the end.
    for state, walk in enumerate(walked):
        assert f"state {state} of" in walk.messages[-1]["content"]


async def test_a_tail_with_calls_is_not_found_by_its_range() -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"))
        branch = before.session.fork("branch", keep=before.replaced)
        # What the branch says takes the place of the tail; it has no call of its own.
        branch.messages.append({"role": "assistant", "content": "mark-branch-1 I stop here."})
        branch.messages.append({"role": "user", "content": "mark-branch-2 Go on."})
        walk = await proxy.send(branch.body())
        assert only_its_own(branch, [walk])
        assert walk.messages[1] != before.walk.messages[1]


async def test_a_new_user_message_goes_on_with_the_compaction() -> None:
    upstream = remembering_upstream(window=WINDOW)
    async with upstream.running(), proxied(upstream) as proxy:
        before = await compacted(proxy, AgentSession(name="alice"))
        session = before.session
        session.messages += [
            {"role": "assistant", "content": "All done."},
            {"role": "user", "content": "Now the same for the office in Rome."},
        ]
        walk = await proxy.send(session.body())
        assert (walk.outcome, walk.notes) == ("reused", ())
        assert extends(walk.view, before.walk.view)
        assert names(walk.view) == {"alice"}
