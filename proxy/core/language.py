"""
Name the language of what a user wrote, so that notes come in it.

By scripts, and for the Latin script by the commonest function words. A table of its own
because the libraries cost more than the question: py3langid brings 4.6 MB of model and
numpy, eld 5.4 MB, lingua over 100 MB, and all of them name some language for `/mode` and
`ok fix it`, where the right answer is that nothing is known.
"""

import re
from collections import Counter
from collections.abc import Sequence

UNSURE = "the language of the user's messages"

_MOST_CHARS = 20_000
_MOST_CHARS_A_TEXT = 4_000
# Fewer hits than this, or no clear lead, is a guess.
_LEAST_HITS = 3
_LEAD = 1.3
# Chinese or Japanese says in one letter what Latin needs three or four for, and technical text is
# full of Latin names; so the other script counts from a smaller share on.
_SHARE = 0.15
_KANA_SHARE = 0.08

_LATIN_END = 0x0370
# (first, last) of the main blocks, from the Unicode Character Database.
_SCRIPTS: tuple[tuple[str, int, int], ...] = (
    ("Cyrillic", 0x0400, 0x052F),
    ("Greek", 0x0370, 0x03FF),
    ("Hebrew", 0x0590, 0x05FF),
    ("Arabic", 0x0600, 0x06FF),
    ("Hindi", 0x0900, 0x097F),
    ("Bengali", 0x0980, 0x09FF),
    ("Tamil", 0x0B80, 0x0BFF),
    ("Telugu", 0x0C00, 0x0C7F),
    ("Thai", 0x0E00, 0x0E7F),
    ("Georgian", 0x10A0, 0x10FF),
    ("Armenian", 0x0530, 0x058F),
    ("kana", 0x3040, 0x30FF),
    ("Han", 0x3400, 0x9FFF),
    ("Korean", 0xAC00, 0xD7AF),
    ("Korean", 0x1100, 0x11FF),
)
# Function words, and what people ask an agent; words that code and English output are full of
# ("in", "do", "for") count for English only where nothing else leads.
_WORDS = {
    "English": """
        the and you that this is are was not with have but can what it we our should please when how
        don't i'm it's there they would could make sure why does which just all""",
    "German": """
        der die das und ist nicht ein eine einen ich du wir sie es mit für auf auch bitte wie was kann
        soll wenn noch aber dass den dem zu von im werden wird mach sollte keine warum jetzt""",
    "French": """
        le la les des est et une pas vous nous que qui dans pour avec sur il je ne c'est ce cette sont
        peux fais s'il plaît mais comme aussi faut être pourquoi du au""",
    "Spanish": """
        el la los las es y una que en por para con no se del al lo como pero más esto está puedes
        quiero hay también cuando favor este esta ser hacer porque todo""",
    "Portuguese": """
        o os as é e uma que não em por para com se do da no na como mas mais isto isso está você pode
        quero também quando favor este esta ser fazer porque são ao""",
    "Italian": """
        il lo gli è e una che non di per con si del della nel come ma più questo questa puoi voglio
        anche quando favore essere fare perché sono alla dei ci""",
    "Dutch": """
        de het een en is niet ik je we van met voor op ook maar dat die zijn kan moet als er naar aan
        wel dit graag waarom deze hoe nog geen""",
    "Swedish": """
        och det att en ett är inte jag du vi som med för på också men kan ska om den har till av vill
        detta hur varför när från""",
    "Danish": """
        og det at en et er ikke jeg du vi som med for på også men kan skal hvis den har til af vil
        dette hvordan hvorfor når fra""",
    "Norwegian": """
        og det å en et er ikke jeg du vi som med for på også men kan skal hvis den har til av vil
        dette hvordan hvorfor når fra""",
    "Finnish": """
        ja on ei se että tämä olen voit mutta kun niin myös ovat oli sitä jos tai mitä miksi nyt vain
        ole pitäisi haluan""",
    "Polish": """
        i w na nie to się że jest z do jak ale tak co czy dla może proszę już tylko być są ten tego
        tej dlaczego""",
    "Czech": """
        a je se na že to v z do jak ale tak co nebo pro jsem není prosím už jen být jsou ten tady proč
        ještě když""",
    "Hungarian": """
        a az és nem hogy egy ez van is de meg csak mint ha vagy kell lehet kérlek miért már most azt""",
    "Romanian": """
        și este nu cu la pe în că un o de ce să sunt mai dar pentru care acest vreau te rog cum din""",
    "Turkish": """
        ve bir bu için ile değil ama de da ne çok gibi var mi olarak olan lütfen daha şu neden evet
        bunu ya ben sen""",
    "Vietnamese": """
        và là của không có cho được này một với những các trong để tôi bạn hãy làm như khi thì""",
    "Indonesian": """
        yang dan di ini itu untuk tidak dengan dari ke saya kamu akan bisa ada pada juga tolong jangan
        atau""",
}
_SETS = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_WORD = re.compile(r"[^\W\d_]{1,30}(?:['\u2019][^\W\d_]{1,10})?")
# Code, paths, addresses and names are in no language.
_NO_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\S*[/\\_<>{}=@#]\S*|\b\w+\(\)", re.DOTALL)


def detect_language(texts: Sequence[str]) -> str:
    """
    The English name of the language of *texts*, or `UNSURE` where too little speaks for one.

    Args:
        texts: What the user wrote, oldest first; the newest count where there is much.
    """
    prose = _prose(texts)
    counts: Counter[str] = Counter()
    letters = 0
    for char in prose:
        if char.isalpha():
            letters += 1
            if ord(char) >= _LATIN_END:
                counts[_script(ord(char))] += 1
    del counts[""]
    if letters and sum(counts.values()) >= max(_SHARE * letters, 2):
        return _by_script(counts, prose)
    return _by_words(prose)


def _prose(texts: Sequence[str]) -> str:
    kept: list[str] = []
    left = _MOST_CHARS
    for text in reversed(texts):
        # The beginning of a long message is what was written, the rest often what was pasted.
        part = _NO_PROSE.sub(" ", text[:_MOST_CHARS_A_TEXT])[:left]
        kept.append(part)
        left -= len(part)
        if not left:
            break
    return "\n".join(reversed(kept))


def _script(code: int) -> str:
    return next((script for script, first, last in _SCRIPTS if first <= code <= last), "")


def _by_script(counts: Counter[str], prose: str) -> str:
    script = max(counts, key=lambda name: counts[name])
    if script in ("Han", "kana"):
        both = counts["Han"] + counts["kana"]
        return "Japanese" if counts["kana"] >= _KANA_SHARE * both else "Chinese"
    if script == "Cyrillic":
        if any(c in prose for c in "јљњђћўѓќ"):
            return UNSURE
        return "Ukrainian" if any(c in prose for c in "іїєґІЇЄҐ") else "Russian"
    if script == "Arabic":
        return "Persian" if any(c in prose for c in "گچپژ") else "Arabic"
    return script


def _by_words(prose: str) -> str:
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(prose)]
    hits = {language: sum(word in known for word in words) for language, known in _SETS.items()}
    ranked = sorted(hits, key=lambda language: (-hits[language], language))
    best, second = ranked[0], ranked[1]
    # Danish and Norwegian share nearly all of these words: either will do.
    if {best, second} == {"Danish", "Norwegian"}:
        second = ranked[2]
    if hits[best] < _LEAST_HITS or hits[best] < _LEAD * hits[second]:
        return UNSURE
    return best
