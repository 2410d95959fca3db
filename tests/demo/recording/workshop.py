"""
Play a written session in a real folder, so that every result in the recording is a real one.

The words and the edits are written by hand (`scenario_*.py`); files are read, searched and
edited, and commands run, in a temporary folder. What differs from run to run (durations,
addresses, the folder's name) is made the same.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]

# A result beyond this is cut as an agent's tools cut it: the demo's windows are small.
LONGEST_RESULT_CHARS = 1500
LONGEST_BATCH_CHARS = 1400


def read(path: str, start: int = 1, lines: int = 200) -> Call:
    return "read_file", {"path": path} | (
        {"start": start, "lines": lines} if (start, lines) != (1, 200) else {}
    )


def write(path: str, content: str) -> Call:
    return "write_file", {"path": path, "content": content.lstrip("\n")}


def edit(path: str, old: str, new: str) -> Call:
    return "edit_file", {"path": path, "old": old.strip("\n"), "new": new.strip("\n")}


def run(command: str) -> Call:
    return "run_command", {"command": command}


def search(pattern: str, folder: str = ".") -> Call:
    return "search", {"pattern": pattern, "folder": folder}


def todo(*items: str) -> Call:
    """Items begin with "x " (done), "> " (under way) or "- " (open)."""
    states = {"x": "done", ">": "in_progress", "-": "pending"}
    return "todo_write", {"todos": [{"task": i[2:], "status": states[i[0]]} for i in items]}


@dataclass
class Workshop:
    """A session under way: the messages so far, and the folder that they speak of."""

    folder: Path
    messages: list[dict[str, Any]] = field(default_factory=list)

    def system(self, text: str) -> None:
        self.messages.append({"role": "system", "content": text.strip()})

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text.strip()})

    def says(self, text: str, *calls: Call) -> None:
        """
        What the assistant says, with its calls and their results.

        A batch of calls that would be too long is spread over several messages, and a file
        that is cut is read on.
        """
        batch: list[tuple[Call, str]] = []
        waiting = list(calls)
        while waiting:
            call = waiting.pop(0)
            result = self._do(*call)
            if batch and _chars([*batch, (call, result)]) > LONGEST_BATCH_CHARS:
                self._append(text, batch)
                text, batch = "", []
            batch.append((call, result))
            if more := re.search(r"read on with start=(\d+)\]$", result):
                name, arguments = call
                if "start" not in arguments:
                    waiting.insert(0, (name, arguments | {"start": int(more[1]), "lines": 200}))
        self._append(text, batch)

    def _append(self, text: str, batch: list[tuple[Call, str]]) -> None:
        """One assistant message, and the results of its calls."""
        message: dict[str, Any] = {"role": "assistant", "content": text.strip() or None}
        results: list[dict[str, Any]] = []
        for (name, arguments), content in batch:
            # Counted over the whole session, as servers do.
            id_ = f"call_{sum(m['role'] == 'tool' for m in self.messages) + len(results) + 1:03d}"
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            message.setdefault("tool_calls", []).append({"id": id_, "type": "function", "function": function})
            results.append({"role": "tool", "tool_call_id": id_, "content": content})
        self.messages += [message, *results]

    def _do(self, name: str, asked: dict[str, Any]) -> str:
        path = self.folder / asked.get("path", asked.get("folder", "."))
        match name:
            case "read_file":
                return self._read(path, asked)
            case "write_file":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(asked["content"], encoding="utf-8")
                return f"wrote {asked['path']} ({len(asked['content'].splitlines())} lines)"
            case "edit_file":
                return self._edit(path, asked)
            case "search":
                return self._search(path, asked["pattern"])
            case "run_command":
                return self._run(asked["command"])
            case "todo_write":
                left = sum(t["status"] != "done" for t in asked["todos"])
                return f"{len(asked['todos'])} tasks, {left} open"
        raise AssertionError(name)

    def _read(self, path: Path, asked: dict[str, Any]) -> str:
        if not path.exists():
            return f"error: {asked['path']} does not exist"
        start = asked.get("start", 1)
        lines = path.read_text(encoding="utf-8").splitlines()
        shown = lines[start - 1 : start - 1 + asked.get("lines", 200)]
        text = "\n".join(f"{start + i:3} {line}".rstrip() for i, line in enumerate(shown))
        if len(text) > LONGEST_RESULT_CHARS:
            text = text[: text.rindex("\n", 0, LONGEST_RESULT_CHARS)]
            last = start + text.count("\n")
            text += f"\n[{len(lines) - last} more lines; read on with start={last + 1}]"
        return text

    def _edit(self, path: Path, asked: dict[str, Any]) -> str:
        before = path.read_text(encoding="utf-8")
        found = before.count(asked["old"])
        if found != 1:
            return f"error: `old` occurs {found} times in {asked['path']}; it must occur once"
        after = before.replace(asked["old"], asked["new"])
        path.write_text(after, encoding="utf-8")
        first = before[: before.index(asked["old"])].count("\n") + 1
        return f"edited {asked['path']} at line {first}"

    def _search(self, folder: Path, pattern: str) -> str:
        hits = []
        for path in sorted(folder.rglob("*")):
            if path.suffix not in {".py", ".md", ".toml", ".csv", ".txt"}:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if re.search(pattern, line):
                    hits.append(f"{path.relative_to(self.folder)}:{number}: {line.strip()}")
        return "\n".join(hits) or "no match"

    def _run(self, command: str) -> str:
        done = subprocess.run(
            command.replace("python ", f"{sys.executable} ", 1) if command.startswith("python ") else command,
            shell=True,
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONDONTWRITEBYTECODE": "1",
                "COLUMNS": "80",
                "HOME": "/nowhere",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = done.stdout.replace(str(self.folder), "/home/sam/larder").replace(sys.executable, "python")
        text = re.sub(r"(passed|failed|errors?) in [\d.]+s", r"\1 in 0.21s", text)
        text = re.sub(r"0x[0-9a-f]{9,}", "0x7f3c5a1e2d40", text)
        text = re.sub(r"/tmp/pytest-of-\w+/pytest-\d+/", "/tmp/pytest/", text).rstrip()
        if len(text) > LONGEST_RESULT_CHARS:
            half = LONGEST_RESULT_CHARS // 2
            text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
        return f"exit {done.returncode}\n{text}".strip()


def _chars(batch: list[tuple[Call, str]]) -> int:
    return sum(len(json.dumps(call)) + len(result) for call, result in batch)
