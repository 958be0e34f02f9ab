"""Label the produced steps from what their programs were made to name.

``python -m tests.extract.produced.label`` writes ``labels-open.jsonl``, ``labels-sealed.jsonl``
and ``manifest.json``; ``--residue`` prints what looks like a name and has no label, for reading.
Nothing here knows the extractor: places come from the names that the cases planted, from lists of
names that the tools bring along, and from reading. GUIDELINES.md says what counts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tests.extract.produced.produce import FRESH, HERE, STEPS, cases, is_fresh, read_steps

OPEN, SEALED = HERE / "labels-open.jsonl", HERE / "labels-sealed.jsonl"
LATER = HERE / "labels-fresh.jsonl"
MANIFEST = HERE / "manifest.json"
FIELDS = ("action", "observation")

Label = tuple[str, int, int, str, str]

# Files of the tools themselves, as they stand in these logs.
OUTSIDE = (
    r"/usr/lib/python3\.11/[\w./-]+?\.py\b",
    r"/opt/venv/lib/[\w./-]+?\.py\b",
    r"/usr/lib/go-1\.19/src/[\w./-]+?\.go\b",
    r"\b_testmain\.go\b",
    r"/rustc/[0-9a-f]+/library/[\w./-]+?\.rs\b",
    r"(?<![\w/.])[\w./-]*node_modules/[\w./@+-]+?\.(?:js|mjs|cjs|d\.ts|ts)\b",
    r"(?:\.\./)+[\w./-]+?\.(?:h|c|cpp)\b",
    r"/tmp/cc\w+\.o\b",
    r"/usr/lib/gcc/[\w./-]+?\.o\b",
    r"/home/dev/\.npm/_logs/[\w.-]+\.log\b",
    r"(?<=\()[\w$]+\.java(?=:[0-9]+\)|\))",
    r"(?<=<)stdio\.h\b",
    r"(?<=[ '])package\.json\b",
)
PYTHON_ERRORS = {
    name for name, value in vars(__import__("builtins")).items()
    if isinstance(value, type) and issubclass(value, BaseException)
} | {"JSONDecodeError", "CalledProcessError", "CancelledError"}  # fmt: skip
SCRIPT_ERRORS = {"TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError",
                 "AssertionError", "ENOENT"}  # fmt: skip
JAVA_ERRORS = {
    "NullPointerException", "NumberFormatException", "ArrayIndexOutOfBoundsException",
    "ClassCastException", "ConcurrentModificationException", "NoSuchFileException",
    "StackOverflowError", "ClassNotFoundException", "ExecutionException", "ArithmeticException",
    "TestTimedOutException", "ComparisonFailure", "AssertionError", "IllegalArgumentException",
    "AssertionFailedError", "UnsupportedOperationException", "IllegalStateException",
    "RuntimeException",
}  # fmt: skip
KNOWN = {"python": PYTHON_ERRORS, "javascript": SCRIPT_ERRORS, "typescript": SCRIPT_ERRORS,
         "java": JAVA_ERRORS}  # fmt: skip
# Modules whose classes are meant without them.
STANDARD = r"^(?:java\.[\w.]+|json\.decoder|subprocess|asyncio\.exceptions|builtins)\.(?=\w+$)"
FRAMES = {
    "python": (r'", line [0-9]+, in (?P<name>[\w.]+)$', r"^[^\s:]+:[0-9]+: in (?P<name>\w+)$"),
    "javascript": (r"^\s+at (?:async |new )?(?P<name>[\w$.#]+)(?: \[as \w+\])? \(",),
    "java": (r"^\s+at (?:[\w.@]+/+)?(?P<name>[\w.$]+)\(", r"^ {7}(?:[\w.]+/)?(?P<name>[\w.$]+)\("),
    "go": (r"^(?:created by )?(?P<name>[\w./]+\.(?:\(\*?\w+\)\.)?\w+)(?:\([^)\n]*\)*)?\n\t",),
    "rust": (r"^ +[0-9]+: (?P<name>[\w:]+)$",),
    "c": (r"^ +#[0-9]+ 0x[0-9a-f]+ in (?P<name>\w+) ", r"In function ‘(?P<name>\w+)’:",
          r"in function `(?P<name>\w+)':", r": (?P<name>\w+): Assertion `"),
}  # fmt: skip
FRAMES |= {"typescript": FRAMES["javascript"], "cpp": FRAMES["c"], "shell": ()}
# Where two careful readers may differ: neither hit nor false alarm.
OPTIONAL = (
    ("Symbol", r"\b(?:def|class|fn|func|function|struct|trait|enum|mod|interface) (?P<name>\w+)"),
    ("Symbol", r"(?:In |in |member |instantiation of |from )[\w ]*[‘`'](?P<name>[^’'\n]+)[’']"),
    ("Symbol", r"undefined reference to `(?P<name>\w+)'"),
    ("Symbol", r"multiple definition of `(?P<name>\w+)'"),
    ("Symbol", r"(?:<impl |<)?(?P<name>[\w:<>$*(), ]*"
               r"(?:<|\.func|lambda|<anonymous>)[\w:<>$*(), .]*)"),
    ("Symbol", r", in (?P<name>[\w.]+)$"),
    ("Symbol", r"(?P<name>[\w$./:()*]+)\("),
    ("Symbol", r"^\s+at (?P<name>[^(\n]+) \("),
    ("Symbol", r"^ +[0-9]+: (?P<name>.+)$"),
    ("Symbol", r"^SUMMARY: [^\n]* in (?P<name>\w+)$"),
    ("Symbol", r"created by (?P<name>[\w.()*]+)"),
    ("Symbol", r"^[\w./-]+:[0-9]+: (?P<name>\w+): check failed"),
    ("Error", r"^(?P<name>Error):"), ("Error", r"\bnew (?P<name>Error)\b"),
    ("Error", r"extends (?P<name>Error)\b"), ("Error", r"(?P<name>exceptions\.TimeoutError)"),
    ("Error", r"\[(?P<name>-Werror)\]"), ("Error", r"(?P<name>segmentation violation)"),
    ("Error", r"(?P<name>[Tt]imed? ?out)\b"), ("Error", r"warn(?:\w*)\((?P<name>unused)\)"),
    ("Error", r"runtime error: (?P<name>load of address[^\n]*)"),
    ("Error", r"\bld: (?P<name>cannot find)"), ("Error", r"(?P<name>file not found)"),
    ("Error", r"vet: [^\n:]*:[0-9]+:[0-9]+: (?P<name>[^\n]*)"),
    ("Error", r"\.go:[0-9]+:[0-9]+: (?P<name>unreachable code|fmt\.Printf[^\n]*)"),
    ("Error", r"(?P<name>stack overflow)"), ("Error", r"(?P<name>DEADLYSIGNAL)"),
    ("Error", r"Resolved? ?(?P<name>ERR_\w+)"), ("Error", r"new (?P<name>ERR_\w+)\("),
    ("Error", r"failed to parse (?P<name>manifest|the[^\n]*)"),
    ("Error", r"error: (?P<name>patch [^\n]*)"), ("Error", r"(?P<name>syntax error)[:\n]"),
    ("Error", r"(?:^|: )(?P<name>(?:No such file or directory|Is a directory|Not a directory|"
              r"Permission denied|File exists|command not found))"),
    ("Error", r"[Nn]o such file or directory"),
    ("Test", r"^_{3,} (?:ERROR at setup of )?(?P<name>[\w.\[\]/ -]+?) _{3,}$"),
    ("Test", r"-run (?P<name>\w+)"), ("Test", r"--test (?P<name>\w+)"),
    ("Test", r"unittest (?:-v )?(?P<name>[\w.]+)"), ("Test", r"<Module (?P<name>[^>]+)>"),
    ("Test", r"Test suite failed to run|before all\" hook for \"never runs\"|never runs"),
    ("Test", r"(?:Running |in )(?P<name>[\w.]+Test(?:\$\w+)?)\b"),
    ("Test", r"^\s+(?:[│├└─╷ ]+)?(?P<name>\w+Test)\b"), ("Test", r":(?P<name>\w+Test):"),
    ("Test", r"^[ \d)]*(?P<name>Cart|RowReader|Planner|cart|row_reader|planner|total|readRow|"
             r"schedule)$"),
    ("Test", r"^ *✖ (?P<name>Cart|total) \("),
    ("Test", r"(?P<name>JUnit (?:Jupiter|Vintage|Platform Suite))"),
    ("File", r"(?P<name>[\w@:./+-]*://[\w./:@%-]+)"), ("File", r"(?P<name>node:[\w/]+)"),
    ("File", r"\.dump\w*"), ("File", r"main\.py/x"),
    ("File", r"/usr/bin/ld|/dev/null|/opt/venv/bin/python|(?P<name>target/[\w/.-]+)"),
)  # fmt: skip


def language(step: dict[str, str]) -> str:
    """First part of a step's id."""
    return step["id"].split("/")[0]


def label(case: dict[str, Any], step: dict[str, str]) -> dict[str, Any]:
    """Labels of one step: those that stand, and the optional ones."""
    found: list[Label] = []
    for field in FIELDS:
        text = step[field]
        tests = list(_tests(case, text))
        files = list(_files(case, step, text))
        frames = list(_frames(language(step), text)) if field == "observation" else []
        spans: list[Label] = []
        for one in (tests, files, frames, list(_errors(case, step, text))):
            spans += [span for span in one if not _touches(span, spans)]
        found += [(field, *span[1:]) for span in spans]
    optional = [
        (field, m.start("name") if "name" in m.re.groupindex and m["name"] else m.start(),
         m.end("name") if "name" in m.re.groupindex and m["name"] else m.end(), kind, "")
        for field in FIELDS for kind, pattern in OPTIONAL
        for m in re.finditer(pattern, step[field], re.MULTILINE)
    ] + [
        (field, *span) for field in FIELDS for span in _quoted_titles(case, step[field])
    ]  # fmt: skip
    optional = [o for o in optional if not any(o[:4] == f[:4] for f in found)]
    return {"id": step["id"], "mentions": sorted(set(found)), "optional": sorted(set(optional))}


def _touches(span: Label, spans: list[Label]) -> bool:
    return any(span[1] < other[2] and other[1] < span[2] for other in spans)


END = r"(?![\w$])(?!\.\w)"


def _surfaces(entries: list[str]) -> Iterator[tuple[str, str | None]]:
    for entry in entries:
        surface, _, name = entry.partition(" => ")
        exact = surface.startswith("re:")
        yield (surface[3:] if exact else re.escape(surface) + END), name or None


def _tests(case: dict[str, Any], text: str) -> Iterator[Label]:
    """Planted tests, longest first; not in quotes (source), not as a function of a frame."""
    spans: list[Label] = []
    for surface in sorted(case.get("tests", []), key=len, reverse=True):
        left = r"(?:/[\w.-]+)*/" if ".py::" in surface else ""
        for m in re.finditer(rf"(?<![\w.:$/])(?:{left})?{re.escape(surface)}(?![\w])", text):
            before, after = text[max(0, m.start() - 8) : m.start()], text[m.end() : m.end() + 1]
            quoted = before[-1:] in ("'", '"', "`") and not before.endswith("thread '")
            if quoted or after == "(" or (after in ("/", ".", "[") and "::" not in surface):
                continue
            if re.search(r"(?:fn|func|def|mod|\bin|-run|at|--bin|--test) $", before):
                continue
            span = ("", m.start(), m.end(), "Test", _relative(m[0], case))
            if not _touches(span, spans):
                spans.append(span)
        if surface.endswith("()"):
            for m in re.finditer(rf":(?P<name>{re.escape(surface)})", text):
                spans.append(("", m.start("name"), m.end("name"), "Test", surface))
    yield from spans


def _quoted_titles(case: dict[str, Any], text: str) -> Iterator[tuple[int, int, str, str]]:
    for surface in case.get("tests", []):
        for m in re.finditer(re.escape(surface), text):
            yield m.start(), m.end(), "Test", ""
            yield m.start(), m.end(), "Symbol", ""


def _files(case: dict[str, Any], step: dict[str, str], text: str) -> Iterator[Label]:
    """Planted files by path or base name, and files of the tools."""
    spans: list[Label] = []
    patterns = [rf"(?:{p})" for p in OUTSIDE]
    names = [*case.get("files", {}), *case.get("outside", [])]
    names += ["pom.xml"] if case.get("maven") else []
    for name in sorted({*names, *(PurePosixPath(n).name for n in names)}, key=len, reverse=True):
        patterns.append(
            rf"(?<![\w@+-])(?<!\w\.)(?:\.{{0,2}}/)?(?:[\w.@+-]+/)*{re.escape(name)}(?![\w/-]|\.\w)"
        )
        patterns.append(rf"(?<=file://)/[\w./-]*{re.escape(name)}(?![\w-]|\.\w)")
        patterns.append(rf"(?<=\b[ab]/){re.escape(name)}(?![\w-])")
    for pattern in patterns:
        for m in re.finditer(pattern, text):
            start = m.start()
            if re.match(r"(?:---|\+\+\+|diff --git) [ab]/", text[text.rfind("\n", 0, start) + 1 :]):
                start += 2 * text.startswith(("a/", "b/"), start)
            span = ("", start, m.end(), "File", _relative(text[start : m.end()], case))
            if not _touches(span, spans):
                spans.append(span)
    yield from spans


def _relative(path: str, case: dict[str, Any]) -> str:
    """A path without the root of the case's project and without `.` and `..`."""
    head, colons, rest = path.partition("::")
    parts: list[str] = []
    for part in head.split("/"):
        if part == ".." and parts and parts != [""]:
            parts.pop()
        elif part not in (".", ".."):
            parts.append(part)
    return "/".join(parts).removeprefix(case["root"] + "/") + colons + rest


def _frames(language: str, text: str) -> Iterator[Label]:
    for pattern in FRAMES[language]:
        for m in re.finditer(pattern, text, re.MULTILINE):
            name = re.split(r"\.|::", m["name"])[-1]
            if name not in ("main_module",) and "func" not in name and "lambda$" not in name:
                yield "", m.start("name"), m.end("name"), "Symbol", name.strip("()*#")


def _errors(case: dict[str, Any], step: dict[str, str], text: str) -> Iterator[Label]:
    entries = [*case.get("errors", []), *KNOWN.get(language(step), ())]
    surfaces = [entry.partition(" => ")[0] for entry in entries]
    words = {re.escape(surface) + END: surface for surface in surfaces}
    spans: list[Label] = []
    for pattern, name in sorted(_surfaces(entries), key=lambda pair: -len(pair[0])):
        word = words.get(pattern, "")
        dotted = r"(?:[A-Za-z_]\w*\.)*" if word[:1].isupper() and word.isidentifier() else ""
        for m in re.finditer(rf"(?<![\w./$-]){dotted}{pattern}", text):
            found = name or re.sub(r"‘[^’\n]*’", "‘…’", re.sub(STANDARD, "", m[0]))
            if _is_prose(text, m, word):
                continue
            span = ("", m.start(), m.end(), "Error", found)
            if not _touches(span, spans):
                spans.append(span)
    yield from spans


def _is_prose(text: str, m: re.Match[str], word: str) -> bool:
    """Words of English, parts of source, addresses."""
    after = text[m.end() : m.end() + 14]
    if word in ("Exception", "BaseException"):
        return not re.match(r"[:,)]", after)
    if word == "panic":
        line = text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
        return bool(line.strip()) or not after.startswith(":")
    if word == "undefined":
        return not re.match(r":| \(", after)
    return False


def residue(text: str, labels: list[Any]) -> Iterator[str]:
    """Tokens that look like a file, an error or a test and lie in no label."""
    part = r"[^\s'\"`(),;\[\]‘’<>]*"
    shape = rf"{part}(?:/|\.[a-z]{{1,4}}\b|Error|Exception|Warning|[A-Z]\d{{3}}|SIG|test_){part}"
    for m in re.finditer(shape, text):
        if not any(m.start() < end and start < m.end() for _, start, end, *_ in labels):
            yield m[0]


def is_sealed(id: str) -> bool:
    """By a digest of the case: all variants of a case are on one side."""
    return hashlib.sha256(id.rpartition("/")[0].encode()).digest()[0] % 2 == 1


def main() -> int:
    """Write the labels and the manifest, or print what has no label."""
    parser = argparse.ArgumentParser(description="Label the produced steps.")
    parser.add_argument("--residue", action="store_true")
    arguments = parser.parse_args()
    every = {case["id"]: case for case in cases()}
    steps = read_steps()
    labelled = [label(every[step["id"]], step) for step in steps]
    if arguments.residue:
        left: Counter[tuple[str, str]] = Counter()
        for step, entry in zip(steps, labelled, strict=True):
            for field in FIELDS:
                near = [m for m in entry["mentions"] if m[0] == field]
                left.update((language(step), token) for token in residue(step[field], near))
        for (where, token), n in sorted(left.items()):
            print(f"{n:5} {where:<11}{token}")
        return 0
    halves: dict[Path, list[str]] = {OPEN: [], SEALED: [], LATER: []}
    for entry in labelled:
        half = SEALED if is_sealed(entry["id"]) else OPEN
        path = LATER if is_fresh(entry["id"]) else half
        halves[path].append(json.dumps(entry, ensure_ascii=False))
    for path, lines in halves.items():
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = (STEPS, OPEN, SEALED, FRESH, LATER)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}
    if MANIFEST.exists():
        digests = json.loads(MANIFEST.read_text(encoding="utf-8")) | digests
    MANIFEST.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    counts = {
        path.name: Counter(m[3] for line in path.read_text(encoding="utf-8").splitlines()
                           for m in json.loads(line)["mentions"])
        for path in halves
    }  # fmt: skip
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
