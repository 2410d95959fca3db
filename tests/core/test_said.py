"""What is taken for a person's words, and what stands for files."""

import pytest

from proxy.core.messages import Attachment, Kind, Message, Role, Text
from proxy.core.said import placeholder, said_by_user, without_tool_made

IMAGE = Attachment(kind="image")


@pytest.mark.parametrize(
    ("role", "said"),
    [
        pytest.param(Role.USER, "look\n[image]", id="a user's file"),
        pytest.param(Role.TOOL, "look", id="a result's file is the tool's"),
        pytest.param(Role.ASSISTANT, "", id="a model's words"),
        pytest.param(Role.SYSTEM, "", id="a system message"),
    ],
)
def test_who_says_it(role: Role, said: str) -> None:
    message = Message(role=role, texts=(Text(Kind.SAID, "look"),), attachments=(IMAGE,))
    assert said_by_user(message) == said


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(
            "<environment_details>a</environment_details> do <environment_details>b</environment_details> it",
            "do  it",
            id="each element ends at its own end",
        ),
        pytest.param("<tick>a</tick> fix <tick> it", "fix <tick> it", id="one that is not closed"),
        pytest.param("</tick> fix it", "</tick> fix it", id="an end alone"),
        pytest.param('<tick at="1">a</tick>fix it', "fix it", id="with attributes"),
        pytest.param("<tick>a</tick>", "", id="nothing else"),
        pytest.param(" \n", "", id="blank"),
        pytest.param("Observation: 42", "", id="a message that is a tool's as a whole"),
        pytest.param("  fix it\n", "  fix it\n", id="none of it: as it is"),
    ],
)
def test_elements_of_clients_are_left_out(text: str, left: str) -> None:
    assert without_tool_made(text) == left


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        pytest.param(-1, "[image]", id="less than nothing"),
        pytest.param(0, "[image]", id="not known"),
        pytest.param(1, "[image: 1 bytes]", id="one"),
        pytest.param(999, "[image: 999 bytes]", id="bytes"),
        pytest.param(1_000, "[image: 1 kB]", id="a kilobyte"),
        pytest.param(999_999, "[image: 999 kB]", id="kilobytes"),
        pytest.param(1_000_000, "[image: 1.0 MB]", id="a megabyte"),
        pytest.param(10**11, "[image: 100000.0 MB]", id="many"),
    ],
)
def test_the_size_of_a_file(size_bytes: int, said: str) -> None:
    assert placeholder(Attachment(kind="image", size_bytes=size_bytes)) == said


def test_what_is_known_of_a_file_is_said() -> None:
    file = Attachment(kind="file", name="a.pdf", media_type="application/pdf", size_bytes=2_000)
    assert placeholder(file) == "[file: a.pdf, application/pdf, 2 kB]"
