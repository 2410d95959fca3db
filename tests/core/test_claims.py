"""What in notes is found to be invented, and what is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.claims import are_many, claims, lacks_references, mark_unverified, unsupported

EVIDENCE = (
    "Please fix the parser, and never touch the public API of it.",
    '{"path": "/work/project/src/parser/lexer.py",'
    ' "command": "cd /work && grep -n \\"def lex\\" src/parser/lexer.py\\nls"}',
    "def read_token(self): ...\nclass TokenStream:\n"
    "FAILED tests/test_lexer.py::test_empty - see https://docs.example/lexer#x",
    "npm run   check",
)


@pytest.mark.parametrize(
    "notes",
    [
        pytest.param("Read src/parser/lexer.py.", id="a path by its end"),
        pytest.param("Read `/work/project/src/parser/lexer.py:12-40`.", id="a path with lines"),
        pytest.param("Read /home/me/elsewhere/src/parser/lexer.py.", id="a path by its last two parts"),
        pytest.param("Looked at lexer.py and TESTS/test_lexer.py.", id="a file by its name, in any case"),
        pytest.param('Ran `grep -n "def lex" src/parser/lexer.py`.', id="a command, escaped in JSON"),
        pytest.param("Ran `npm run check`.", id="a command with other white space"),
        pytest.param("```\nnpm run check\n```", id="a command in a fence"),
        pytest.param("`read_token()` and read_token return nothing.", id="a function"),
        pytest.param('The user said "never touch the public API".', id="the user's words"),
        pytest.param(
            "The user said “fix the parser … public API of it”.", id="the user's words with an ellipsis"
        ),
        pytest.param("See https://docs.example/lexer#x.", id="an address"),
        pytest.param("Passed 3/4 and/or failed; input/output is fine.", id="slashes that are no paths"),
        pytest.param('It is "done" and `ok`.', id="short quotations"),
        pytest.param("`TokenStream.read_token()` is slow.", id="a class and its method"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_occurs_in_the_history_is_supported(notes: str) -> None:
    assert unsupported(notes, EVIDENCE) == ()


@pytest.mark.parametrize(
    ("notes", "claim"),
    [
        pytest.param("Read src/parser/grammar.py.", "src/parser/grammar.py", id="a path"),
        pytest.param("Read src/other/lexer.py.", "src/other/lexer.py", id="a known file in a wrong folder"),
        pytest.param("Looked at grammar.py.", "grammar.py", id="a file name"),
        pytest.param("Ran `pytest -q tests/test_lexer.py`.", "pytest -q tests/test_lexer.py", id="a command"),
        pytest.param("Added `parse_all()`.", "parse_all()", id="a function in code marks"),
        pytest.param("Added parse_all.", "parse_all", id="a name with an underscore"),
        pytest.param(
            'The user said "always push to main at once".', "always push to main at once", id="words"
        ),
        pytest.param("Committed as 3f59a43.", "3f59a43", id="a commit"),
        pytest.param(
            "`TokenStream.parse_all()` is new.", "TokenStream.parse_all()", id="a method of a known class"
        ),
        pytest.param("See https://docs.example/grammar.", "https://docs.example/grammar", id="an address"),
    ],
)
def test_what_occurs_nowhere_is_named(notes: str, claim: str) -> None:
    assert unsupported(notes, EVIDENCE) == (claim,)


SOUND = "Read src/parser/lexer.py and tests/test_lexer.py; ran `npm run check`; read_token returns nothing."


@pytest.mark.parametrize(
    ("notes", "many"),
    [
        pytest.param("", False, id="none"),
        pytest.param("`a_1x` `a_2x` `a_3x`", False, id="three, and nothing else"),
        pytest.param("`a_1x` `a_2x` `a_3x` `a_4x`", True, id="four, and nothing else"),
        pytest.param(f"{SOUND} `a_1x` `a_2x` `a_3x` `a_4x`", True, id="half of what is named"),
        pytest.param(
            "`a_1x` `a_2x` `a_3x` `a_4x` " + " ".join(f"`read_token({n})`" for n in range(30)),
            False,
            id="four among many that are sound",
        ),
    ],
)
def test_it_is_worth_asking_again_where_much_of_what_is_named_is_invented(notes: str, many: bool) -> None:
    assert are_many(unsupported(notes, EVIDENCE), notes) is many


def test_what_is_named_is_what_can_be_looked_for() -> None:
    assert claims("Then `npm run check` and lexer.py, and so on.") == ("npm run check", "lexer.py")


def test_each_claim_is_named_once() -> None:
    assert unsupported("a `made_up()` and `made_up()` again", EVIDENCE) == ("made_up()",)


def test_unverified_claims_are_marked_wherever_they_stand() -> None:
    notes = "Added `parse_all()` to src/x/y.py; src/x/y.py is new."
    marked = mark_unverified(notes, unsupported(notes, EVIDENCE))
    assert (
        marked
        == "Added `parse_all()` (unverified) to src/x/y.py (unverified); src/x/y.py (unverified) is new."
    )
    assert mark_unverified(marked, ["parse_all()", "src/x/y.py"]) == marked
    assert mark_unverified(notes, ()) == notes


MANY = [f"read src/part{n}/file{n}.py" for n in range(12)]


@pytest.mark.parametrize(
    ("notes", "evidence", "lacks"),
    [
        pytest.param(
            "Everything went well and is done.", MANY, True, id="nothing named, where there is much"
        ),
        pytest.param("Read src/part3/file3.py.", MANY, False, id="one of them named"),
        pytest.param("Read src/nowhere/at_all.py.", MANY, True, id="only invented ones named"),
        pytest.param("Everything went well and is done.", ["hello"], False, id="nothing to name"),
    ],
)
def test_notes_without_any_reference_are_noticed(notes: str, evidence: list[str], lacks: bool) -> None:
    assert lacks_references(notes, evidence) is lacks


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='ab_/.`"“”<>\\ \n(1:…', max_size=200), st.lists(st.text(max_size=40), max_size=3))
def test_no_text_raises_and_what_is_copied_is_supported(notes: str, evidence: list[str]) -> None:
    claims = unsupported(notes, evidence)
    mark_unverified(notes, claims)
    lacks_references(notes, evidence)
    assert unsupported(notes, [*evidence, notes]) == ()


@pytest.mark.parametrize("piece", ["a/", "`", '"', "a_", "a.", "```\n", "http://", "../"])
def test_hostile_repeats_take_linear_time(piece: str) -> None:
    # Anything worse than linear would take minutes; no clock is needed to notice.
    text = piece * (200_000 // len(piece))
    unsupported(text, [text])
    lacks_references(text, [text] * 3)
