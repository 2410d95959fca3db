"""Which words of notes are claims, and what supports one, at exactly which limit."""

import pytest

from proxy.core.claims import are_many, claims, lacks_references, mark_unverified, unsupported


@pytest.mark.parametrize(
    ("notes", "named"),
    [
        pytest.param(
            "```\nmake\nls\n  tox -q  \n```", ("make", "tox -q"), id="lines of four and more in a fence"
        ),
        pytest.param("```\nmake\n```made_up", ("make", "made_up"), id="what follows a fence on its line"),
        pytest.param("`ok` `tox` `tox4` `1234` ` 12 `", ("tox4",), id="four in code marks, and not a number"),
        pytest.param("see`tox4`made_up", ("tox4", "made_up"), id="code marks part what stands beside them"),
        pytest.param('"never touch it"', ("never touch it",), id="three words in quotes"),
        pytest.param('"absolute certainty"', (), id="two words in quotes"),
        pytest.param(
            "„größtmöglich“ «грамматика»", ("größtmöglich", "грамматика"), id="words of other languages"
        ),
        pytest.param(
            "made_up.https://docs.example/x.",
            ("https://docs.example/x", "made_up"),
            id="an address is taken out, and what stands before it left",
        ),
        pytest.param(
            "src/a.py, (src/b.py) and src/c.", ("src/a.py", "src/b.py", "src/c"), id="paths, without marks"
        ),
        pytest.param("and/or 3/4 input/output", (), id="two words and a slash"),
        pytest.param("one/two/three", ("one/two/three",), id="three parts"),
        pytest.param("one/two/", ("one/two/",), id="two parts, the second a folder"),
        pytest.param("/one/two", ("/one/two",), id="from the root"),
        pytest.param("a.b/c", ("a.b/c",), id="a point"),
        pytest.param("a/b_c", ("a/b_c",), id="an underscore"),
        pytest.param("~root/bin", ("~root/bin",), id="somebody's home"),
        pytest.param("./run ../run", ("./run", "../run"), id="from here and from above"),
        pytest.param(
            "/".join(["part"] * 31) + "/made_up",
            ("/".join(["part"] * 31) + "/", "made_up"),
            id="a path beyond its 31 parts",
        ),
        pytest.param(
            "(lexer.py), made_up. 3f59a43!", ("lexer.py", "made_up", "3f59a43"), id="names, without marks"
        ),
        pytest.param("made_up made_up", ("made_up",), id="each once"),
    ],
)
def test_what_is_named(notes: str, named: tuple[str, ...]) -> None:
    assert claims(notes) == named


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        pytest.param(
            "`Parser.read`", ["class Parser", "read"], id="a class and a method, each a text of its own"
        ),
        pytest.param(
            '"never touch the API"', [r'{"text": "never touch\nthe API"}'], id="a line's end as JSON has it"
        ),
        pytest.param('"really don\'t touch it"', ["really don’t touch it"], id="the other apostrophe"),
        pytest.param('"really don’t touch it"', ["really don't touch it"], id="and the other way round"),
        pytest.param("src/parser/", ["cd src/parser && ls"], id="a folder with a slash"),
        pytest.param("/made/src/parser/", ["cd src/parser && ls"], id="the end of a folder with a slash"),
        pytest.param("/made/ab/c", ["cd ab/c"], id="an end of four characters"),
    ],
)
def test_what_supports_a_claim(claim: str, evidence: list[str]) -> None:
    assert unsupported(claim, evidence) == ()


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        pytest.param("`cat made/src/lexer.py`", ["src/lexer.py"], id="a command by the end of its path"),
        pytest.param("`made//temp`", ["cd /temp"], id="a path by a slash and its last part"),
        pytest.param("`made/temp/(x)`", ["cd temp/"], id="a path by its last part and a slash"),
        pytest.param("/made/a/b", ["cd a/b"], id="an end of three characters"),
        pytest.param("/made/a/lexer", ["cd lexer"], id="a path by its last part"),
        pytest.param("lexer.rs", ["cd lexer; rs"], id="a file by its parts"),
    ],
)
def test_what_supports_none(claim: str, evidence: list[str]) -> None:
    assert unsupported(claim, evidence) == (claim.strip("`"),)


@pytest.mark.parametrize(
    ("sound", "many"),
    [pytest.param(16, False, id="a fifth of all"), pytest.param(15, True, id="more than a fifth")],
)
def test_it_is_worth_asking_again_past_a_fifth(sound: int, many: bool) -> None:
    invented = ("made_1", "made_2", "made_3", "made_4")
    notes = " ".join([*invented, *(f"sound_{n}" for n in range(sound))])
    assert are_many(invented, notes) is many


def test_a_claim_is_marked_before_those_that_it_begins_with() -> None:
    assert mark_unverified("In src/x/y.py and src/x now.", ["src/x", "src/x/y.py"]) == (
        "In src/x/y.py (unverified) and src/x (unverified) now."
    )


NINE = " ".join(f"src/file{n}.py" for n in range(9))


@pytest.mark.parametrize(
    ("evidence", "lacks"),
    [
        pytest.param([NINE], False, id="nine references"),
        pytest.param([NINE, "src/file9.py"], True, id="ten"),
        pytest.param([NINE, "src/file8.py and/or 3/4"], False, id="nine, one of them twice"),
        pytest.param([NINE, "~me/x".rjust(100_000)], True, id="the tenth at the end of 100,000 characters"),
        pytest.param([NINE, "~m/x".rjust(100_001)], False, id="the tenth one character past them"),
    ],
)
def test_ten_references_make_it_odd_that_notes_have_none(evidence: list[str], lacks: bool) -> None:
    assert lacks_references("Everything went well.", evidence) is lacks


def test_a_class_and_its_method_are_a_reference() -> None:
    assert not lacks_references("`Parser.read` works.", [f"{NINE} src/file9.py class Parser", "read"])
