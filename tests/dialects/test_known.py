"""What was read before is not read again, and nothing else comes of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.digests import chain
from proxy.core.messages import Conversation
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from proxy.dialects.known import Item, Items
from proxy.dialects.responses import RESPONSES
from proxy.dialects.slices import take_apart
from proxy.errors import NotUnderstood
from proxy.sizing import prompt_keys
from proxy.tokenizer import Tokenizer

# Few and alike, so that one body holds what another held, cut differently or in another place.
PIECES = st.sampled_from(
    [
        '{"a":1}',
        '{"a":12}',
        '{"a":1,"b":"x"}',
        '{ "a":1}',
        '{"é":"→"}',
        '"ab"',
        '"abc"',
        "1",
        "12",
        "{}",
        "[1]",
    ]
)
LISTS = st.lists(st.tuples(PIECES, st.sampled_from(["", " ", "\n"])), max_size=6)
LONG = json.dumps({"long": "text " * 80})
FIELDS = st.lists(
    st.tuples(st.sampled_from("pqr"), PIECES | st.just(LONG) | st.just(LONG[:-1] + ',"b":1}')), max_size=3
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    array = "[" + ",".join(f"{space}{piece}{space}" for piece, space in draw(LISTS)) + "]"
    fields = [*draw(FIELDS), ("m", array)]
    text = "{" + ",".join(f'"{key}":{value}' for key, value in draw(st.permutations(fields))) + "}"
    cut = draw(st.integers(0, len(text))) if draw(st.integers(0, 4)) == 0 else len(text)
    return text[:cut].encode()


def read(raw: bytes, items: Items | None = None) -> Any:
    try:
        body = take_apart(raw, ("m",), items.of("caller") if items else None)
    except NotUnderstood as error:
        return str(error)
    return (
        {key: (item.raw, item.value) for key, item in body.fields.items()},
        [(item.raw, item.value) for item in body.lists.get("m", ())],
    )


@given(st.lists(bodies(), max_size=6))
def test_a_body_reads_the_same_whatever_was_read_before(sent: list[bytes]) -> None:
    items = Items()
    for raw in sent:
        assert read(raw, items) == read(raw)


def messages(*contents: str) -> bytes:
    said = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(contents)]
    return json.dumps({"messages": said}).encode()


def parsed(raw: bytes, items: Items, caller: str = "a") -> Conversation:
    return CHAT_COMPLETIONS.parse(raw, items.of(caller)).conversation


def test_what_a_history_shares_with_an_earlier_one_is_the_same_and_the_rest_is_not() -> None:
    items = Items()
    first = parsed(messages("task", "one", "two", "three"), items)
    again = parsed(messages("task", "one", "other", "three", "four"), items)
    same = [a is b for a, b in zip(first.messages, again.messages, strict=False)]
    assert same == [True, True, False, True]
    assert [m.said() for m in again.messages] == ["task", "one", "other", "three", "four"]


def test_callers_have_nothing_in_common() -> None:
    items = Items()
    ours, theirs = (parsed(messages("task", "one"), items, caller) for caller in "ab")
    assert not any(a is b for a, b in zip(ours.messages, theirs.messages, strict=True))


HISTORIES: list[tuple[Dialect, list[dict[str, Any]]]] = [
    (
        CHAT_COMPLETIONS,
        [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "task"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "d", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "C"},
            {"role": "tool", "tool_call_id": "d", "content": "D"},
        ],
    ),
    (
        RESPONSES,
        [
            {"role": "user", "content": "task"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "C"},
            {"type": "reasoning", "summary": []},
        ],
    ),
    (
        ANTHROPIC_MESSAGES,
        [
            {"role": "user", "content": "task"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "C"}]},
        ],
    ),
]  # fmt: skip


class Letters:
    """A vocabulary of single characters."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [ord(c) for c in text]


def variants(history: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Histories of the same messages: longer, shorter, without the first, turned round, twice."""
    yield history
    yield [*history, {"role": "user", "content": "and now"}]
    for end in range(1, len(history)):
        yield history[:end]
    yield history[1:]
    yield history[::-1]
    yield [*history, *history]
    yield history


@pytest.mark.parametrize(("dialect", "history"), HISTORIES, ids=lambda value: getattr(value, "name", ""))
def test_digests_keys_sizes_and_bytes_are_as_of_a_history_that_is_new(
    dialect: Dialect, history: list[dict[str, Any]]
) -> None:
    items = Items()
    tokenizer, letters = Tokenizer(), Tokenizer(read=Letters)
    field = "input" if dialect is RESPONSES else "messages"
    for variant in variants(history):
        raw = json.dumps({"model": "m", field: variant}).encode()
        known, new = dialect.parse(raw, items.of("caller")), dialect.parse(raw)
        assert known.conversation.turns == new.conversation.turns
        for seed in (b"one caller", b"another"):
            assert chain(seed, known.conversation) == chain(seed, new.conversation)
        for rewrite in (None, Rewrite(seen=0, block="block")):
            views = [splice(p.conversation, rewrite) for p in (known, new)]
            for outside in (b"", b"tools"):
                keys = [
                    prompt_keys(outside, view, lambda shown: dialect.message_bytes((shown,))[0])
                    for view in views
                ]
                assert keys[0] == keys[1]
            assert dialect.render(known, views[0]) == dialect.render(new, views[1])
        for count in (tokenizer, letters):
            fresh = dialect.parse(raw).conversation.messages
            assert count.messages(known.conversation.messages) == count.messages(fresh)
        assert [m.joins for m in known.conversation.messages] == [m.joins for m in new.conversation.messages]


def test_a_result_is_told_by_the_call_that_it_answers_not_by_its_bytes() -> None:
    """Ids of calls have no meaning, so that the digests before the result are the same."""
    items = Items()
    result = {"role": "tool", "tool_call_id": "c", "content": "C"}
    digests = []
    for ids in ("cd", "dc"):
        calls = [{"id": id_, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id_ in ids]
        said = [
            {"role": "user", "content": "task"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            result,
        ]
        raw = json.dumps({"messages": said}).encode()
        digests.append(chain(b"seed", parsed(raw, items)))
        assert digests[-1] == chain(b"seed", CHAT_COMPLETIONS.parse(raw).conversation)
    assert digests[0][:3] == digests[1][:3]
    assert digests[0][3] != digests[1][3]


def test_a_number_is_not_known_by_its_beginning() -> None:
    items = Items()
    for digits in ("1" * 300, "1" * 301):
        raw = b'{"p":%b,"m":[%b]}' % (digits.encode(), digits.encode())
        assert read(raw, items) == read(raw)
        assert read(raw, items)[0]["p"] == (digits, int(digits))


def reached(items: Items) -> set[int]:
    """Every item that anything leads to."""
    found: dict[int, Item] = {}
    left = [*items.by_bytes.values(), *items.of("a").hints.values()]
    while left:
        item = left.pop()
        if id(item) not in found:
            found[id(item)] = item
            left += [next_ for next_ in (item.next, item._before) if next_ is not None]
    return set(found)


def test_what_is_kept_is_bounded_and_nothing_leads_to_what_was_dropped() -> None:
    items = Items(most_bytes=200_000)
    for session in range(40):
        contents = [f"{session} {i} " + "text " * 100 for i in range(30)]
        for end in (10, 20, 30):
            parsed(messages(*contents[:end]), items)
        # One that stays, and whose continuation does not.
        parsed(messages("stays", *(["goes " * 100] if not session else [])), items)
        assert items.bytes <= 200_000
        assert items.bytes == sum(item.cost_bytes for item in items.by_bytes.values())
        assert reached(items) == {id(item) for item in items.by_bytes.values()}


def test_one_huge_message_does_not_push_out_the_others() -> None:
    items = Items(most_bytes=200_000)
    small = parsed(messages("task", "one"), items)
    parsed(messages("task", "x" * 200_000, "two"), items)
    assert parsed(messages("task", "one"), items).messages[1] is small.messages[1]
    assert items.bytes <= 200_000
    # Nor is it held by what stood behind it.
    assert reached(items) == {id(item) for item in items.by_bytes.values()}


def test_many_small_values_count_for_what_they_take() -> None:
    items = Items(most_bytes=1_000_000)
    raw = json.dumps({"m": [{"a": [1] * 9_000}]}, separators=(",", ":")).encode()
    take_apart(raw, ("m",), items.of("a"))
    assert not items.by_bytes or items.bytes > 9_000 * 56


def test_callers_and_places_are_bounded() -> None:
    items = Items(most_callers=3)
    for caller in range(10):
        known = items.of(caller)
    assert len(items._callers) == 3
    for i in range(1000):
        take_apart(json.dumps({f"field {i}": ["value " * 60]}).encode(), ("m",), known)
    assert len(known.hints) < 100


def test_of_a_history_larger_than_the_room_the_beginning_stays_known() -> None:
    items = Items(most_bytes=40_000)
    said = [f"number {i} " + "x" * 600 for i in range(40)]
    other = parsed(messages("another", "history"), items, "b")
    first = parsed(messages(*said), items)
    again = parsed(messages(*said, "and more"), items)
    same = [a is b for a, b in zip(first.messages, again.messages, strict=False)]
    known = same.count(True)
    # About a third has room: its beginning, and no more is read again than has none.
    assert 8 <= known < 40
    assert same == [True] * known + [False] * (40 - known)
    assert items.bytes <= 40_000
    assert reached(items) == {id(item) for item in items.by_bytes.values()}
    # What was longer unused had to go for it; a small history finds room afterwards.
    assert parsed(messages("another", "history"), items, "b").messages[0] is not other.messages[0]
    small = [parsed(messages("another", "history"), items, "b").messages[1] for _ in range(2)]
    assert small[0] is small[1]
