"""From how much on a language is named, to the letter and the word."""

import pytest

from proxy.core.language import UNSURE, detect_language

BLANK = ". " * 2_000
"""As much of a text as is looked at, without a letter."""


@pytest.mark.parametrize(
    ("text", "language"),
    [
        pytest.param("\u03b1\u03b2", "Greek", id="two letters"),
        pytest.param("\u03b1", UNSURE, id="one letter"),
        pytest.param("\u03b1\u03b2\u03b3 " + "x" * 17, "Greek", id="three letters of twenty"),
        pytest.param("\u03b1\u03b2\u03b3 " + "x" * 18, UNSURE, id="three letters of twenty-one"),
        pytest.param("\u03b1\u03b2 " + "x" * 40, UNSURE, id="two letters of many"),
        pytest.param("\u0370\u0370", "Greek", id="the first letter of a block"),
        pytest.param("\u03ff\u03ff", "Greek", id="the last letter of a block"),
        pytest.param("\u1200\u1208", UNSURE, id="a script that is not in the table"),
        pytest.param("\u1200\u1208 the and you", "English", id="and words beside it"),
        pytest.param("\u03b1" * 5 + "\u05d0" * 2, "Greek", id="the script with more letters"),
        pytest.param("`x` " * 20 + "\u03b1\u03b2", "Greek", id="code is no letter"),
    ],
)
def test_a_script_counts_from_a_share_of_the_letters_on(text: str, language: str) -> None:
    assert detect_language([text]) == language


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        pytest.param(["\u03b1\u03b2" * 1_000, *[BLANK] * 5], UNSURE, id="older than what is looked at"),
        pytest.param(["\u03b1\u03b2" * 1_000, *[BLANK] * 4], "Greek", id="not older than that"),
        pytest.param(
            ["\u03b1\u03b2", "\u03b1" + BLANK[2:], *[BLANK] * 4], "Greek", id="its last letter counts"
        ),
        pytest.param(["\u03b1\u03b2", "\u03b1" + BLANK[1:], *[BLANK] * 4], UNSURE, id="and none after it"),
        pytest.param(["\u03b1\u03b2", *["."] * 20], "Greek", id="many short ones"),
    ],
)
def test_the_newest_twenty_thousand_characters_are_looked_at(texts: list[str], language: str) -> None:
    assert detect_language(texts) == language


@pytest.mark.parametrize(
    ("han", "kana", "language"),
    [
        pytest.param(92, 8, "Japanese", id="eight kana in a hundred"),
        pytest.param(93, 7, "Chinese", id="seven in a hundred"),
        pytest.param(87, 7, "Chinese", id="seven in ninety-four"),
        pytest.param(2, 0, "Chinese", id="no kana"),
        pytest.param(0, 2, "Japanese", id="nothing but kana"),
    ],
)
def test_kana_tell_japanese_from_chinese(han: int, kana: int, language: str) -> None:
    assert detect_language(["\u4e2d" * han + "\u3042" * kana]) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        pytest.param("прочитай файл X и исправь тесты", "Russian", id="Russian with a Latin letter"),
        pytest.param("ово је ђак", UNSURE, id="Serbian or Macedonian"),
        pytest.param("ЇЖАК", "Ukrainian", id="Ukrainian in capitals"),
        pytest.param("їжак", "Ukrainian", id="Ukrainian"),
        pytest.param("این گربه را چک کن", "Persian", id="Persian"),
        pytest.param("اقرأ الملف X", "Arabic", id="Arabic with a Latin letter"),
    ],
)
def test_letters_tell_languages_of_one_script_apart(text: str, language: str) -> None:
    assert detect_language([text]) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        pytest.param("the and you", "English", id="three words"),
        pytest.param("the and", UNSURE, id="two words"),
        pytest.param("don\u2019t i\u2019m it\u2019s", "English", id="another apostrophe"),
        pytest.param("the " * 13 + "und " * 10, "English", id="a lead of three tenths"),
        pytest.param("the " * 12 + "und " * 10, UNSURE, id="less of a lead"),
        pytest.param("que por para se como", UNSURE, id="Spanish or Portuguese"),
        pytest.param("og det er ikke jeg", "Danish", id="Danish or Norwegian: either will do"),
        pytest.param("det en du vi", UNSURE, id="or Swedish: it will not"),
    ],
)
def test_words_name_a_language_where_it_leads(text: str, language: str) -> None:
    assert detect_language([text]) == language
