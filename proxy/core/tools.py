"""
Say what a call is: a read, an edit, a command, a search …

One table, by the tool's name; where a name is not in it, the words of the name and the
arguments decide together. A wrong guess costs a line in the wrong section of the ledger.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from proxy.core.arguments import (
    Arguments,
    Place,
    find_addresses,
    find_command,
    find_folder,
    find_patched,
    find_places,
    find_query,
    parse_arguments,
    plain,
    plain_names,
)
from proxy.core.messages import Call


class Act(StrEnum):
    """What a call does. A listing of a folder is a search; `JOB` starts, asks or ends another worker."""

    READ = "read"
    WRITE = "write"
    COMMAND = "command"
    SEARCH = "search"
    FETCH = "fetch"
    TODO = "todo"
    JOB = "job"
    OTHER = "other"


# Names without case, "_", "-" and what stands before the last separator (mcp__files__read_file).
# pi: read write edit bash. opencode: read edit write bash grep glob list webfetch todowrite task
# patch skill. Codex: shell exec_command write_stdin apply_patch update_plan view_image local_shell
# spawn_agent send_input wait close_agent. Claude Code: Read Edit MultiEdit Write NotebookEdit Bash
# BashOutput KillShell Grep Glob LS WebFetch WebSearch TodoWrite Task Agent TaskCreate TaskUpdate
# TaskList TaskGet TaskOutput TaskStop. Cline and Roo: read_file write_to_file replace_in_file
# apply_diff insert_content execute_command search_files list_files list_code_definition_names
# browser_action new_task update_todo_list; Cline 3: read_files run_commands search_codebase
# fetch_web_content editor spawn_agent. Qwen Code and Gemini CLI: read_file read_many_files write_file
# edit replace run_shell_command grep_search search_file_content glob list_directory web_fetch
# google_web_search todo_write write_todos save_memory. mini-swe-agent: bash. SWE-agent, OpenHands:
# str_replace_editor execute_bash execute_ipython_cell. VS Code: run_in_terminal manage_todo_list
# insert_edit_into_file. Cursor: run_terminal_cmd codebase_search edit_file delete_file.
NAMES: dict[str, Act] = {
    name: act
    for act, names in {
        Act.READ: """read readfile readfiles readmanyfiles readtextfile readmediafile readmultiplefiles view
            viewfile viewimage openfile cat notebookread getfilecontents readlints""",
        Act.WRITE: """write writefile writetofile createfile create edit editfile multiedit replace
            replaceinfile strreplace strreplaceeditor strreplacebasededittool editor texteditor applypatch
            applydiff patch patchfile insertcontent inserteditintofile searchandreplace searchreplace
            notebookedit editnotebook deletefile removefile movefile renamefile undoedit savefile
            appendfile updatefile""",
        Act.COMMAND: """bash shell sh zsh powershell pwsh exec execcommand executecommand executebash
            runcommand runcommands runshellcommand shellcommand localshell localshellcall terminal
            runterminalcmd runterminalcommand runinterminal python pythoninterpreter pythonexec runpython
            executepython ipython executeipythoncell codeinterpreter codeexecution runcode""",
        Act.SEARCH: """grep grepsearch searchfilecontent glob globsearch find findfiles search searchfiles
            filesearch findbyname codebasesearch searchcodebase semanticsearch ripgrep rg searchcode
            listcodedefinitionnames list ls listdir listdirectory listfiles directorytree websearch
            googlewebsearch searchweb toolsearch""",
        Act.FETCH: """fetch webfetch fetchwebcontent fetchurl fetchwebpage httprequest readurl readurlcontent
            openurl visitpage visitwebpage browseraction browsernavigate navigate browse""",
        Act.TODO: """todowrite todoread todo todos writetodos readtodos updateplan updatetodolist updatetodos
            managetodolist todolist taskcreate taskupdate tasklist taskget createtask updatetask listtasks
            gettask addtasks updatetasks viewtasklist reorganizetasklist addtodo cleartodos taskdelete
            deletetask removetask""",
        Act.JOB: """task agent spawnagent subagent dispatchagent newtask usesubagents delegate sendinput
            sendmessage waitagent resumeagent closeagent bashoutput killshell killbash taskoutput taskstop
            writestdin process killprocess readprocess getterminaloutput checkbackground stopbackground""",
    }.items()
    for name in names.split()
}

# Words in the names of tools that the table lacks, and what their arguments must then hold.
_WORDS = (
    (Act.WRITE, "write edit create patch replace insert delete remove move rename append update save"),
    (Act.READ, "read view open cat show get load"),
    (Act.SEARCH, "search grep glob find list ls"),
    (Act.FETCH, "fetch browse navigate download visit crawl scrape http url web"),
    (Act.COMMAND, "run exec execute shell bash terminal command cmd"),
)
# SWE-agent's editor (also Anthropic's text editor tool) says in `command` what it does.
_EDITOR_READS = frozenset({"view", "open"})
_EDITOR_WRITES = frozenset({"create", "str_replace", "insert", "undo_edit", "write", "edit", "append"})
_WRITTEN = ("write", "create", "save")
_SEPARATORS = re.compile(r"__|[.:/]")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """
    A call, understood.

    Attributes:
        act: What it does.
        name: The tool's name as it came.
        arguments: Its arguments under plain names.
        given: The same under their own names.
        places: Files or folders that it touches, each with a verb where it writes.
        command: For `COMMAND`, the command.
        folder: For `COMMAND`, where it runs, if that is said.
        query: For `SEARCH`, what is looked for.
        addresses: For `FETCH`, the URLs.
    """

    act: Act
    name: str
    arguments: Arguments
    given: Arguments = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    command: str = ""
    folder: str = ""
    query: str = ""
    addresses: tuple[str, ...] = ()


def read_call(call: Call) -> Deed:
    """What *call* does, from its name and arguments; a call of unknown form is `OTHER`."""
    given = parse_arguments(call.arguments)
    return replace(_deed(act_of(call.name), call.name, plain_names(given)), given=given)


def act_of(name: str) -> Act | None:
    """What a tool of this *name* does, or None where only a call's arguments can tell."""
    return NAMES.get(bare_name(name)) or NAMES.get(plain(name))


def bare_name(name: str) -> str:
    """The plain name of a tool without what stands before it: `mcp__files__read_file` is `readfile`."""
    return plain(_SEPARATORS.split(name)[-1])


def _deed(act: Act | None, name: str, arguments: Arguments) -> Deed:
    word = arguments.get("command")
    if act is not Act.COMMAND and isinstance(word, str) and "path" in arguments:
        if word in _EDITOR_READS:
            act = Act.READ
        elif word in _EDITOR_WRITES:
            act = Act.WRITE
    match act:
        case None:
            return _guessed(name, arguments)
        case Act.READ | Act.WRITE:
            deed = _on_files(act, name, arguments, word)
        case Act.COMMAND:
            deed = _command(name, arguments)
        case Act.SEARCH:
            deed = _search(name, arguments)
        case Act.FETCH:
            found = find_addresses(arguments)
            deed = Deed(act=act, name=name, arguments=arguments, addresses=found) if found else None
        case Act.TODO | Act.JOB | Act.OTHER:
            deed = Deed(act=act, name=name, arguments=arguments)
        case _:
            assert_never(act)
    return deed or Deed(act=Act.OTHER, name=name, arguments=arguments)


def _on_files(act: Act, name: str, arguments: Arguments, word: object) -> Deed | None:
    places = find_places(arguments)
    if act is Act.WRITE:
        places = tuple(_with_verb(place, name, word) for place in places)
    return Deed(act=act, name=name, arguments=arguments, places=places) if places else None


def _command(name: str, arguments: Arguments) -> Deed | None:
    command = find_command(arguments)
    # Codex models also send a patch through the shell.
    patched = find_patched(arguments) if "apply_patch" in command else ()
    if patched:
        return Deed(act=Act.WRITE, name=name, arguments=arguments, places=patched)
    if not command:
        return None
    folder = find_folder(arguments)
    return Deed(act=Act.COMMAND, name=name, arguments=arguments, command=command, folder=folder)


def _search(name: str, arguments: Arguments) -> Deed | None:
    query, places = find_query(arguments), find_places(arguments)
    if not query and not places and "list" not in name.lower() and plain(name) != "ls":
        return None
    return Deed(act=Act.SEARCH, name=name, arguments=arguments, query=query, places=places)


def _guessed(name: str, arguments: Arguments) -> Deed:
    words = {word.lower() for word in _WORD.findall(name)}
    for act, known in _WORDS:
        if words.isdisjoint(known.split()):
            continue
        deed = _deed(act, name, arguments)
        # A search for flights is not a search through files: it needs one of their words.
        if deed.act is act and (act is not Act.SEARCH or deed.places or deed.query):
            return deed
    return Deed(act=Act.OTHER, name=name, arguments=arguments)


def _with_verb(place: Place, name: str, word: object) -> Place:
    if place.verb:
        return place
    said = word.lower() if isinstance(word, str) and word in _EDITOR_WRITES else name.lower()
    if "delete" in said or "remove" in said:
        verb = "deleted"
    elif "move" in said or "rename" in said:
        verb = "moved"
    elif any(w in said for w in _WRITTEN) and not ("edit" in said and "write" not in said):
        verb = "written"
    else:
        verb = "edited"
    return Place(path=place.path, verb=verb)
