"""From an action to a verb and an object.

Shell is split by the splitter of `_actions`. Each command gives a verb and an object; the most
consequential verb (the order of ``verbs`` in the rules) is the action's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ._actions import Action, ActionReader, ActionWords, _nothing, _Simple, _Splitter, _unquote
from ._scripts import Carrier, Word
from ._token_paths import PathClasses
from ._token_rules import TokenRules, verb_of

__all__ = ["Act", "ActionSymbols"]

_NAME: Final = r"([A-Za-z_][\w.:-]{0,99})"
_GIVEN: Final = r"""\((?=[ \t]?[\[{"]|null\b)"""
_CALL: Final = re.compile(
    rf"""[ \t\r\n]{{0,9}}{_NAME}(?:{_GIVEN}|[ \t]?(?=\{{[ \t\r\n]*"|\{{\}}))"""
)
_LATER_CALL: Final = re.compile(rf"^{_NAME}{_GIVEN}", re.MULTILINE)
_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_VERSIONED: Final = re.compile(r"([A-Za-z_+-]+?)[\d.]+")
_STRING: Final = re.compile(r"""['"]([\w./~-]{1,120}\.[A-Za-z]{1,5})['"]""")
_OPEN_TO_WRITE: Final = re.compile(r"""\bopen\([^()\n]{1,200},[ ]?(?:mode=)?['"][wax]""")
_FIRST_WORD: Final = re.compile(r"\s{0,99}([A-Za-z]{1,20})\b[ \t\r\n(]{1,9}([A-Za-z_*]{0,20})")


_PLAIN_WORD: Final = r"""(?:[\w./:=,@%+~^*?\[\]!-]++|'[^'\n]*+'|"[^"\\$`\n]*+")++"""
_PLAIN: Final = re.compile(rf"(?:{_PLAIN_WORD}|[ \t]++|&&|\|\|?|;)*+\s*+", re.ASCII)
_PLAIN_PIECE: Final = re.compile(rf"({_PLAIN_WORD})|&&|\|\|?|;", re.ASCII)
_SHORT: Final = 500


class Act(NamedTuple):
    """What an action does."""

    verb: str
    object: str
    on_open_file: bool = False
    """Whether it changes the file that is open in the agent's editor, which it does not name."""


_VAGUE: Final = {"none": 2, "folder": 1}
_NO_ACT: Final = Act("none", "none")


class _Commands(ActionReader):
    """Splits shell text and keeps the simple commands, without looking at what they change."""

    def finish(self, simple: _Simple, action: Action) -> None:
        """Keep a complete simple command."""
        words = simple.words
        if not (words or simple.targets):
            return
        at = self._skip_leading(words, 0) if words else 0
        program = words[at].text if at < len(words) else ""
        action.carriers.append(
            Carrier(
                at, program, words[at + 1 :],
                simple.targets, simple.sources, simple.strings, simple.bodies,
            )
        )  # fmt: skip

    def call(self, text: str, name: Word, action: Action) -> int | None:
        """Take no calls: they are read before."""
        return None

    def split(self, text: str) -> list[Carrier]:
        """Return the simple commands of a text."""
        action = _nothing(carries=False)
        if len(text) <= _SHORT and _PLAIN.fullmatch(text):
            self._plain(text, action)
            return action.carriers
        _Splitter(text, self, action).run()
        return action.carriers

    def _plain(self, text: str, action: Action) -> None:
        """Do what the splitter does, for a line of nothing but words, pipes and chains."""
        simple = _Simple()
        for piece in _PLAIN_PIECE.finditer(text):
            word = piece[0]
            if piece.lastindex:
                start, end = piece.span()
                simple.words.append(Word(start, end, _unquote(word)))
            else:
                self.finish(simple, action)
                simple = _Simple()
        self.finish(simple, action)

    def behind_wrapper(self, words: list[Word]) -> int:
        """Return the place of the program that a wrapper runs."""
        return self._behind_wrapper(words, 0)


class ActionSymbols:
    """Says of actions what they do, by one set of rules."""

    def __init__(self, rules: TokenRules, words: ActionWords) -> None:
        self._rules = rules
        self._commands = _Commands(words)
        self._paths = PathClasses(rules.paths)
        self._rank = {verb: rank for rank, verb in enumerate(rules.verbs)}
        self._programs = verb_of(rules.programs)
        self._modules = verb_of(rules.modules)
        self._subcommands = {name: verb_of(table) for name, table in rules.subcommands.items()}
        for editor in rules.tools.editor:
            self._subcommands.setdefault(editor, self._subcommands["str_replace_editor"])
        self._queries = verb_of(rules.shell.queries)
        self._interpreters = rules.shell.interpreters | set(words.scripts.interpreters)
        self._wrappers = words.wrappers - set(self._programs) | {"xargs", "env", "command", "exec"}
        self._install_wrappers = words.wrappers & set(self._programs) - {"xargs", "env", "command"}
        self._open_editors = words.open_file_editors
        self._not_shell = words.not_shell
        self._tool_names = verb_of(rules.tools.names)
        self._tool_words = verb_of(rules.tools.words)
        self._nouns = verb_of(rules.tools.nouns)

    def read(self, action: str, tool: str | None, n_calls: int | None) -> Act:
        """Read one action; any text will do."""
        text = action[: self._rules.limits.action]
        if not text or text.isspace():
            return self._function(tool, "") if tool and not self._is_shell(tool) else _NO_ACT
        first = _CALL.match(text)
        if first is None and tool and text.startswith(f"{tool}("):
            return self._function(tool, text[len(tool) :])
        if n_calls is not None and n_calls > 1:
            return self._many(text, tool)
        if first is not None and (tool is None or first[1] == tool or text[first.end() - 1] == "("):
            return self._function(first[1], text[first.end() :])
        return self._shell(text, tool)

    def path(self, path: str) -> str:
        """Return the object symbol of a path, or ""."""
        return self._paths.of(path)

    # ------------------------------------------------------------ functions
    def _many(self, text: str, tool: str | None) -> Act:
        """Read the joined texts of several calls."""
        calls = list(_LATER_CALL.finditer(text))
        ends = [call.start() for call in calls[1:]] + [len(text)]
        acts = [
            self._function(call[1], text[call.end() : end])
            for call, end in zip(calls, ends, strict=True)
        ] if calls else []  # fmt: skip
        before = text[: calls[0].start()] if calls else text
        if before.strip():
            acts.append(self._shell(before, None if calls else tool))
        return self._most(acts)

    def _function(self, name: str | None, arguments: str) -> Act:
        """Read one function call."""
        lower = (name or "").lower()
        tools = self._rules.tools
        if lower in tools.shell:
            command = self._argument(arguments, tools.command_keys)
            return self._shell(command, None) if command.strip() else Act("look", "none")
        if lower in tools.editor:
            word = self._argument(arguments, ("command",))
            verb = self._subcommands["str_replace_editor"].get(word, "edit")
            return Act(verb, self._path_argument(arguments) or "none")
        if lower in tools.inline:
            return self._inline(arguments, "\\n" in arguments or "write" in arguments)
        verb = self._tool_names.get(lower, "")
        words = [word.lower() for word in _NAME_WORD.findall((name or "")[:100])]
        if not verb:
            verb = next((self._tool_words[word] for word in words if word in self._tool_words), "")
        nouns = (self._nouns[word] for word in reversed(words) if word in self._nouns)
        about = next(nouns, "") or self._path_argument(arguments)
        if verb in ("think", "ask", "respond", "submit"):
            about = "none"
        return Act(verb or "call", about or ("page" if verb == "browse" else "none"))

    def _argument(self, arguments: str, keys: Sequence[str]) -> str:
        """Return the text of the first of these arguments, read from JSON or by pattern."""
        try:
            value, _ = json.JSONDecoder().raw_decode(arguments.lstrip())
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, str):
            return value
        for key in keys:
            found: Any = value.get(key) if isinstance(value, dict) else None
            if value is None:
                match = re.search(rf'"{re.escape(key)}"\s?:\s?"((?:[^"\\]|\\.)*)', arguments)
                found = _unescape(match[1]) if match else None
            if isinstance(found, str):
                return found
        return ""

    def _path_argument(self, arguments: str) -> str:
        """Return the class of the file that the arguments name."""
        for key in self._rules.tools.path_keys:
            at = arguments.find(f'"{key}"')
            if at >= 0:
                start = arguments.find('"', at + len(key) + 2) + 1
                end = arguments.find('"', start, start + 300)
                if 0 < start < end:
                    return self._paths.of(arguments[start:end], bare=True)
        return ""

    # ------------------------------------------------------------ shell
    def _is_shell(self, tool: str) -> bool:
        return tool.lower() in self._rules.tools.shell

    def _shell(self, text: str, tool: str | None, depth: int = 0) -> Act:
        """Read shell text, an agent's own commands, a query or lines of code."""
        if not (tool and self._is_shell(tool)) and (act := self._no_shell(text)):
            return act
        for word in self._rules.shell.final_words:
            if word in text:
                return Act("submit", "none")
        carriers = self._commands.split(text)
        folder, acts = "", []
        for carrier in carriers:
            if carrier.program == "cd" and carrier.words:
                folder = carrier.words[0].text
            acts.append(self._command(carrier, text, folder, depth))
        act = self._most(acts)
        if act.verb == "other" and tool and not self._is_shell(tool):
            return self._function(tool, "")
        return self._self_made(act, acts, carriers, text)

    def _no_shell(self, text: str) -> Act | None:
        """Read a query, or lines of code."""
        found = _FIRST_WORD.match(text)
        if not found:
            return None
        word = found[1].lower()
        if word in self._rules.shell.code:
            return self._inline(text, True)
        verb = self._queries.get(f"{word} {found[2].lower()}") or (
            self._queries.get(word) if word in self._not_shell else None
        )
        return Act(verb, "data") if verb else None

    def _most(self, acts: Sequence[Act]) -> Act:
        """Return the most consequential; the first of equals that has an object."""
        if not acts:
            return _NO_ACT
        rank = self._rank
        best = acts[0]
        for act in acts:
            if rank[act.verb] < rank[best.verb] or (
                act.verb == best.verb and _VAGUE.get(act.object, 0) < _VAGUE.get(best.object, 0)
            ):
                best = act
        if best.object == "none" and best.verb in self._rules.observed.reading:
            # `ls folder | grep word`: what goes through the pipe is what the search is about
            about = (act.object for act in acts if act.object != "none")
            return best._replace(object=next(about, "none"))
        return best

    def _self_made(
        self, act: Act, acts: Sequence[Act], carriers: Sequence[Carrier], text: str
    ) -> Act:
        """See a program that is written and run in one action, and changes files, as an edit."""
        if act.verb != "create" or not any(one.verb == "run" for one in acts):
            return act
        for carrier in carriers:
            if carrier.bodies:
                body = text[carrier.bodies[-1].start : carrier.bodies[-1].end]
                inline = self._inline(body, True)
                if inline.verb == "edit":
                    return inline
        return act

    def _command(self, carrier: Carrier, text: str, folder: str, depth: int) -> Act:
        """Read one simple command."""
        program, words = carrier.program, list(carrier.words)
        while program in self._wrappers or (
            program in self._install_wrappers and words and words[0].text == "run"
        ):
            at = self._commands.behind_wrapper(words)
            if at >= len(words):
                break
            program, words = words[at].text, words[at + 1 :]
        name = self._name(program)
        if name in self._interpreters:
            return self._interpreter(name, words, carrier, text, folder, depth)
        act = self._program(name, program, words, folder)
        if carrier.targets and (name in self._rules.shell.writers or not program):
            return self._redirected(carrier, text, folder) or act
        if name == "tee" and act.object != "none":
            return Act("create", act.object)
        return act

    def _name(self, program: str) -> str:
        """Return a program's name as the tables have it."""
        known = self._programs
        if program in known or program in self._subcommands or program in self._interpreters:
            return program
        base = program.rpartition("/")[2]
        if "/" in program:
            last_two = "/".join(program.split("/")[-2:])
            if last_two in known:
                return last_two
        if base not in known and base not in self._subcommands and base not in self._interpreters:
            versioned = _VERSIONED.fullmatch(base[:40])
            if versioned and (versioned[1] in known or versioned[1] in self._interpreters):
                return versioned[1]
        return base.lower() if base.lower() in known else base

    def _program(self, name: str, program: str, words: Sequence[Word], folder: str) -> Act:
        verb = self._programs.get(name, "")
        table = self._subcommands.get(name)
        rest = words
        if table is not None:
            at = next((i for i, w in enumerate(words) if w.text[:1] != "-" or w.text in table), -1)
            if at >= 0 and words[at].text in table:
                verb, rest = table[words[at].text], words[at + 1 :]
                name = f"{name} {words[at].text}"
            elif at >= 0 and verb == "git":
                rest = words[at + 1 :]
            elif not verb:
                verb = "edit" if name in self._rules.tools.editor else "other"
        options = self._rules.options.get(name, {})
        for option_verb, starts in options.items():
            if any(word.text.startswith(starts) for word in words if word.text[:1] == "-"):
                verb = option_verb
        if verb in ("none", "submit"):
            return Act(verb, "none")
        if not verb:
            return self._unknown(program, folder)
        kind = self._operand(name, rest, folder)
        if verb == "browse":
            return Act(verb, "page")
        if verb == "test":
            return Act(verb, self._tested(kind, rest))
        if verb == "run" and name in self._subcommands:
            kind = self._paths.of(program, folder)
        return Act(verb, kind or "none", on_open_file=not kind and name in self._open_editors)

    def _unknown(self, program: str, folder: str) -> Act:
        """Read a program that no table knows: one that is called by a path is run."""
        kind = self._paths.of(program, folder) if "/" in program or "." in program else ""
        if not kind:
            return Act("other", "none")
        return Act("run", "none" if kind == "folder" else kind)

    def _tested(self, kind: str, words: Sequence[Word]) -> str:
        """Return what a test runner runs: labels and folders are tests, nothing is all tests."""
        if kind in ("repro", "script"):
            return "repro"
        return "test" if any(word.text[:1] != "-" for word in words) else "none"

    def _operand(self, name: str, words: Sequence[Word], folder: str) -> str:
        """Return the class of the first operand that is a path (of the last, for copies)."""
        shell = self._rules.shell
        skip = name in shell.pattern_first and not any(
            word.text in shell.pattern_options for word in words
        )
        bare = name in shell.folders
        given = reversed(words) if name in shell.last_operand else words
        found = ""
        for word in given:
            if word.text[:1] == "-":
                continue
            if skip:
                skip = False
                continue
            kind = self._paths.of(word.text, folder, bare)
            if kind and (kind != "folder" or bare):
                return kind
            found = found or kind
            if name in self._open_editors:
                break
        return found

    def _redirected(self, carrier: Carrier, text: str, folder: str) -> Act | None:
        """Read a command whose output goes to a file."""
        for target in carrier.targets:
            if target.text.startswith("/dev/"):
                continue
            before = text[max(0, target.start - 8) : target.start].rstrip()
            if before.endswith(("2>", "2>>")):
                continue
            verb = "edit" if before.endswith(">>") else "create"
            return Act(verb, self._paths.of(target.text, folder) or "none")
        return None

    def _interpreter(
        self, name: str, words: list[Word], carrier: Carrier, text: str, folder: str, depth: int
    ) -> Act:
        """Read a command that runs a program in a file, a module, or in the action itself."""
        shell = self._rules.shell
        for option_verb, starts in self._rules.options.get(name, {}).items():
            if option_verb == "edit" and any(word.text.startswith(starts) for word in words):
                return Act("edit", self._operand(name, words, folder) or "none")
        for at, word in enumerate(words):
            rest = words[at + 1 :]
            if word.text in shell.code_options and rest:
                if name in shell.shells and depth < 2:
                    return self._shell(rest[0].text, "bash", depth + 1)
                return self._inline(text[rest[0].start : rest[0].end], True)
            if word.text == "-m" and rest:
                return self._module(rest, folder)
            if word.text[:1] != "-":
                return self._script(words, at, folder)
        if carrier.bodies:
            body = carrier.bodies[-1]
            inner = text[body.start : body.end]
            if name in shell.shells and depth < 2:
                return self._shell(inner, "bash", depth + 1)
            return self._inline(inner, True)
        asks = any(word.text in ("-V", "--version", "--help", "-h") for word in words)
        return Act("look", "none") if asks else Act("run", "inline")

    def _module(self, words: Sequence[Word], folder: str) -> Act:
        module, rest = words[0].text, words[1:]
        verb = self._modules.get(module, "run")
        if verb == "install" and module in self._subcommands:
            return self._program(module, module, rest, folder)
        kind = self._operand(module, rest, folder)
        if verb == "test":
            return Act(verb, self._tested(kind, rest))
        if verb == "run" and kind in ("", "folder"):
            kind = self._paths.of(module.replace(".", "/") + ".py")
        return Act(verb, kind or "none")

    def _script(self, words: Sequence[Word], at: int, folder: str) -> Act:
        """Read a script that an interpreter runs."""
        path, rest = words[at].text, words[at + 1 :]
        name = self._name(path)
        if name in self._subcommands or self._programs.get(name) == "test":
            return self._program(name, path, rest, folder)
        kind = self._paths.of(path, folder, bare=True)
        return Act("run", kind if kind and kind != "folder" else "src")

    def _inline(self, code: str, look: bool) -> Act:
        """Read a program that stands in the action; where it writes a file it is an edit."""
        if look and (
            _OPEN_TO_WRITE.search(code) or any(word in code for word in self._rules.shell.writing)
        ):
            for found in _STRING.finditer(code):
                if kind := self._paths.of(found[1]):
                    return Act("edit", kind)
            if _OPEN_TO_WRITE.search(code):
                return Act("edit", "none")
        return Act("run", "inline")


def _unescape(text: str) -> str:
    """Undo the escapes of the inside of a JSON string that may be cut short."""
    try:
        value = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return value if isinstance(value, str) else text
