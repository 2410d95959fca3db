"""
Gather settings from a file, the environment and the command line.

The command line wins over the environment, and that over the file. Every value of every
source is judged, also one that another source overrules, and all faults come at once.
Which keys there are, and what their values may be, is passed in.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config_rules import Rule, nearest, shown
from proxy.config_toml import Document, Unreadable, read

PREFIX = "COMPACTION_PROXY_"

SHORT = {"UPSTREAM": ("upstream", "url"), "LISTEN": ("server", "listen")}
"""What a person sets most, under a name without its key."""

# Kubernetes and Docker set these in every container beside a service called compaction-proxy.
SERVICE_LINK = re.compile(
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?|NAME|ENV_\w+)"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what its value may be, and what it is when nobody sets it."""

    rule: Rule
    default: object


Tables = Mapping[str, Mapping[str, Setting]]
Name = tuple[str, str]
"""Table and key."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """
    What the sources say.

    Attributes:
        values: The value that wins, by table and key; only what a source has set.
        places: Where that value stands, for a message.
        faults: One sentence each: where, what was found, what was expected, the remedy.
        faulty: The keys with a value that does not fit.
    """

    values: dict[Name, object] = field(default_factory=dict)
    places: dict[Name, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    faulty: set[Name] = field(default_factory=set)


def gather(
    tables: Tables, path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Gathered:
    """
    Everything that is set for the keys of *tables*.

    Args:
        tables: The keys that there are.
        path: A TOML file, or None for none.
        environ: Variables; those that do not begin with `PREFIX` are not looked at, and
            an empty one counts as not set.
        flags: Values by `table.key`; None counts as not set.
    """
    gathered = Gathered()
    if path is not None:
        try:
            _take_file(gathered, tables, path, read(path))
        except Unreadable as error:
            gathered.faults.append(str(error))
    _take_environment(gathered, tables, environ)
    for dotted, value in flags.items():
        if value is not None:
            table, _, key = dotted.partition(".")
            setting = tables[table][key]
            found = setting.rule.read(value) if isinstance(value, str) else value
            _take(gathered, tables, (table, key), found, "the command line")
    return gathered


def _take_file(gathered: Gathered, tables: Tables, path: Path, document: Document) -> None:
    def place(*names: str) -> str:
        line = document.lines.get(names)
        return f"{path}, line {line}" if line else str(path)

    lines = document.lines

    def by_line(name: str) -> int:
        return min((n for names, n in lines.items() if names[:1] == (name,)), default=0)

    for table in sorted(document.tables, key=by_line):
        content = document.tables[table]
        if table not in tables:
            gathered.faults.append(f"{place(table)}: {_unknown_table(tables, table, content)}")
            continue
        if not isinstance(content, dict):
            gathered.faults.append(
                f"{place(table)}: {table} is {shown(content)}, expected a table; write [{table}] on a line, "
                f"once, and its keys ({', '.join(tables[table])}) below"
            )
            continue
        for key in sorted(content, key=lambda key: lines.get((table, key), 0)):
            if key in tables[table]:
                _take(gathered, tables, (table, key), content[key], place(table, key))
            else:
                gathered.faults.append(f"{place(table, key)}: {_unknown_key(tables, table, key)}")


def _take_environment(gathered: Gathered, tables: Tables, environ: Mapping[str, str]) -> None:
    known = {f"{PREFIX}{t}_{k}".upper(): (t, k) for t, k in _names(tables)}
    known |= {PREFIX + short: name for short, name in SHORT.items()}
    from_environment: dict[Name, str] = {}
    strange: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or not environ[variable].strip():
            continue
        if variable not in known:
            strange.append(variable)
            continue
        table, key = name = known[variable]
        if name in from_environment and environ[from_environment[name]] != environ[variable]:
            gathered.faults.append(
                f"{variable} in the environment: {from_environment[name]} sets {table}.{key} to another "
                f"value; unset one of the two"
            )
            continue
        from_environment[name] = variable
        _take(
            gathered,
            tables,
            name,
            tables[table][key].rule.read(environ[variable]),
            f"{variable} in the environment",
        )
    # The variable of a key may have a name that begins like ours.
    named = [gathered.values.get(name) for name in (("upstream", "key_env"), ("store", "encrypt_with_env"))]
    for variable in strange:
        if variable not in named and not SERVICE_LINK.fullmatch(variable.removeprefix(PREFIX)):
            near = nearest(variable, tuple(name.lower() for name in known))
            meant = f"did you mean {near.upper()}?" if near else "names are COMPACTION_PROXY_<TABLE>_<KEY>"
            gathered.faults.append(f"{variable} in the environment: there is no such setting; {meant}")


def _take(gathered: Gathered, tables: Tables, name: Name, value: object, place: str) -> None:
    table, key = name
    setting = tables[table][key]
    rule = setting.rule
    if rule.accepts(value):
        gathered.values[name] = rule.keep(value)
        gathered.places[name] = place
        return
    remedy = rule.hint(value) or f"leave it out for {shown(setting.default)}"
    gathered.faulty.add(name)
    gathered.faults.append(
        f"{place}: {table}.{key} is {rule.show(value)}, expected {rule.expected}; {remedy}"
    )


def _names(tables: Tables) -> Iterator[Name]:
    return ((table, key) for table, keys in tables.items() for key in keys)


def _unknown_table(tables: Tables, table: str, content: object) -> str:
    if not isinstance(content, dict):
        owners = [name for name, keys in tables.items() if table in keys]
        if owners:
            return f"{shown(table)} stands outside of its table; put it below [{owners[0]}]"
    near = nearest(table, tuple(tables))
    meant = f"did you mean [{near}]?" if near else "there are " + ", ".join(f"[{name}]" for name in tables)
    return f"there is no table {shown(table)}; {meant}"


def _unknown_key(tables: Tables, table: str, key: str) -> str:
    near = nearest(key, tuple(tables[table]))
    owners = [name for name, keys in tables.items() if key in keys]
    if owners and near != key:
        return f"[{table}] has no key {shown(key)}; it belongs in [{owners[0]}]"
    meant = f"did you mean {near}?" if near else "it has " + ", ".join(tables[table])
    return f"[{table}] has no key {shown(key)}; {meant}"
