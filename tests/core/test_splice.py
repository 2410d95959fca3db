"""Where the block goes, and what is left out."""

import pytest

from proxy.core.messages import Conversation, Cut, Kind, Message, Role, Shown, Text, View, find_turns
from proxy.core.rewrite import Rewrite
from proxy.core.splice import splice, view_index


def said(role: Role, text: str) -> Message:
    return Message(role=role, wire={"role": role.value, "content": text}, texts=(Text(Kind.SAID, text),))


def talk(*roles: Role) -> Conversation:
    messages = tuple(said(role, str(i)) for i, role in enumerate(roles))
    brief_end, turns = find_turns(messages)
    return Conversation(messages=messages, brief_end=brief_end, turns=turns)


S, U, A, T = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL
WORK = (A, T, A, T)
REWRITE = Rewrite(seen=4, replaced=2, block="BLOCK")


def texts(view: View) -> list[str]:
    return [
        f"{s.message.role.value} {s.message.texts[0].text}{s.appended and ' + ' + s.appended}" for s in view
    ]


@pytest.mark.parametrize(
    ("brief", "view"),
    [
        pytest.param((S, U), ["system 0", "user 1 + BLOCK"], id="system and task"),
        pytest.param((U, S, S), ["user 0 + BLOCK", "system 1", "system 2"], id="system after the task"),
        pytest.param((U, U, U), ["user 0", "user 1", "user 2 + BLOCK"], id="several users: the last"),
        pytest.param((S,), ["system 0", "user BLOCK"], id="no user: one that carries it"),
        pytest.param((), ["user BLOCK"], id="no brief at all"),
    ],
)
def test_the_block_goes_inside_the_briefs_last_user_message(brief: tuple[Role, ...], view: list[str]) -> None:
    conversation = talk(*brief, *WORK)
    spliced = splice(conversation, REWRITE)
    assert texts(spliced)[:-2] == view
    assert [s.message for s in spliced[-2:]] == list(conversation.messages[-2:])
    assert all(s.is_word_for_word for s in spliced[-2:])


def test_without_a_rewrite_everything_goes_word_for_word() -> None:
    conversation = talk(S, U, *WORK)
    assert splice(conversation, None) == tuple(Shown(message=m) for m in conversation.messages)


def test_a_trim_that_replaces_nothing_shows_no_block() -> None:
    conversation = talk(U, *WORK)
    rewrite = Rewrite(seen=4, block="stale", cuts=(Cut(at=1, text=0, put="short"),), is_trim=True)
    view = splice(conversation, rewrite)
    assert [s.message for s in view] == list(conversation.messages)
    assert [s.cuts for s in view] == [(), (), ((0, "short"),), (), ()]
    assert not any(s.appended for s in view)


def test_cuts_find_their_message_behind_the_replaced_ones() -> None:
    rewrite = Rewrite(
        seen=4, replaced=2, block="B", cuts=(Cut(at=3, text=0, put="x"), Cut(at=3, text=1, put="y"))
    )
    view = splice(talk(*WORK), rewrite)
    assert view[-1].cuts == ((0, "x"), (1, "y"))
    assert view[-2].is_word_for_word


@pytest.mark.parametrize("brief", [(), (S,), (S, U), (U, S)])
@pytest.mark.parametrize("rewrite", [None, REWRITE, Rewrite(seen=2, is_trim=True)])
def test_a_message_is_found_in_the_view(brief: tuple[Role, ...], rewrite: Rewrite | None) -> None:
    conversation = talk(*brief, *WORK)
    view = splice(conversation, rewrite)
    for at in range(rewrite.replaced if rewrite else 0, 4):
        message = conversation.messages[conversation.brief_end + at]
        assert view[view_index(conversation, rewrite, at)].message is message


def test_a_block_without_a_user_message_is_said_by_one() -> None:
    [carrier] = [s.message for s in splice(talk(S, *WORK), REWRITE) if s.message.role is U]
    assert carrier.texts == (Text(Kind.SAID, "BLOCK"),)
