"""
One request with what is answered to it: made from a seed, and kept as JSON.
"""

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import brotli
import zstandard

from tests.fuzz.chat_bodies import chat_bodies
from tests.fuzz.messages_bodies import messages_bodies
from tests.fuzz.responses_bodies import responses_bodies
from tests.fuzz.streams import bare_stream, cut, notes_stream
from tests.fuzz.values import Dice, Make

PATHS: dict[str, Make] = {
    "/v1/chat/completions": chat_bodies,
    "/v1/responses": responses_bodies,
    "/v1/messages": messages_bodies,
}
# As upstreams are started; a small one has nearly every conversation compacted.
WINDOWS = (1024, 4096, 32768)

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """
    What is sent, and what comes back.

    Attributes:
        path: Of the request.
        headers: Beside Host and what frames the body.
        body: As it is sent, coded where the headers say so.
        window: Tokens, of the proxy that is asked.
        chunked: Whether the body goes in chunks, without its length.
        stream: The bytes of the answer's stream, cut as they come; empty for an echo of the body.
        breaks: Whether the stream ends without its last chunk.
        notes: What is answered to a request for notes, cut as it comes.
    """

    path: str
    headers: Pairs
    body: bytes
    window: int
    chunked: bool = False
    stream: tuple[bytes, ...] = ()
    breaks: bool = False
    notes: tuple[bytes, ...] = ()

    def to_json(self) -> str:
        """All of it; bytes as Latin-1, so that what is text can be read."""
        kept: dict[str, Any] = {
            "path": self.path,
            "headers": self.headers,
            "window": self.window,
            "chunked": self.chunked,
            "stream": [piece.decode("latin-1") for piece in self.stream],
            "breaks": self.breaks,
            "notes": [piece.decode("latin-1") for piece in self.notes],
            "body": self.body.decode("latin-1"),
        }
        return json.dumps(kept, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse."""
        kept = json.loads(text)
        return cls(
            path=kept["path"],
            headers=tuple((name, value) for name, value in kept["headers"]),
            body=kept["body"].encode("latin-1"),
            window=kept["window"],
            chunked=kept["chunked"],
            stream=tuple(piece.encode("latin-1") for piece in kept["stream"]),
            breaks=kept["breaks"],
            notes=tuple(piece.encode("latin-1") for piece in kept["notes"]),
        )


_BREAKS: tuple[Callable[[bytes, int], bytes], ...] = (
    lambda raw, at: raw[:at],
    lambda raw, at: raw[:at] + b"\xff" + raw[at:],
    lambda raw, at: raw[:at] + b"\0" + raw[at:],
    lambda raw, at: raw[:at] + raw[at + 1 :],
    lambda raw, at: raw[:at] + raw[at : at + 40] + raw[at:],
    lambda raw, at: b"\xef\xbb\xbf" + raw,
    lambda raw, at: raw + b"}",
    lambda raw, at: b" \r\n\t" + raw + b"\n\n",
    lambda raw, at: b"[" + raw + b"]",
    lambda raw, at: b"",
)
_CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda raw: brotli.compress(raw, quality=1),
    "zstd": zstandard.compress,
    "identity": lambda raw: raw,
    "x-unheard-of": lambda raw: raw[::-1],
}
_HEADERS: Pairs = (
    ("Authorization", "Bearer sk-1"),
    ("Authorization", "Bearer"),
    ("authorization", "Basic é"),
    ("x-api-key", "k" * 900),
    ("Accept", "text/event-stream"),
    ("Accept-Encoding", "gzip, br"),
    ("X-Compaction", "on"),
    ("x-compaction", " OFF "),
    ("X-Odd", ""),
    ("X-Odd", "\u00fc\u00ff"),
    ("X-Odd", "a, b"),
    ("Cookie", "a=b; c=d"),
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Connection", "close, X-Odd"),
    ("TE", "trailers"),
    ("Expect", "100-continue"),
    ("Upgrade", "h2c"),
    ("Content-MD5", "AAAA"),
    ("Digest", "sha-256=AAAA"),
    ("X-Conversation-Id", "7"),
    ("Traceparent", "00-\t-01"),
    ("Forwarded", 'for="[::1]"'),
    ("Idempotency-Key", "x" * 3000),
    ("Range", "bytes=0-1"),
    ("Priority", "u=0"),
)


def case_of(seed: int) -> Case:
    """The case that *seed* stands for."""
    dice = Dice(seed)
    path = dice.choice(tuple(PATHS))
    body = PATHS[path](dice).encode("utf-8", "surrogatepass")
    if dice.strikes(3):
        body = dice.choice(_BREAKS)(body, dice.randint(0, len(body)))
    headers = [("Content-Type", "application/json")]
    headers += dice.sample(_HEADERS, dice.choice((0, 0, 0, 0, 1, 2, 4)))
    if dice.random() < 0.08:
        coding = dice.choice(tuple(_CODINGS))
        headers.append(("Content-Encoding", coding))
        # What says so and is not is refused by the proxy itself.
        body = _CODINGS[coding](body) if dice.random() < 0.9 else body[: dice.randrange(len(body) + 1)]
    stream: tuple[bytes, ...] = ()
    if dice.random() < 0.3:
        stream = cut(dice, bare_stream(dice))
    return Case(
        path=path,
        headers=tuple(headers),
        body=body,
        window=dice.choice(WINDOWS),
        chunked=dice.random() < 0.1,
        stream=stream,
        breaks=bool(stream) and dice.random() < 0.15,
        notes=cut(dice, notes_stream(dice, path)),
    )
