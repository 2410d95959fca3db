"""What becomes of notes on their way into the block: checked, marked, masked, in the user's language."""

import io
import json

import pytest

from proxy.events import log_to
from tests.support.proxied import proxied
from tests.support.raw_client import ask
from tests.support.talks import Messages, block_of, call, notes_asked, noting_upstream, say, until_compacted

BRIEF: Messages = [
    {"role": "user", "content": "Please port the importer in src/importer.py to the new store."}
]
INVENTED = (
    "Read `src/made/up.py`, ran `make nothing-here`, called `no_such_name()` and wrote wrong_file.toml."
)
SOUND = "Read src/importer.py and pages/p1.txt; kept what stood there."


async def test_few_invented_names_are_marked_and_not_asked_about_again() -> None:
    notes = f"{SOUND} Then `no_such_name()` was called."
    upstream = noting_upstream(notes)
    async with upstream.running(), proxied(upstream) as proxy:
        block = block_of(await until_compacted(proxy, list(BRIEF)))
    assert len(upstream.notes) == 1
    assert "Then `no_such_name()` (unverified) was called." in block
    assert "src/importer.py and pages/p1.txt; kept" in block
    assert block.count("occurs nowhere in the conversation") == 1


async def test_sound_notes_are_left_as_they_are() -> None:
    upstream = noting_upstream(SOUND)
    async with upstream.running(), proxied(upstream) as proxy:
        block = block_of(await until_compacted(proxy, list(BRIEF)))
    assert f"## Notes\n{SOUND}\n" in block
    assert "unverified" not in block


async def test_many_invented_names_are_asked_about_once_and_named() -> None:
    upstream = noting_upstream(INVENTED, SOUND)
    async with upstream.running(), proxied(upstream) as proxy:
        block = block_of(await until_compacted(proxy, list(BRIEF)))
    first, second = notes_asked(upstream)
    assert "do not occur" not in first
    for name in ("src/made/up.py", "make nothing-here", "no_such_name()", "wrong_file.toml"):
        assert name in second
    assert SOUND in block
    assert "unverified" not in block


async def test_what_stays_invented_is_marked_counted_and_logged_and_the_compaction_stands() -> None:
    log = io.StringIO()
    log_to(log)
    upstream = noting_upstream(INVENTED)
    async with upstream.running(), proxied(upstream) as proxy:
        walk = await until_compacted(proxy, list(BRIEF))
        _, metrics = await ask(proxy.url, "/metrics", method="GET")
    assert len(walk.notes) == 2
    notes = block_of(walk).partition("before you rely on it.\n")[2]
    assert notes.count(" (unverified)") == 4
    counted = [line for line in metrics.decode().splitlines() if line.startswith("notes_unsupported_total")]
    assert [line.rpartition(" ")[2] for line in counted] == ["4.0"]
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    (compacted,) = [entry for entry in said if entry["event"] == "context.compacted"]
    assert compacted["unsupported"] == 4
    assert "unverified" in compacted["flags"]
    assert "no_such_name" not in log.getvalue()


async def test_a_worse_second_answer_does_not_replace_the_first() -> None:
    upstream = noting_upstream(INVENTED, INVENTED + " Then `worse_still()` ran.")
    async with upstream.running(), proxied(upstream) as proxy:
        block = block_of(await until_compacted(proxy, list(BRIEF)))
    assert len(upstream.notes) == 2
    assert "worse_still" not in block


async def test_a_fold_does_not_take_an_invented_name_for_proven() -> None:
    upstream = noting_upstream(f"{SOUND} Then `no_such_name()` was called.", f"{SOUND} `no_such_name()` ran.")
    async with upstream.running(), proxied(upstream) as proxy:
        messages = list(BRIEF)
        await until_compacted(proxy, messages)
        block = block_of(await until_compacted(proxy, messages))
    assert "`no_such_name()` (unverified) ran." in block


async def test_names_of_tools_are_known() -> None:
    upstream = noting_upstream("The list was kept with `update_my_plan` and read_all_pages.")
    async with upstream.running(), proxied(upstream) as proxy:
        tools = ("read", "update_my_plan", "read_all_pages")
        block = block_of(await until_compacted(proxy, list(BRIEF), tools))
    assert "unverified" not in block


@pytest.mark.parametrize(
    ("language", "brief", "later"),
    [
        pytest.param(
            "German",
            "Bitte prüfe, warum der Import nicht läuft, und ändere nur, was nötig ist.",
            "Das ist gut, aber lass die Tests bitte so, wie sie sind.",
            id="German",
        ),
        pytest.param(
            "Chinese", "请检查导入为什么失败，只修改必要的部分。", "很好，但是不要改测试。", id="Chinese"
        ),
        pytest.param(
            "Japanese",
            "インポートが失敗する理由を調べて、必要なところだけ直してください。",
            "テストは変えないでください。",
            id="Japanese",
        ),
        pytest.param(
            "Russian",
            "Проверь, почему импорт не работает, и измени только то, что нужно.",
            "Хорошо, но тесты не трогай.",
            id="Russian",
        ),
        pytest.param(
            "Spanish",
            "Por favor, mira por qué no funciona la importación y cambia solo lo que haga falta.",
            "Está bien, pero no cambies las pruebas que ya hay.",
            id="Spanish",
        ),
        pytest.param(
            "English",
            "Please find out why the import does not work, and change only what you must.",
            "That is fine, but leave the tests as they are.",
            id="English",
        ),
    ],
)
async def test_notes_are_asked_for_in_the_language_of_the_user(language: str, brief: str, later: str) -> None:
    upstream = noting_upstream("Read pages/p1.txt.")
    async with upstream.running(), proxied(upstream) as proxy:
        messages: Messages = [{"role": "user", "content": brief}]
        say(messages, later)
        # What an agent puts into the user's mouth is in English, and there is more of it.
        environment = (
            "The user is working in the folder /w, and these are the files that are open there. " * 9
        )
        say(messages, f"<environment_context>{environment}</environment_context>")
        block = block_of(await until_compacted(proxy, messages))
    (asked,) = notes_asked(upstream)
    assert f"Write in {language}," in asked
    assert later in block
    assert "environment_context" not in block


KEY = "sk-ant-api03-" + "Ab1" * 12


async def test_secrets_are_masked_in_notes_and_ledger_and_stay_in_user_messages() -> None:
    upstream = noting_upstream(f"Set the key {KEY} in the shell; read pages/p1.txt.")
    async with upstream.running(), proxied(upstream) as proxy:
        messages = list(BRIEF)
        say(messages, f"Use {KEY} for the service.")
        call(messages, "bash", {"command": f"export SERVICE={KEY}"}, "")
        walk = await until_compacted(proxy, messages)
    block = block_of(walk)
    assert block.count(KEY) == 1
    assert f"Use {KEY} for the service." in block
    assert "Set the key [secret: Anthropic key] in the shell" in block
    assert "export SERVICE=[secret: Anthropic key]" in block


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("-----BEGIN PRIVATE KEY-----" * 30, id="a key that never ends"),
        pytest.param("password=" * 100, id="a name without its value"),
        pytest.param("Read \ud800 pages/p1.txt " + "https://" * 100, id="half a character, half addresses"),
    ],
)
async def test_odd_secrets_never_fail_a_request(text: str) -> None:
    upstream = noting_upstream(f"Notes of {text}\nRead pages/p1.txt.")
    async with upstream.running(), proxied(upstream) as proxy:
        messages = list(BRIEF)
        call(messages, "bash", {"command": text}, text)
        walk = await until_compacted(proxy, messages)
    assert walk.status == 200
    assert "## Notes\n" in block_of(walk)


async def test_an_image_and_a_file_become_placeholders_and_tool_made_text_goes() -> None:
    upstream = noting_upstream(SOUND)
    async with upstream.running(), proxied(upstream) as proxy:
        messages = list(BRIEF)
        say(messages, "")
        messages[-1]["content"] = [
            {"type": "text", "text": "It looks like this."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 12}},
            {
                "type": "file",
                "file": {"filename": "log.pdf", "file_data": "data:application/pdf;base64,AAAA"},
            },
            {"type": "text", "text": "<system-reminder>Nobody said this.</system-reminder>"},
        ]
        block = block_of(await until_compacted(proxy, messages))
    assert (
        "It looks like this.\n[image: image/png, 99 bytes]\n[file: log.pdf, application/pdf, 3 bytes]"
        in block
    )
    assert "iVBORw0KGgo" not in block
    assert "Nobody said this" not in block
