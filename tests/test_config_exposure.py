"""Which addresses may be listened on, for whom, and what a person is told who would let in everybody."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.config import Config, load
from proxy.config_exposure import is_loopback
from proxy.errors import ConfigError


def loaded(text: str, environ: Mapping[str, str] | None = None, *, tmp_path: Path) -> Config | str:
    """The configuration, or what keeps it from being one."""
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    try:
        return load(path, environ or {}, {})
    except ConfigError as error:
        return str(error).replace(str(path), "F")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("192.168.1.2", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("gpu", False),
        ("", False),
    ],
)
def test_loopback_is_what_this_machine_alone_can_reach(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("listen", ["0.0.0.0:8400", "[::]:8400", "192.168.1.2:8400", "gpu:8400"])
def test_another_address_without_keys_is_refused_with_the_remedies(tmp_path: Path, listen: str) -> None:
    told = loaded(f'[server]\nlisten = "{listen}"', tmp_path=tmp_path)
    assert isinstance(told, str)
    assert "nothing was started" in told
    assert f"F, line 2: server.listen is {listen}, which other machines may reach" in told
    for remedy in (
        "127.0.0.1:8400",
        "server.keys",
        "COMPACTION_PROXY_SERVER_KEYS",
        "server.open = true",
        "COMPACTION_PROXY_SERVER_OPEN=true",
    ):
        assert remedy in told


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        pytest.param('keys = ["sk-one", "sk-two"]', {}, id="keys in the file"),
        pytest.param("", {"COMPACTION_PROXY_SERVER_KEYS": "sk-one, sk-two"}, id="keys in the environment"),
        pytest.param("open = true", {}, id="open in the file"),
        pytest.param("", {"COMPACTION_PROXY_SERVER_OPEN": "true"}, id="open in the environment"),
    ],
)
def test_another_address_with_keys_or_open_is_taken(
    tmp_path: Path, text: str, environ: dict[str, str]
) -> None:
    config = loaded(f'[server]\nlisten = "0.0.0.0:8400"\n{text}', environ, tmp_path=tmp_path)
    assert isinstance(config, Config)
    assert config.server.open or config.server.keys == ("sk-one", "sk-two")


@pytest.mark.parametrize("keys", ["keys = []", 'admin_keys = ["sk-admin"]'])
def test_no_keys_and_keys_of_people_let_in_no_clients(tmp_path: Path, keys: str) -> None:
    told = loaded(f'[server]\nlisten = "0.0.0.0:8400"\n{keys}', tmp_path=tmp_path)
    assert isinstance(told, str) and "set server.keys" in told


def test_keys_that_would_not_be_asked_for_are_a_fault(tmp_path: Path) -> None:
    told = loaded('[server]\nopen = true\nkeys = ["sk-one"]', tmp_path=tmp_path)
    assert isinstance(told, str)
    assert "F, line 2 and F, line 3: server.open is true and there are server.keys" in told


@pytest.mark.parametrize(
    ("server", "fits"),
    [
        pytest.param("", True, id="on this machine alone"),
        pytest.param('keys = ["sk-one"]', False, id="clients would read one another"),
        pytest.param('listen = "0.0.0.0:1"\nopen = true', False, id="everybody would read"),
        pytest.param('keys = ["sk-one"]\nadmin_keys = ["sk-admin"]', True, id="for those with a key"),
        pytest.param('listen = "[::]:1"\nopen = true\nadmin_keys = ["a"]', True, id="open, but not the page"),
    ],
)
def test_words_of_conversations_are_shown_to_none_but_their_owner(
    tmp_path: Path, server: str, fits: bool
) -> None:
    told = loaded(f"[server]\n{server}\n[status]\nshow_content = true", tmp_path=tmp_path)
    assert isinstance(told, Config) is fits
    assert fits or "status.show_content is true, which shows the words" in str(told)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        pytest.param('keys = "sk-one"', "write it in brackets", id="no list"),
        pytest.param("keys = 5", "each of them is a text in quotes", id="a number"),
        pytest.param('keys = ["sk one"]', "without spaces and commas", id="a space"),
        pytest.param('keys = ["sk,one"]', "without spaces and commas", id="a comma"),
        pytest.param('keys = ["schlüssel"]', "visible ASCII", id="beyond ASCII"),
        pytest.param('keys = [""]', "an empty key would let in everybody", id="empty"),
        pytest.param('keys = ["sk-one", 7]', "each of them is a text in quotes", id="a number among them"),
        pytest.param('allowed_hosts = ["a.example:80"]', "leave out the port", id="a port"),
        pytest.param('allowed_hosts = ["http://a.example"]', "a name or address alone", id="a URL"),
        pytest.param('allowed_hosts = ["[::1]:80"]', "leave out the port", id="IPv6 and port"),
        pytest.param('allowed_origins = ["localhost:3000"]', "scheme, host and port", id="no scheme"),
        pytest.param('allowed_origins = ["http://a/b"]', "without a path", id="a path"),
    ],
)
def test_a_list_that_does_not_fit_is_refused_and_never_shown(tmp_path: Path, line: str, remedy: str) -> None:
    told = loaded(f"[server]\n{line}", tmp_path=tmp_path)
    assert isinstance(told, str) and remedy in told
    assert "sk" not in told.split("server.", 1)[1] and "ü" not in told


def test_what_fits_is_kept_once_each(tmp_path: Path) -> None:
    hosts, origins = '["::1", "[::2]", "a.example", "*"]', '["*", "app://x", "*"]'
    text = f"[server]\nallowed_hosts = {hosts}\nallowed_origins = {origins}"
    config = loaded(text, tmp_path=tmp_path)
    assert isinstance(config, Config)
    assert config.server.allowed_hosts == ("::1", "[::2]", "a.example", "*")
    assert config.server.allowed_origins == ("*", "app://x")


def test_keys_do_not_stand_in_what_a_config_says_of_itself(tmp_path: Path) -> None:
    config = loaded('[server]\nkeys = ["sk-one"]\nadmin_keys = ["sk-admin"]', tmp_path=tmp_path)
    assert "sk-" not in repr(config)


def test_a_command_that_listens_nowhere_does_not_mind(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[server]\nlisten = "0.0.0.0:1"')
    assert load(path, {}, {}, listens=False).server.listen == "0.0.0.0:1"
