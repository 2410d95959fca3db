"""The session's first task: best-before dates."""

from workshop import Workshop, edit, read, run, search, todo, write


def play(w: Workshop) -> None:
    w.user("""
I want larder to know best-before dates. Today an item has a name, an amount, a place and a note, and things rot in
the back of the fridge because nobody remembers when they were bought.

What I need:
- `larder add milk "1 l" --place fridge --best-before 2025-03-14`, optional everywhere;
- a `best_before` column in the CSV import, optional as well;
- `larder expiring --days 7`: what goes off in the next N days, oldest first, with what is past its date marked "!".

Rules for the whole session:
1. Standard library only, no new dependency.
2. Never call date.today() inside the package except in cli.py: pass the day in, so tests can choose it.
3. Do not touch larder/recipes.py, other people's files depend on that format.
4. Old database files must keep opening. Never edit a migration step that was released, add one.
5. Every behaviour gets a test, named after the behaviour. Run `python -m pytest` before you call anything done.
""")
    w.says(
        "I'll look at the layout first and make a plan.",
        run("ls -R larder tests README.md pyproject.toml"),
        todo(
            "> Read the package",
            "- Add best_before to the model, with a migration",
            "- Store and read it",
            "- CSV column",
            "- add --best-before",
            "- expiring command",
            "- README",
        ),
    )
    w.says(
        "The model and the schema decide most of this.",
        read("larder/models.py"),
        read("larder/migrations.py"),
    )
    w.says("Now the store, the only other module with SQL.", read("larder/store.py"))
    w.says(
        "`Item` is built by position in two places: `Item.taken` and `store._item`. Let me see who else does it.",
        search(r"Item\("),
        search(r"date\.today|datetime"),
    )
    w.says(
        "Only those two. A new field at the end with a default keeps every caller working, and `taken` had better use "
        "`dataclasses.replace`, or the date is lost when half a bottle is taken.",
        edit(
            "larder/models.py",
            """
from dataclasses import dataclass, field
from enum import Enum
""",
            """
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
""",
        ),
        edit(
            "larder/models.py",
            """
    note: str = ""

    def taken""",
            """
    note: str = ""
    best_before: date | None = None

    def taken""",
        ),
        edit(
            "larder/models.py",
            "        return Item(self.id, self.name, self.amount - amount, self.unit, self.place, self.note)",
            "        return replace(self, amount=self.amount - amount)",
        ),
    )
    w.says(
        "Rule 4: a new step at the end. SQLite has no date type; ISO text sorts as dates do, so TEXT, NULL for none.",
        edit(
            "larder/migrations.py",
            """
    "ALTER TABLE item ADD COLUMN note TEXT NOT NULL DEFAULT '';",
]""",
            """
    "ALTER TABLE item ADD COLUMN note TEXT NOT NULL DEFAULT '';",
    # ISO 8601 text sorts as the dates do; NULL where there is none.
    "ALTER TABLE item ADD COLUMN best_before TEXT;",
]""",
        ),
        edit(
            "larder/store.py",
            '_COLUMNS = "id, name, amount, unit, place, note"',
            '_COLUMNS = "id, name, amount, unit, place, note, best_before"',
        ),
        edit(
            "larder/store.py",
            """
    id_, name, amount, unit, place, note = row
    return Item(id_, name, amount, Unit(unit), Place(place), note)
""",
            """
    id_, name, amount, unit, place, note, best_before = row
    day = date.fromisoformat(best_before) if best_before else None
    return Item(id_, name, amount, Unit(unit), Place(place), note, day)
""",
        ),
    )
    w.says(
        "Then `add`, and a query for what expires. The day comes in as an argument (rule 2).",
        edit(
            "larder/store.py",
            """
    def add(self, name: str, amount: int, unit: Unit, place: Place = Place.SHELF, note: str = "") -> Item:
        with self._db:
            cursor = self._db.execute(
                "INSERT INTO item (name, amount, unit, place, note) VALUES (?, ?, ?, ?, ?)",
                (name, amount, unit.value, place.value, note),
            )
""",
            """
    def add(
        self,
        name: str,
        amount: int,
        unit: Unit,
        place: Place = Place.SHELF,
        note: str = "",
        best_before: date | None = None,
    ) -> Item:
        day = best_before.isoformat() if best_before else None
        with self._db:
            cursor = self._db.execute(
                "INSERT INTO item (name, amount, unit, place, note, best_before) VALUES (?, ?, ?, ?, ?, ?)",
                (name, amount, unit.value, place.value, note, day),
            )
""",
        ),
        edit(
            "larder/store.py",
            """
    def take(self, id_: int, amount: int) -> Item:""",
            """
    def expiring(self, until: date) -> list[Item]:
        \"\"\"Items whose day is *until* or before, the oldest first.\"\"\"
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM item WHERE best_before <= ? ORDER BY best_before, name, id",
            (until.isoformat(),),
        )
        return [_item(row) for row in rows]

    def take(self, id_: int, amount: int) -> Item:""",
        ),
        run("python -m pytest"),
    )
    w.says(
        "That passes only because no test has a date yet: I use `date` in store.py, and I doubt that it is imported there "
        "(annotations are lazy, so nothing complains).",
        search("^from|^import", "larder/store.py"),
        read("larder/store.py", 1, 12),
    )
    w.says(
        "It is not.",
        edit(
            "larder/store.py",
            "from contextlib import contextmanager\n",
            "from contextlib import contextmanager\nfrom datetime import date\n",
        ),
        run("python -m pytest"),
    )
    w.says(
        "Before going on, the tests for the store: the round trip, the order, that taking "
        "keeps the date, and an old file (schema 3) that still opens.",
        write(
            "tests/test_best_before.py",
            """
import sqlite3
from datetime import date

import pytest

from larder.migrations import STEPS
from larder.models import Unit
from larder.store import Store

MARCH_14 = date(2025, 3, 14)


@pytest.fixture
def store():
    with Store.open(":memory:") as opened:
        yield opened


def test_a_date_comes_back_as_it_went_in(store):
    milk = store.add("milk", 1000, Unit.MILLILITRE, best_before=MARCH_14)
    assert store.get(milk.id).best_before == MARCH_14


def test_no_date_is_none(store):
    assert store.add("salt", 500, Unit.GRAM).best_before is None


def test_taking_some_keeps_the_date(store):
    milk = store.add("milk", 1000, Unit.MILLILITRE, best_before=MARCH_14)
    assert store.take(milk.id, 400).best_before == MARCH_14
    assert store.get(milk.id).best_before == MARCH_14


def test_expiring_lists_the_oldest_first_and_leaves_out_what_has_no_date(store):
    store.add("milk", 1000, Unit.MILLILITRE, best_before=MARCH_14)
    store.add("curd", 250, Unit.GRAM, best_before=date(2025, 3, 9))
    store.add("salt", 500, Unit.GRAM)
    store.add("cheese", 300, Unit.GRAM, best_before=date(2025, 4, 1))
    assert [i.name for i in store.expiring(MARCH_14)] == ["curd", "milk"]


def test_a_file_from_before_the_dates_opens(tmp_path):
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    for step in STEPS[:3]:
        old.executescript(step)
    old.execute("INSERT INTO item (name, amount, unit) VALUES ('rice', 1000, 'g')")
    old.execute("PRAGMA user_version = 3")
    old.commit()
    old.close()
    with Store.open(path) as store:
        (rice,) = store.all()
    assert rice.name == "rice" and rice.best_before is None
""",
        ),
        run("python -m pytest"),
    )
    w.says(
        "Model, migration and store are done. Next the importer.",
        todo(
            "x Read the package",
            "x Add best_before to the model, with a migration",
            "x Store and read it",
            "> CSV column",
            "- add --best-before",
            "- expiring command",
            "- README",
        ),
        read("larder/importer.py"),
    )
    w.says(
        "`date.fromisoformat` raises ValueError with a poor message (\"Invalid isoformat string: '14.3.'\"), and in Python "
        "3.11 it accepts week dates like 2025-W11-5, too. I'll write one small parser for both the CSV and the command line, "
        "next to the amounts, with a message that says what is expected.",
        write(
            "larder/days.py",
            '''
"""Parse and print days. The only form is YYYY-MM-DD."""

from __future__ import annotations

import re
from datetime import date

_DAY = re.compile(r"\\d{4}-\\d{2}-\\d{2}")


class BadDay(ValueError):
    """The text is no day; the message says what was expected."""


def parse(text: str) -> date:
    text = text.strip()
    # fromisoformat alone would take week dates and 20250314 as well.
    if not _DAY.fullmatch(text):
        raise BadDay(f"{text!r} is no day; write it like 2025-03-14")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise BadDay(f"{text!r} is no day: {error}") from None


def show(day: date | None) -> str:
    return day.isoformat() if day else ""
''',
        ),
        edit(
            "larder/importer.py",
            'KNOWN = {"name", "amount", "place", "note"}',
            'KNOWN = {"name", "amount", "place", "note", "best_before"}',
        ),
        edit(
            "larder/importer.py",
            "    place: Place\n    note: str\n",
            "    place: Place\n    note: str\n    best_before: date | None = None\n",
        ),
    )
    w.says(
        "",
        edit(
            "larder/importer.py",
            """
                place = Place(record.get("place") or "shelf")
            except (BadAmount, ValueError) as error:
                faults.append(f"line {line}: {error}")
                continue
            rows.append(Row(line, record["name"].strip(), amount, unit, place, record.get("note") or ""))
""",
            """
                place = Place(record.get("place") or "shelf")
                best_before = days.parse(record["best_before"]) if record.get("best_before") else None
            except (BadAmount, ValueError) as error:
                faults.append(f"line {line}: {error}")
                continue
            note = record.get("note") or ""
            rows.append(Row(line, record["name"].strip(), amount, unit, place, note, best_before))
""",
        ),
        edit(
            "larder/importer.py",
            "        store.add(row.name, row.amount, row.unit, row.place, row.note)",
            "        store.add(row.name, row.amount, row.unit, row.place, row.note, row.best_before)",
        ),
        edit(
            "larder/importer.py",
            "from dataclasses import dataclass\nfrom pathlib import Path\n\nfrom larder.models",
            "from dataclasses import dataclass\nfrom datetime import date\nfrom pathlib import Path\n\nfrom larder import days\nfrom larder.models",
        ),
        edit(
            "larder/importer.py",
            "header line: name,amount,place,note.",
            "header line: name,amount,place,note,best_before.",
        ),
    )
    w.says("Tests for the column and for the parser, then run.", read("tests/test_importer.py"))
    w.says(
        "",
        edit(
            "tests/test_importer.py",
            "def test_a_fault_imports_nothing(file):",
            """
def test_a_best_before_column_is_read_where_it_is_filled(file):
    text = "name,amount,best_before\\nmilk,1 l,2025-03-14\\nsalt,500 g,\\n"
    milk, salt = importer.read(file(text))
    assert milk.best_before == date(2025, 3, 14)
    assert salt.best_before is None


def test_a_bad_day_is_a_fault_like_any_other(file):
    with pytest.raises(importer.BadFile) as raised:
        importer.read(file("name,amount,best_before\\nmilk,1 l,14.3.2025\\n"))
    assert raised.value.faults == ["line 2: '14.3.2025' is no day; write it like 2025-03-14"]


def test_a_fault_imports_nothing(file):""",
        ),
        edit(
            "tests/test_importer.py",
            "import pytest\n\nfrom larder import importer",
            "from datetime import date\n\nimport pytest\n\nfrom larder import importer",
        ),
        write(
            "tests/test_days.py",
            """
from datetime import date

import pytest

from larder.days import BadDay, parse, show


def test_parse_and_show():
    assert parse(" 2025-03-14 ") == date(2025, 3, 14)
    assert show(date(2025, 3, 14)) == "2025-03-14"
    assert show(None) == ""


@pytest.mark.parametrize("text", ["", "14.3.2025", "2025-3-14", "20250314", "2025-W11-5", "2025-02-30"])
def test_what_is_no_day(text):
    with pytest.raises(BadDay):
        parse(text)
""",
        ),
        run("python -m pytest"),
    )
    w.says("Green. Now the command line and the table.", read("larder/cli.py"))
    w.says("", read("larder/render.py"))
    w.says(
        "`list` should show the date only if some item has one: scripts parse today's output, and an empty column would "
        'change every line. Marking belongs to render; "today" is decided in cli (rule 2).',
        edit(
            "larder/render.py",
            """
    rows = [(str(i.id), i.name, show(i.amount, i.unit), i.place.value, i.note) for i in listed]
    return table(("id", "name", "amount", "place", "note"), rows, right=frozenset({0, 2}))
""",
            """
    header = ["id", "name", "amount", "place", "note"]
    rows = [[str(i.id), i.name, show(i.amount, i.unit), i.place.value, i.note] for i in listed]
    # Without dates the output is what it was before there were any: scripts parse it.
    if any(i.best_before for i in listed):
        header.insert(4, "best before")
        for row, item in zip(rows, listed):
            row.insert(4, days.show(item.best_before))
    return table(header, rows, right=frozenset({0, 2}))


def expiring(listed: Sequence[Item], today: date) -> str:
    if not listed:
        return "Nothing goes off."
    rows = [
        ["!" if i.best_before and i.best_before < today else "", days.show(i.best_before), i.name]
        + [show(i.amount, i.unit), i.place.value, str(i.id)]
        for i in listed
    ]
    return table(("", "best before", "name", "amount", "place", "id"), rows, right=frozenset({3, 5}))
""",
        ),
        edit(
            "larder/render.py",
            "from collections.abc import Sequence\n\nfrom larder.models",
            "from collections.abc import Sequence\nfrom datetime import date\n\nfrom larder import days\nfrom larder.models",
        ),
    )
    w.says(
        "",
        edit(
            "larder/cli.py",
            '    add.add_argument("--note", default="")\n',
            '    add.add_argument("--note", default="")\n    add.add_argument("--best-before", type=days.parse, metavar="YYYY-MM-DD")\n',
        ),
        edit(
            "larder/cli.py",
            '    load = commands.add_parser("import", help="read a CSV file")',
            """
    expiring = commands.add_parser("expiring", help="what goes off soon")
    expiring.add_argument("--days", type=int, default=7)
    load = commands.add_parser("import", help="read a CSV file")""",
        ),
        edit(
            "larder/cli.py",
            "            item = store.add(arguments.name, amount, unit, arguments.place, arguments.note)",
            "            item = store.add(\n                arguments.name, amount, unit, arguments.place, arguments.note, arguments.best_before\n            )",
        ),
        edit(
            "larder/cli.py",
            '        case "import":',
            """
        case "expiring":
            return render.expiring(store.expiring(today + timedelta(days=arguments.days)), today)
        case "import":""",
        ),
        edit(
            "larder/cli.py",
            "def run(arguments: argparse.Namespace, store: Store) -> str:",
            "def run(arguments: argparse.Namespace, store: Store, today: date) -> str:",
        ),
        edit(
            "larder/cli.py",
            "def main(argv: list[str] | None = None) -> int:\n    arguments",
            "def main(argv: list[str] | None = None, today: date | None = None) -> int:\n    arguments",
        ),
        edit(
            "larder/cli.py",
            "            print(run(arguments, store))",
            "            print(run(arguments, store, today or date.today()))",
        ),
    )
    w.says(
        "Imports, and tests that choose their own day.",
        edit(
            "larder/cli.py",
            "import sys\nfrom pathlib import Path\n\nfrom larder import importer, planner",
            "import sys\nfrom datetime import date, timedelta\nfrom pathlib import Path\n\nfrom larder import days, importer, planner",
        ),
        write(
            "tests/test_expiring.py",
            """
from datetime import date

import pytest

from larder.cli import main

TODAY = date(2025, 3, 10)


@pytest.fixture
def larder(tmp_path, capsys):
    def call(*arguments):
        status = main(["--file", str(tmp_path / "larder.db"), *arguments], today=TODAY)
        return status, capsys.readouterr().out.strip("\\n")

    return call


def test_expiring_marks_what_is_past_its_date(larder):
    larder("add", "milk", "1 l", "--place", "fridge", "--best-before", "2025-03-14")
    larder("add", "curd", "250 g", "--place", "fridge", "--best-before", "2025-03-09")
    _, out = larder("expiring")
    header, curd, milk = out.splitlines()
    assert curd.startswith("!  2025-03-09  curd")
    assert milk.startswith("   2025-03-14  milk")


def test_today_is_not_past(larder):
    larder("add", "milk", "1 l", "--best-before", "2025-03-10")
    assert "!" not in larder("expiring")[1]


def test_days_widens_the_look_ahead(larder):
    larder("add", "cheese", "300 g", "--best-before", "2025-04-01")
    assert larder("expiring")[1] == "Nothing goes off."
    assert "cheese" in larder("expiring", "--days", "30")[1]


def test_list_shows_dates_only_where_there_are_some(larder):
    larder("add", "salt", "500 g")
    assert "best before" not in larder("list")[1]
    larder("add", "milk", "1 l", "--best-before", "2025-03-14")
    assert "2025-03-14" in larder("list")[1]
""",
        ),
        run("python -m pytest"),
    )
    w.says(
        'One of mine fails, and it is the test that is wrong: the column is as wide as its header "best before", eleven '
        "characters, so three blanks follow a date. The layout is what I want; the test should not depend on it.",
        edit(
            "tests/test_expiring.py",
            """
    assert curd.startswith("!  2025-03-09  curd")
    assert milk.startswith("   2025-03-14  milk")
""",
            """
    assert curd.split()[:3] == ["!", "2025-03-09", "curd"]
    assert milk.split()[:2] == ["2025-03-14", "milk"]
""",
        ),
        run("python -m pytest"),
    )
    w.says(
        "All green. I'll try it by hand, including a bad date on the command line.",
        run(
            "python -m larder.cli --help; python -c \"from larder.cli import main; main(['--file', 'x.db', 'add', 'milk', '1 l', '--best-before', 'soon'])\"; rm -f x.db"
        ),
    )
    w.says(
        'argparse swallows our message: for a ValueError it prints "invalid parse value". It keeps the text of an '
        "ArgumentTypeError only. A thin wrapper in cli.py does it; days.py should not know argparse.",
        edit(
            "larder/cli.py",
            "def _parser() -> argparse.ArgumentParser:",
            """
def _day(text: str) -> date:
    # argparse shows the message of this error only, and "invalid value" for any other.
    try:
        return days.parse(text)
    except days.BadDay as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:""",
        ),
        edit("larder/cli.py", "type=days.parse, metavar", "type=_day, metavar"),
        edit(
            "tests/test_expiring.py",
            "def test_today_is_not_past(larder):",
            """
def test_a_bad_day_on_the_command_line_says_what_is_expected(larder, capsys):
    with pytest.raises(SystemExit):
        larder("add", "milk", "1 l", "--best-before", "soon")
    assert "'soon' is no day; write it like 2025-03-14" in capsys.readouterr().err


def test_today_is_not_past(larder):""",
        ),
        run("python -m pytest"),
    )
    w.says(
        "The README, and the list is done.",
        edit(
            "README.md",
            "    larder list\n",
            '    larder add milk "1 l" --place fridge --best-before 2025-03-14\n    larder list\n    larder expiring --days 7\n',
        ),
        edit(
            "README.md",
            "and may have `place` and `note`.",
            "and may have `place`, `note` and `best_before`\n(YYYY-MM-DD). `expiring` marks with `!` what is past its date.",
        ),
        todo(
            "x Read the package",
            "x Add best_before to the model, with a migration",
            "x Store and read it",
            "x CSV column",
            "x add --best-before",
            "x expiring command",
            "x README",
        ),
    )
    w.says("""
Best-before dates are in:

- `larder add ... --best-before 2025-03-14`, a `best_before` column in the import, and `larder expiring --days N` (default 7), oldest first, `!` for what is past its date. Today itself is not past.
- Dates are ISO text in a fourth migration step; the three released steps are unchanged, and a schema 3 file is tested to open.
- `list` prints the new column only if some listed item has a date, so that scripts that parse today's output go on working.
- `date.today()` is called in `cli.main` and nowhere else. recipes.py is untouched.

All tests pass (`python -m pytest`).
""")
