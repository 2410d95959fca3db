"""
No regular expression takes more than linear work, whatever a client, an upstream or a model writes.

A pattern without an unbounded repeat looks at a bounded piece of text at each place. Every other
pattern stands in `REVIEWED` with the reason why it is linear; a new one fails until it does.
Three reasons are good ones: it is tried at one place only (`match`, `fullmatch`, `\\A`); or nothing
that follows the repeat can fail; or what begins a match cannot stand inside its repeat, so that no
two places look through the same run.
"""

import ast
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.core.claims import unsupported
from proxy.core.notes import judge

CHECKOUT = Path(__file__).parent.parent
_CALLS = frozenset(("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"))
# An escaped star is a star; a class holds characters.
_NOT_REPEATS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_UNBOUNDED = re.compile(r"\*|(?<!\?)\+|\{\d*,\}")

ANCHORED = "it is tried at the beginning only, and no two of its repeats take the same characters in turn"
WHOLE = "it has to take the whole of a short setting, which the person who runs the proxy writes"
LAST = "nothing after its last repeat can fail"
APART = "what begins a match cannot stand inside its repeat, so each run is looked through once"
BY_LINE = "it begins at the beginning of a line and does not leave it"

REVIEWED = {
    "app_straight.py _SERVER": ANCHORED,
    "app_straight.py _SLASHES": LAST,
    "client.py __init__": ANCHORED,
    "config_rules.py read": WHOLE,
    "config_sources.py SERVICE_LINK": WHOLE,
    "config_texts.py host_problem": WHOLE,
    "config_texts.py key_problem": WHOLE,
    "config_texts.py listen_problem": WHOLE,
    "config_texts.py origin_problem": WHOLE,
    "config_texts.py variable_problem": WHOLE,
    "config_toml.py HEADER": ANCHORED,
    "config_toml.py KEY": ANCHORED,
    "config_toml.py OPENING": "a quote that is not closed is one for each line of the settings",
    "connections.py _FRAMING": "the head is nothing but fields by then, and its repeats give nothing back",
    "connections.py _PLAIN": "it has to take the whole head, and its repeats give nothing back",
    "core/arguments.py _LINE_SPAN": ANCHORED,
    "core/arguments.py _PATCH_FILE": BY_LINE,
    "core/claims.py _FENCE": "the next line that could begin a match ends this one",
    "core/entries.py _ASSIGNMENT": ANCHORED,
    "core/entries.py _CD": ANCHORED,
    "core/jobs.py _KILL": APART,
    "core/language.py _NO_PROSE": "it is given 4000 characters of a text",
    "core/notes.py _JSON_CALL": ANCHORED,
    "core/notes.py _MARKUP": BY_LINE,
    "core/notes.py _THINKING": "it ends at the end of the text where nothing closes it",
    "core/notes.py _THINKING_END": ANCHORED,
    "core/outcomes.py _FRAME_LINE": ANCHORED,
    "core/said.py _OPENINGS": ANCHORED,
    "core/todos.py _BOX": BY_LINE,
    "core/todos.py _told": BY_LINE,
    "core/tools.py _WORD": LAST,
    "core/volatile.py _LINES": BY_LINE,
    "exchange_called.py _CALL": APART,
    "origins.py _HOST": WHOLE,
    "paths.py _SLASHES": LAST,
    "paths.py _VERSION": "it is for the URL of the upstream, which the person who runs the proxy writes",
}


def patterns() -> Iterator[tuple[str, str]]:
    """Where each pattern stands, and the source of it."""
    for file in sorted((CHECKOUT / "proxy").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names: dict[ast.AST, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef):
                target = node.targets[0] if isinstance(node, ast.Assign) else node
                name = getattr(target, "id", None) or getattr(target, "name", None)
                name = name or getattr(getattr(node, "target", None), "id", "")
                for inner in ast.walk(node):
                    if name and inner is not node:
                        names.setdefault(inner, name)
        where = file.relative_to(CHECKOUT / "proxy").as_posix()
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), name), [first, *_]) if name in _CALLS:
                    yield f"{where} {names.get(node, '')}", _text(first)
                case _:
                    pass


def _text(node: ast.expr) -> str:
    """The pattern, as far as it stands there; what is put into it stands elsewhere."""
    parts = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes):
            value = inner.value
            parts.append(value if isinstance(value, str) else value.decode("latin-1"))
    return "".join(parts)


def is_unbounded(pattern: str) -> bool:
    return _UNBOUNDED.search(_NOT_REPEATS.sub("x", pattern)) is not None


FOUND = {where for where, pattern in patterns() if is_unbounded(pattern)}


def test_every_unbounded_pattern_has_a_reason_to_be_linear() -> None:
    assert sorted(FOUND - set(REVIEWED)) == []


def test_no_reason_stands_for_a_pattern_that_is_gone() -> None:
    assert sorted(set(REVIEWED) - FOUND) == []


@pytest.mark.parametrize(
    ("pattern", "unbounded"),
    [
        ("a+", True),
        ("a*?", True),
        ("(?:ab){2,}", True),
        ("[a-z]*+", True),
        ("a{1,300}", False),
        ("a?", False),
        ("a?+", False),
        (r"\*\*\*", False),
        ("[*+]", False),
        (r"[\]*]x", False),
        ("[^]*]", False),
    ],
)
def test_an_unbounded_repeat_is_seen(pattern: str, unbounded: bool) -> None:
    assert is_unbounded(pattern) is unbounded


# What was found: each took time that grew with the square of the text, or doubled with each character


def claims_of(notes: str) -> object:
    return unsupported(notes, ["nothing of it"])


def judged(notes: str) -> object:
    return judge(notes, reasoned=False, called=False, cut=False, room=10**6, count=len, sources=[], written=0)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        pytest.param(claims_of, "`src/a.py" + ":1" * 140 + "x`", id="line references in notes"),
        pytest.param(judged, "Goal\n" + "\n" * 300_000 + "x", id="empty lines in notes"),
    ],
)
def test_a_hostile_text_is_read_to_its_end(read: Callable[[str], object], text: str) -> None:
    """Before, each of these took longer than anybody waits."""

    def give_up(*_: object) -> None:
        pytest.fail("it does not come to its end")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    try:
        read(text)
    finally:
        signal.alarm(0)
