"""Which language is named for what a user wrote."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.language import UNSURE, detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        pytest.param(
            "please read the file and tell me why the test is failing, then fix it", "English", id="English"
        ),
        pytest.param("Bitte lies die Datei und sag mir, warum der Test nicht läuft", "German", id="German"),
        pytest.param(
            "peux-tu lire le fichier et corriger les tests qui ne passent pas", "French", id="French"
        ),
        pytest.param("lee el archivo y arregla los tests que no pasan, por favor", "Spanish", id="Spanish"),
        pytest.param(
            "você pode ler o arquivo e corrigir os testes que não passam", "Portuguese", id="Portuguese"
        ),
        pytest.param("leggi il file e correggi i test che non passano, per favore", "Italian", id="Italian"),
        pytest.param("lees het bestand en zeg me waarom de test niet werkt", "Dutch", id="Dutch"),
        pytest.param(
            "läs filen och säg varför testet inte går igenom, jag vill att det fungerar",
            "Swedish",
            id="Swedish",
        ),
        pytest.param(
            "przeczytaj plik i powiedz, dlaczego test nie przechodzi, proszę", "Polish", id="Polish"
        ),
        pytest.param(
            "lütfen dosyayı oku ve testin neden geçmediğini bul, bu çok önemli", "Turkish", id="Turkish"
        ),
        pytest.param("hãy đọc tệp và cho tôi biết là có lỗi gì không", "Vietnamese", id="Vietnamese"),
        pytest.param(
            "tolong baca berkas ini dan perbaiki tes yang tidak jalan", "Indonesian", id="Indonesian"
        ),
        pytest.param("请阅读 src/main.py 并修复失败的测试", "Chinese", id="Chinese among names"),
        pytest.param("src/main.py を読んで、失敗するテストを直してください", "Japanese", id="Japanese"),
        pytest.param("테스트가 왜 실패하는지 확인해줘", "Korean", id="Korean"),
        pytest.param("прочитай файл main.py и исправь тесты", "Russian", id="Russian"),
        pytest.param("прочитай файл і виправ тести, які не проходять", "Ukrainian", id="Ukrainian"),
        pytest.param("διάβασε το αρχείο και διόρθωσε τα τεστ", "Greek", id="Greek"),
        pytest.param("اقرأ الملف وأصلح الاختبارات", "Arabic", id="Arabic"),
        pytest.param("קרא את הקובץ ותקן את הבדיקות", "Hebrew", id="Hebrew"),
        pytest.param("फ़ाइल पढ़ो और टेस्ट ठीक करो", "Hindi", id="Hindi"),
        pytest.param("อ่านไฟล์แล้วแก้เทสต์ให้ที", "Thai", id="Thai"),
        pytest.param("/mode", UNSURE, id="a command says nothing"),
        pytest.param("ok", UNSURE, id="too little"),
        pytest.param("", UNSURE, id="nothing"),
        pytest.param(
            "```\nthe code and the comments that you have\n```", UNSURE, id="code is in no language"
        ),
        pytest.param(
            "Bitte schau, warum das nicht geht:\n```\nError: the file that you have is not there\n```",
            "German",
            id="English output in a German message",
        ),
    ],
)
def test_the_language_is_that_of_the_users_words(text: str, language: str) -> None:
    assert detect_language([text]) == language


def test_the_newest_messages_decide_where_there_is_much() -> None:
    old = ["please read the file and tell me why that is not what we want " * 60] * 5
    new = ["bitte lies die Datei und sag mir, warum das nicht so ist, wie wir es wollen " * 60] * 20
    assert detect_language(old + new) == "German"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(), max_size=4))
def test_no_text_raises(texts: list[str]) -> None:
    assert detect_language(texts)
