"""
Write `proxy/demo/session.json`, the session that the demo's agent replays.

Run from the top of the repository: `python tests/demo/recording/make_session.py`.
It needs pytest on the path, since the session runs its project's tests.
"""

import json
import tempfile
from pathlib import Path

import scenario_dates
import scenario_import
import scenario_shopping
from workshop import Workshop

HERE = Path(__file__).parent
TARGET = HERE.parents[2] / "proxy" / "demo" / "session.json"

SYSTEM = """
You are a coding agent. You work in the project folder /home/sam/larder through the tools you are given.
- Read before you write. Change as little as the task needs, in the style of the file.
- Call independent tools together. Keep the to-do list current with todo_write.
- Say in a sentence or two what you are about to do, then do it.
- When a task is done, say what was changed, what is verified and what is not.
"""


def tool(
    name: str, description: str, required: list[str], **properties: dict[str, object]
) -> dict[str, object]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def text(description: str) -> dict[str, object]:
    return {"type": "string", "description": description}


TASK = {
    "type": "object",
    "properties": {"task": {"type": "string"}, "status": {"enum": ["pending", "in_progress", "done"]}},
}
TOOLS = [
    tool(
        "read_file",
        "Read a text file, with line numbers.",
        ["path"],
        path=text("Relative to the project folder."),
        start={"type": "integer", "description": "First line, from 1."},
        lines={"type": "integer"},
    ),
    tool(
        "write_file",
        "Create or replace a file.",
        ["path", "content"],
        path=text("Where."),
        content=text("All of it."),
    ),
    tool(
        "edit_file",
        "Replace a text that occurs exactly once in a file.",
        ["path", "old", "new"],
        path=text("Which file."),
        old=text("As it is, whitespace included."),
        new=text("What stands there afterwards."),
    ),
    tool(
        "search",
        "Find lines that match a regular expression.",
        ["pattern"],
        pattern=text("Python's re."),
        folder=text("Where."),
    ),
    tool(
        "run_command",
        "Run a shell command in the project folder.",
        ["command"],
        command=text("The command line."),
    ),
    tool("todo_write", "Replace the to-do list.", ["todos"], todos={"type": "array", "items": TASK}),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        for part in (HERE / "larder.txt").read_text(encoding="utf-8").split("=== ")[1:]:
            name, _, content = part.partition("\n")
            path = workshop.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        (workshop.folder / "larder" / "__init__.py").touch()
        workshop.system(SYSTEM)
        for scenario in (scenario_dates, scenario_import, scenario_shopping):
            scenario.play(workshop)
    session = {"tools": TOOLS, "messages": workshop.messages}
    TARGET.write_text(json.dumps(session, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
