"""A conversation is known by its content alone."""

import base64
import json
from collections.abc import Callable

import pytest

from proxy.core import digests as module
from proxy.core.digests import SIZE_BYTES, caller, chain, scope
from proxy.core.messages import Call, Conversation, Message, Role, find_turns

SEED = b"seed"


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """What was worked out for another test is worked out anew."""
    module._scope.cache_clear()
    module._caller.cache_clear()


def said(role: Role, text: str) -> Message:
    return Message(role=role, normal=f"{role.value} {text}".encode())


def asks(*calls: tuple[str, str]) -> Message:
    normal = ",".join(arguments for _, arguments in calls).encode()
    return Message(role=Role.ASSISTANT, normal=normal, calls=tuple(Call(i, "read", a) for i, a in calls))


def answer(call_id: str, text: str) -> Message:
    return Message(role=Role.TOOL, normal=text.encode(), answers=(call_id,))


S, U, A = said(Role.SYSTEM, "be brief"), said(Role.USER, "task"), said(Role.ASSISTANT, "done")
TALK = (
    S,
    U,
    asks(("a", "1"), ("b", "2")),
    answer("a", "one"),
    answer("b", "two"),
    A,
    said(Role.USER, "more"),
)


def digests(*messages: Message, seed: bytes = SEED) -> tuple[bytes, ...]:
    brief_end, turns = find_turns(messages)
    return chain(seed, Conversation(messages=messages, brief_end=brief_end, turns=turns))


def same_up_to(changed: tuple[bytes, ...]) -> int:
    """How many leading messages have the digests that they have in `TALK`."""
    pairs = zip(digests(*TALK), changed, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(changed)) - 1


def test_every_prefix_has_a_digest_and_a_longer_history_the_same_ones() -> None:
    whole = digests(*TALK)
    assert len(whole) == len(TALK) + 1
    assert whole[0] == SEED
    for end in range(3, len(TALK) + 1):
        assert digests(*TALK[:end]) == whole[: end + 1]
    assert len(set(whole[2:])) == len(whole) - 2
    assert {len(d) for d in whole[2:]} == {SIZE_BYTES}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        pytest.param(lambda m: m, 7, id="nothing"),
        pytest.param(lambda m: (said(Role.SYSTEM, "new date"), *m[1:]), 7, id="the brief's system message"),
        pytest.param(lambda m: (m[0], said(Role.USER, "other"), *m[2:]), 1, id="the task"),
        pytest.param(lambda m: (*m[:3], m[4], m[3], *m[5:]), 3, id="parallel results in another order"),
        pytest.param(
            lambda m: (*m[:3], answer("b", "one"), answer("a", "two"), *m[5:]),
            3,
            id="results swapped between calls",
        ),
        pytest.param(
            lambda m: (*m[:2], asks(("x", "1"), ("y", "2")), answer("x", "one"), answer("y", "two"), *m[5:]),
            7,
            id="other ids",
        ),
        pytest.param(lambda m: (*m[:4], answer("lost", "two"), *m[5:]), 4, id="a result without its call"),
        pytest.param(lambda m: m[:4], 4, id="a rewind"),
        pytest.param(lambda m: (*m[:6], said(Role.USER, "other")), 6, id="another end"),
        pytest.param(lambda m: (*m[:6], said(Role.SYSTEM, "late"), *m[6:]), 6, id="a late system message"),
        pytest.param(lambda m: (*m[:3], *m[5:]), 3, id="results pruned"),
    ],
)
def test_how_far_a_changed_history_is_the_same(
    change: Callable[[tuple[Message, ...]], tuple[Message, ...]], kept: int
) -> None:
    assert same_up_to(digests(*change(TALK))) == kept


def test_an_order_of_equal_texts_is_told_apart_by_what_they_answer() -> None:
    batch = asks(("a", "1"), ("b", "2"))
    assert digests(U, batch, answer("a", "x"), answer("b", "x")) != digests(
        U, batch, answer("b", "x"), answer("a", "x")
    )


def test_a_system_message_in_front_moves_digests_but_does_not_change_them() -> None:
    assert digests(S, *TALK)[3:] == digests(*TALK)[2:]


def test_another_scope_has_nothing_in_common() -> None:
    assert not set(digests(*TALK)[2:]) & set(digests(*TALK, seed=b"other")[2:])


def token(**claims: object) -> str:
    head, body = (base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in ({}, claims))
    return f"Bearer {head}.{body}.signature"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        pytest.param(["Bearer a"], ["Bearer a"], True, id="one key"),
        pytest.param(["Bearer a"], ["Bearer b"], False, id="two keys"),
        pytest.param([], [""], True, id="no key and an empty one"),
        pytest.param(["Bearer a", "org-1"], ["Bearer a", "org-2"], False, id="two organisations"),
        pytest.param(
            [token(iss="i", sub="s", exp=1)], [token(iss="i", sub="s", exp=2)], True, id="a JWT refreshed"
        ),
        pytest.param([token(iss="i", sub="s")], [token(iss="i", sub="t")], False, id="two subjects"),
        pytest.param([token(iss="i", sub="s")], [token(iss="j", sub="s")], False, id="two issuers"),
        pytest.param([token(iss="i")], [token(iss="i", exp=2)], False, id="a JWT without subject: as it is"),
        pytest.param(["Bearer a.%%.c"], ["Bearer a.%%.d"], False, id="no JWT, though it has dots"),
        pytest.param(["Bearer \ud800"], ["Bearer \ud800"], True, id="a key that is no text"),
    ],
)
def test_scopes(first: list[str], second: list[str], is_same: bool) -> None:
    assert (scope(b"k" * 32, "chat", first) == scope(b"k" * 32, "chat", second)) is is_same


def test_a_scope_depends_on_secret_and_dialect_and_does_not_show_the_key() -> None:
    made = scope(b"k" * 32, "chat", ["Bearer sk-123"])
    assert made != scope(b"l" * 32, "chat", ["Bearer sk-123"])
    assert made != scope(b"k" * 32, "messages", ["Bearer sk-123"])
    assert b"sk-123" not in made


def test_what_an_earlier_version_stored_is_found_again() -> None:
    """These digests are in people's stores: another value loses every compaction that they hold."""
    messages = (
        S,
        U,
        asks(("a", "1"), ("b", "2")),
        Message(role=Role.TOOL, normal=b"both", answers=("a", "b")),
        Message(role=Role.ASSISTANT, normal=b""),
        said(Role.SYSTEM, "later"),
        answer("x", "lost"),
        asks(("a", "3")),
        answer("a", "three"),
    )
    assert [digest.hex() for digest in digests(*messages)] == [
        SEED.hex(),
        SEED.hex(),
        "8d9441599575c6de4e3d3e426c0bbac6",
        "9eb9986005f08e128534a54112791ed2",
        "692420b14de962730ae841027b8cb851",
        "692420b14de962730ae841027b8cb851",
        "fe2e68984e36a9f1d0f93bd98a0e3163",
        "b950a4243509eb438facc71ed2ae44ba",
        "8ebab84be0f5334614d7f2eaeec2942d",
        "918881b897ee6135f57c43e2f4e35ebd",
    ]


def test_a_callers_scope_is_the_same_in_every_version() -> None:
    assert scope(b"secret", "chat", ("Bearer sk-é\ud800", "key", "")).hex() == (
        "197054a4a1486f7f59008fb892fcd779"
    )
    assert scope(b"secret", "chat", (f"Bearer h.{claims(iss='i', sub='s', exp=1)}.s", "", "")).hex() == (
        "1e1d9010bd081782a3a05dba1a33e98f"
    )


def claims(**claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param("", id="none"),
        pytest.param("Bearer ", id="Bearer"),
        pytest.param("Token  ", id="two spaces"),
        pytest.param("My.Own.Scheme ", id="dots"),
        pytest.param("My Own.Scheme ", id="a space and a dot"),
    ],
)
@pytest.mark.parametrize("length", range(20), ids=lambda length: f"claims longer by {length}")
def test_a_refreshed_jwt_is_known_whatever_its_scheme_and_length(scheme: str, length: int) -> None:
    def refreshed(at: int) -> bytes:
        padded = claims(iss="i", sub="s", exp=at, more="x" * length)
        return scope(b"secret", "chat", [f"{scheme}h.{padded}.s{at}"])

    assert refreshed(1) == refreshed(2) == scope(b"secret", "chat", [f"h.{claims(iss='i', sub='s')}.s"])


def test_callers_are_told_apart_by_all_that_they_send() -> None:
    assert caller(["Bearer a", "b"]) == b"Bearer a\nb"
    assert caller([]) == b""
    assert caller(["\ud800"]) == b"\xed\xa0\x80"


def test_what_is_known_of_a_message_is_not_worked_out_again() -> None:
    messages = (said(Role.USER, "task"), asks(("a", "1")), answer("a", "one"))
    first = digests(*messages)
    known = [message.memo.digest for message in messages]
    assert digests(*messages) == first
    assert all(message.memo.digest is before for message, before in zip(messages, known, strict=True))


def test_what_is_known_of_a_message_does_not_hold_where_it_answers_another_call() -> None:
    result = answer("a", "one")
    first = digests(U, asks(("a", "1"), ("b", "1")), result)
    second = digests(U, asks(("b", "1"), ("a", "1")), result)
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]
    assert second == digests(U, asks(("b", "1"), ("a", "1")), answer("a", "one"))
