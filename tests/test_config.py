"""What can be set, what is refused, and what a person is told then."""

import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config import NOTES_INSTRUCTION, Config, ServerConfig, StoreConfig, UpstreamConfig, load
from proxy.config import settings as known_settings
from proxy.config_toml import find_lines
from proxy.errors import ConfigError

SHIPPED = Path(__file__).parent.parent / "config.toml"


def faults(
    tmp_path: Path,
    text: str = "",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> list[str]:
    """What is wrong with a file of *text*, which the messages call F; empty where nothing is."""
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    try:
        load(path, environ or {}, flags or {})
    except ConfigError as error:
        return [line.removeprefix("  - ").replace(str(path), "F") for line in str(error).splitlines()[1:]]
    return []


# The shipped file


def test_the_shipped_file_says_the_defaults() -> None:
    assert load(SHIPPED, {}, {}) == load(None, {}, {}) == Config()


def test_the_shipped_file_shows_every_key_with_a_comment_above_it() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    shown = {(table, key) for table, keys in tomllib.loads(text).items() for key in keys}
    assert shown == {(table, key) for table, keys in known_settings().items() for key in keys}
    lines = text.splitlines()
    places = find_lines(text)
    assert [key for key in sorted(shown) if not lines[places[key] - 2].startswith("# ")] == []


def test_the_default_instruction_has_both_placeholders_and_is_short() -> None:
    assert {name for _, name, _, _ in Formatter().parse(NOTES_INSTRUCTION) if name} == {"language", "words"}
    assert len(NOTES_INSTRUCTION.split()) < 300


# Precedence


@pytest.mark.parametrize(
    ("file", "environ", "flag", "url"),
    [
        pytest.param("", {}, None, "", id="nothing set: the default"),
        pytest.param("http://file", {}, None, "http://file", id="the file over the default"),
        pytest.param(
            "http://file",
            {"COMPACTION_PROXY_UPSTREAM_URL": "http://env"},
            None,
            "http://env",
            id="env over file",
        ),
        pytest.param(
            "http://file", {"COMPACTION_PROXY_UPSTREAM": "http://env"}, None, "http://env", id="short name"
        ),
        pytest.param(
            "http://file",
            {"COMPACTION_PROXY_UPSTREAM": "http://env"},
            "http://flag",
            "http://flag",
            id="flag over env",
        ),
        pytest.param(
            "http://file", {"COMPACTION_PROXY_UPSTREAM": ""}, None, "http://file", id="empty: not set"
        ),
    ],
)
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, file: str, environ: dict[str, str], flag: str | None, url: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[upstream]\nurl = "{file}"')
    assert load(path, environ, {"upstream.url": flag}).upstream.url == url


def test_every_key_can_be_set_by_its_variable() -> None:
    environ = {
        f"COMPACTION_PROXY_{table}_{key}".upper(): _as_variable(setting.default)
        for table, keys in known_settings().items()
        for key, setting in keys.items()
    }
    assert load(None, environ, {}) == Config()


def _as_variable(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


def test_values_keep_their_types() -> None:
    config = load(
        None, {"COMPACTION_PROXY_CONTEXT_COMPACT_AT": "0", "COMPACTION_PROXY_CONTEXT_WINDOW": "4096"}, {}
    )
    assert (config.context.compact_at, type(config.context.compact_at)) == (0.0, float)
    assert (config.context.window, type(config.context.window)) == (4096, int)


# What is refused


def test_all_faults_of_all_sources_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = '[context]\nwindw = 3\ncompact_at = 60\n\n[upstream]\nurl = "localhost:8080"\n\n[contxt]\n'
    environ = {"COMPACTION_PROXY_STORE_KIND": "sqlit", "COMPACTION_PROXY_UPSTRAEM": "x"}
    found = faults(tmp_path, text, environ, {"server.listen": "8400"})
    assert found == [
        'F, line 2: [context] has no key "windw"; did you mean window?',
        "F, line 3: context.compact_at is 60, expected a number from 0, up to 1; it is "
        "a share: 0.6 for 60 percent",
        'F, line 6: upstream.url is "localhost:8080", expected an http:// or https:// address; '
        "begin it with http:// or https://, as in http://localhost:8080",
        'F, line 8: there is no table "contxt"; did you mean [context]?',
        'COMPACTION_PROXY_STORE_KIND in the environment: store.kind is "sqlit", expected one of "sqlite", '
        '"memory"; did you mean "sqlite"?',
        "COMPACTION_PROXY_UPSTRAEM in the environment: there is no such setting; did you mean "
        "COMPACTION_PROXY_UPSTREAM?",
        'the command line: server.listen is "8400", expected host:port; write both, as in 127.0.0.1:8400; '
        "0.0.0.0 listens on every interface",
    ]


def test_a_value_that_another_source_overrules_is_judged_all_the_same(tmp_path: Path) -> None:
    assert len(faults(tmp_path, "[upstream]\nurl = 3", {}, {"upstream.url": "http://h"})) == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("window = 0", "is 0, expected a whole number from 1 up", id="window of 0"),
        pytest.param("window = -1", "is -1", id="window below 0"),
        pytest.param("window = true", "is true", id="true is no number"),
        pytest.param("window = 4096.0", "is 4096.0", id="a fraction for a whole number"),
        pytest.param('window = "4096"', 'is "4096"', id="a number in quotes"),
        pytest.param('window = "Auto"', 'is "Auto"', id="auto in capitals"),
        pytest.param("window = []", "is a list", id="a list"),
        pytest.param("window = 2026-01-01", "is 2026-01-01", id="a date"),
        pytest.param(
            f"window = {10**400}", "is a whole number beyond 9223372036854775807", id="a huge number"
        ),
        pytest.param("compact_at = nan", "is nan", id="not a number"),
        pytest.param("compact_at = inf", "is inf", id="infinity"),
        pytest.param(f"compact_at = {10**400}", "is a whole number beyond", id="a huge share"),
        pytest.param("compact_at = 1.01", "is 1.01", id="more than all"),
        pytest.param("compact_to = 0", "is 0, expected a number above 0, up to 1", id="aiming for nothing"),
        pytest.param(
            "trim_to = 1.0", "is 1.0, expected a number above 0, below 1", id="a trim that frees nothing"
        ),
        pytest.param("compact_keep_turns = 0", "is 0", id="no tail"),
        pytest.param("notes_max_tokens = 63", "is 63", id="notes too short to say anything"),
        pytest.param('notes_instruction = " "', "say what the notes are to hold", id="blank instruction"),
        pytest.param('keepalive_seconds = "10s"', 'is "10s"', id="a unit"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    [found] = faults(tmp_path, f"[context]\n{text}")
    key = text.partition(" ")[0]
    assert found.startswith(f"F, line 2: context.{key} ")
    assert fault in found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "compact_at = 0.2", "compact_to is 0.25 and compact_at 0.2", id="compact_to over compact_at"
        ),
        pytest.param(
            "compact_at = 0.5\ncompact_to = 0.5", "is 0.5 and compact_at 0.5", id="compact_to at compact_at"
        ),
        pytest.param(
            "window = 4096\nreserve = 4096", "reserve is 4096 in a window of 4096", id="reserve is all"
        ),
        pytest.param(
            "window = 512\nnotes_max_tokens = 600", "notes_max_tokens is 600", id="notes over the window"
        ),
        pytest.param("keep_user_share = 0.9", "is 1.1, expected less than 1", id="shares over the whole"),
        pytest.param(
            'compact_ahead_at = 0.7\nmode = "ahead"',
            "compact_ahead_at is 0.7 with compact_at 0.6 and compact_to 0.25",
            id="notes ahead over compact_at",
        ),
        pytest.param(
            'compact_at = 0.4\nmode = "ahead"', "compact_ahead_at is 0.5 with compact_at 0.4", id="by default"
        ),
        pytest.param(
            'compact_ahead_at = 0.2\nmode = "ahead"', "compact_ahead_at is 0.2", id="ahead at compact_to"
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    [found] = faults(tmp_path, f"[context]\n{text}")
    assert found.startswith("F, line 2")
    assert fault in found


def test_a_value_that_does_not_fit_is_not_also_called_a_contradiction(tmp_path: Path) -> None:
    assert len(faults(tmp_path, "[context]\ncompact_at = 0.2\ncompact_to = 7")) == 1


def test_compact_at_0_switches_compaction_off_whatever_compact_to_is(tmp_path: Path) -> None:
    assert faults(tmp_path, "[context]\ncompact_at = 0\ncompact_to = 0.9") == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("compact_at = 0.4", id="notes are made inline"),
        pytest.param('mode = "ahead"\ncompact_at = 0', id="compaction is off"),
        pytest.param('mode = "ahead"\ncompact_ahead_at = 0.6', id="at compact_at"),
    ],
)
def test_compact_ahead_at_counts_only_where_notes_are_made_ahead(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, f"[context]\n{text}") == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            'upstream = "http://h"', 'line 1: upstream is "http://h", expected a table', id="no table"
        ),
        pytest.param("[[log]]", "line 1: log is a list, expected a table", id="several tables"),
        pytest.param('listen = "h:1"', 'line 1: "listen" stands outside of its table', id="before any table"),
        pytest.param(
            "[context]\nlisten = 1",
            'line 2: [context] has no key "listen"; it belongs in [server]',
            id="other",
        ),
        pytest.param("[context]\nCompact-At = 1", "did you mean compact_at?", id="case and dashes"),
        pytest.param("[context]\nzzz = 1", "it has window, reserve", id="nothing near"),
        pytest.param("[qqq]", "there are [server], [upstream]", id="no table near"),
        pytest.param(
            "[store.sqlite]\npath = 1", 'line 1: [store] has no key "sqlite"', id="a table in a table"
        ),
        pytest.param("[", "F: not TOML", id="not TOML"),
        pytest.param("[log]\n[log]", "F: not TOML", id="a table twice"),
        pytest.param("a = " + "[" * 20000, "F: not TOML", id="deep nesting"),
        pytest.param("a = " + "9" * 5000, "F: not TOML", id="a number of 5000 digits"),
    ],
)
def test_the_file_is_read_strictly(tmp_path: Path, text: str, fault: str) -> None:
    found = faults(tmp_path, text)
    assert len(found) == 1
    assert fault in found[0]


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        pytest.param(lambda p: None, "there is no such file", id="missing"),
        pytest.param(lambda p: p.mkdir(), "cannot be read (Is a directory)", id="a folder"),
        pytest.param(lambda p: p.write_bytes(b"a\xff"), "byte 1 is not UTF-8", id="not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, make: object, fault: str) -> None:
    path = tmp_path / "c.toml"
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        load(path, {}, {})


def test_the_byte_order_mark_of_a_windows_editor_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b'\xef\xbb\xbf[log]\r\nlevel = "debug"\r\n')
    assert load(path, {}, {}).log.level == "debug"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://127.0.0.1:8080",
        "https://api.example.org/v1/",
        "http://[::1]:8080/v1",
        "http://host",
        "HTTP://H:1",
    ],
)
def test_an_upstream_address_may_be(url: str) -> None:
    assert load(None, {}, {"upstream.url": url}).upstream.url == url


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        pytest.param("localhost:8080", "begin it with http://", id="no scheme"),
        pytest.param("ftp://h", "begin it with http://", id="another scheme"),
        pytest.param("http://", "a host is needed", id="no host"),
        pytest.param("http://:8080", "a host is needed", id="only a port"),
        pytest.param("http://h:0", "a port other than 0", id="port 0"),
        pytest.param("http://h:99999", "the port goes from 1", id="port too high"),
        pytest.param("http://h:x", "the port goes from 1", id="port no number"),
        pytest.param("http://[::1", "in brackets", id="open bracket"),
        pytest.param("http://h/v1?key=1", "end it before the ?", id="query"),
        pytest.param("http://h/#", "end it before the ?", id="fragment"),
        pytest.param("http://h /v1", "without spaces", id="space"),
        pytest.param("http://h\n", "without spaces", id="line end"),
        pytest.param("http://hö", "in ASCII", id="beyond ASCII"),
    ],
)
def test_an_upstream_address_is_refused(tmp_path: Path, url: str, remedy: str) -> None:
    [found] = faults(tmp_path, flags={"upstream.url": url})
    assert remedy in found


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [("127.0.0.1:8400", "127.0.0.1", 8400), ("[::1]:0", "::1", 0), ("localhost:65535", "localhost", 65535)],
)
def test_an_address_to_listen_on(listen: str, host: str, port: int) -> None:
    server = load(None, {"COMPACTION_PROXY_LISTEN": listen}, {}).server
    assert (server.host, server.port) == (host, port)


@pytest.mark.parametrize(
    "listen",
    [
        "8400",
        ":8400",
        "h:",
        "h:65536",
        "h:-1",
        "h:1_0",
        "::1:8400",
        "[::1:8400",
        "[x]:1",
        "http://h:1",
        "h h:1",
        "",
        "h:²",
    ],
)
def test_an_address_to_listen_on_is_refused(tmp_path: Path, listen: str) -> None:
    assert len(faults(tmp_path, f"[server]\nlisten = {listen!r}")) == 1


# Keys and other secrets


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("url", "http://me:s3cret@h", id="password in the address"),
        pytest.param("key_env", "sk-s3cret", id="the key for its variable's name"),
        pytest.param("key_env", "sks3cret", id="a key that could be a name"),
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_shown(tmp_path: Path, key: str, value: str) -> None:
    [found] = faults(tmp_path, f'[upstream]\n{key} = "{value}"')
    assert "s3cret" not in found


def test_the_variable_of_the_key_must_be_set(tmp_path: Path) -> None:
    text = '[upstream]\nkey_env = "MY_KEY"'
    assert faults(tmp_path, text, {"MY_KEY": "k"}) == []
    [found] = faults(tmp_path, text)
    assert found == (
        "F, line 2: upstream.key_env names MY_KEY, which is not set; set it in the environment, or leave "
        "key_env out to pass on the client's key"
    )


# The environment


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param("COMPACTION_PROXY_SERVICE_HOST", id="Kubernetes: host"),
        pytest.param("COMPACTION_PROXY_SERVICE_PORT_HTTP", id="Kubernetes: named port"),
        pytest.param("COMPACTION_PROXY_PORT_8400_TCP_ADDR", id="container link"),
        pytest.param("COMPACTION_PROXY", id="without a setting"),
        pytest.param("OTHER", id="of someone else"),
    ],
)
def test_variables_that_others_set_are_no_fault(tmp_path: Path, variable: str) -> None:
    assert faults(tmp_path, environ={variable: "tcp://10.0.0.1:8400"}) == []


def test_the_keys_own_variable_may_begin_like_ours(tmp_path: Path) -> None:
    environ = {"COMPACTION_PROXY_KEY": "k", "COMPACTION_PROXY_UPSTREAM_KEY_ENV": "COMPACTION_PROXY_KEY"}
    assert faults(tmp_path, environ=environ) == []


def test_two_variables_for_one_setting_must_agree(tmp_path: Path) -> None:
    environ = {"COMPACTION_PROXY_UPSTREAM": "http://a", "COMPACTION_PROXY_UPSTREAM_URL": "http://a"}
    assert faults(tmp_path, environ=environ) == []
    [found] = faults(tmp_path, environ={**environ, "COMPACTION_PROXY_UPSTREAM_URL": "http://b"})
    assert "unset one of the two" in found


# The proxy as its own upstream


@pytest.mark.parametrize(
    ("listen", "url", "refused"),
    [
        pytest.param("127.0.0.1:8400", "http://127.0.0.1:8400/v1", True, id="the same address"),
        pytest.param("127.0.0.1:8400", "http://localhost:8400", True, id="by its name"),
        pytest.param("0.0.0.0:8400", "http://127.0.0.1:8400", True, id="a wildcard"),
        pytest.param("127.0.0.1:8400", "http://127.0.0.1:8401", False, id="another port"),
        pytest.param("127.0.0.1:8400", "http://[::1]:8400", False, id="another family"),
        pytest.param("127.0.0.1:8400", "http://gpu:8400", False, id="another machine"),
        pytest.param("127.0.0.1:80", "http://127.0.0.1", True, id="the scheme's port"),
    ],
)
def test_the_proxy_is_not_its_own_upstream(tmp_path: Path, listen: str, url: str, refused: bool) -> None:
    found = faults(tmp_path, flags={"server.listen": listen, "upstream.url": url})
    assert any("where the proxy itself listens" in fault for fault in found) is refused


# Where the store is


@pytest.mark.parametrize(
    ("path", "environ", "file"),
    [
        pytest.param(
            "auto", {"XDG_STATE_HOME": "/s"}, "/s/compaction-proxy/store.sqlite3", id="state folder"
        ),
        pytest.param(
            "auto", {"XDG_STATE_HOME": "s"}, "~/.local/state/compaction-proxy/store.sqlite3", id="relative"
        ),
        pytest.param("auto", {}, "~/.local/state/compaction-proxy/store.sqlite3", id="no state folder"),
        pytest.param("~/x.db", {}, "~/x.db", id="home"),
        pytest.param("x.db", {}, "x.db", id="as it is"),
    ],
)
def test_the_file_of_the_store(path: str, environ: dict[str, str], file: str) -> None:
    assert StoreConfig(path=path).file(environ) == Path(file).expanduser()


# Whatever is in the file


KEYS = [(table, key) for table, keys in known_settings().items() for key in keys]
VALUES = st.sampled_from(
    [
        "0",
        "-1",
        "1",
        "0.5",
        "1e400",
        "nan",
        "true",
        '"auto"',
        '"\\u0000"',
        "'''\nx = 1\n'''",
        "{a = 1}",
        "[[1]]",
        "07:32:00",
    ]
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6, unique_by=lambda pair: pair[0]))
def test_any_values_make_a_config_or_a_list_of_faults(
    tmp_path: Path, pairs: list[tuple[tuple[str, str], str]]
) -> None:
    ordered = sorted(pairs)
    text = "".join(
        f"[{table}]\n" + "".join(f"{key} = {value}\n" for (_, key), value in group)
        for table, group in itertools.groupby(ordered, key=lambda pair: pair[0][0])
    )
    assert all(re.match(r"F, line \d+", fault) for fault in faults(tmp_path, text))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(alphabet="[]{}=\"'\\#.,\n ab1é\u2028", max_size=60))
def test_any_text_makes_a_config_or_a_list_of_faults(tmp_path: Path, text: str) -> None:
    faults(tmp_path, text)
    find_lines(text)


def test_lines_are_found_around_texts_of_several_lines() -> None:
    text = "a = '''\nb = 1\n[c]\n''' # x\n"
    text += 'd.e = """ one line """\n[ f . \'g\' ] # h\ni = "\'\'\'"\n"j" = 2\n'
    assert find_lines(text) == {
        ("a",): 1,
        ("d", "e"): 5,
        ("f", "g"): 6,
        ("f", "g", "i"): 7,
        ("f", "g", "j"): 8,
    }


def test_tables_made_by_hand_are_taken_as_they_are() -> None:
    config = Config(server=ServerConfig(listen="127.0.0.1:0"), upstream=UpstreamConfig(url="http://h"))
    assert config.server.port == 0
