"""What notes may have a name from."""

from proxy.core.claims import unsupported
from proxy.core.evidence import evidence_of, spoken_texts
from proxy.core.messages import Attachment, Conversation, Kind, Message, Role, Text, find_turns
from proxy.core.rewrite import Rewrite
from tests.core.sessions import does, user

MESSAGES = (
    user("fix src/a.py"),
    *does("run_checks", {"folder": "tests/unit"}, "2 failed in test_a.py"),
    Message(
        role=Role.USER,
        texts=(Text(Kind.SAID, "see"),),
        attachments=(Attachment(kind="image", name="error_screen.png"),),
    ),
)


def evidence(rewrite: Rewrite | None = None) -> list[str]:
    end, turns = find_turns(MESSAGES)
    conversation = Conversation(
        messages=MESSAGES,
        brief_end=end,
        turns=turns,
        tool_names=("write_plan",),
        fixed_texts=('{"enum": ["fast_mode"]}',),
    )
    return evidence_of(conversation, rewrite)


def test_it_is_the_brief_calls_results_attachments_and_tools() -> None:
    for name in (
        "src/a.py",
        "run_checks",
        "tests/unit",
        "test_a.py",
        "error_screen.png",
        "write_plan",
        "fast_mode",
    ):
        assert unsupported(f"`{name}`", evidence()) == ()
    assert unsupported("`made_up`", evidence()) == ("made_up",)


def test_of_an_earlier_block_only_what_code_wrote_counts() -> None:
    rewrite = Rewrite(
        seen=2, replaced=2, notes="Called `made_up`.", block="<record>Called `made_up`.\n@ make x_9</record>"
    )
    assert unsupported("`made_up`", evidence(rewrite)) == ("made_up",)
    assert unsupported("`@ make x_9`", evidence(rewrite)) == ()


def test_of_an_earlier_block_without_notes_everything_counts() -> None:
    assert unsupported("`@ make x_9`", evidence(Rewrite(seen=2, replaced=2, block="@ make x_9"))) == ()
    assert "@ make x_9" in evidence(Rewrite(seen=2, replaced=2, block="@ make x_9"))


def test_where_notes_are_taken_out_nothing_is_put_in() -> None:
    assert "<record>@ x</record>" in evidence(
        Rewrite(seen=2, replaced=2, notes="Said. ", block="<record>Said. @ x</record>")
    )


def test_what_was_spoken_is_texts_arguments_and_results_without_reasoning() -> None:
    thought = Message(
        role=Role.ASSISTANT,
        texts=(Text(Kind.REASONING, "hm"), Text(Kind.SEALED, "x"), Text(Kind.SAID, "I look.")),
    )
    spoken = spoken_texts([user("task"), thought, *does("read", "{}", "result")])
    assert spoken == ["task", "I look.", "{}", "result"]
