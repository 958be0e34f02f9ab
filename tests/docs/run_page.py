"""Run a page's examples in the current folder: ``python -m tests.docs.run_page PAGE``.

The Python blocks of a page share their names, as the cells of a notebook do; a block with prompts
is a doctest. In a ``console`` block the lines after ``$`` are commands; what stands below one is
its expected output (``...`` matches anything), and ``# exit code 3`` at its end what it leaves
with.
"""

from __future__ import annotations

import doctest
import io
import linecache
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from sag_research.cli import main
from scripts.package_check import console_steps
from tests.docs.pages import Block, blocks

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PLAIN = re.compile(r"""sag (?:"[^"$`\\]*"|'[^']*'|[^"'|&;<>$`(){}*?~\\#]|(?<=[^ ])~|#.*)*""")
EXIT_CODE = re.compile(r"#.*exit code (\d)")


class ExampleError(Exception):
    """An example does not do what its page says."""


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python among the names of the page."""
    if ">>> " in block.source:
        run_doctest(block, names)
        return
    linecache.cache[block.where] = (
        len(block.source), None, block.source.splitlines(keepends=True), block.where,
    )  # fmt: skip
    exec(compile(block.source, block.where, "exec"), names)


def run_doctest(block: Block, names: dict[str, Any]) -> None:
    """Run a block with prompts, and compare."""
    test = doctest.DocTestParser().get_doctest(block.source, {}, block.where, block.page, 0)
    test.globs = names  # the very names, so that later blocks see what this one makes
    told: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append, clear_globs=False)
    if told:
        raise ExampleError("".join(told))


def run_console(block: Block) -> None:
    """Run the commands of a block, and compare what they print, where it is shown."""
    for command, expected in console_steps(block.source):
        plain = PLAIN.fullmatch(command)
        code, printed = run_sag(command) if plain else run_shell(command)
        told = EXIT_CODE.search(command)
        if code != (int(told[1]) if told else 0):
            raise ExampleError(f"exit code {code} from: {command}\n{printed}")
        if expected and not doctest.OutputChecker().check_output(expected, printed, FLAGS):
            raise ExampleError(f"$ {command}\nthe page shows:\n{expected}\nit prints:\n{printed}")


def run_sag(command: str) -> tuple[int, str]:
    """Run a command of ours in this process: starting Python anew takes longer than the command."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    arguments, sys.argv = sys.argv, shlex.split(command, comments=True)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = arguments
    printed.seek(0)
    return int(code or 0), printed.read()


def run_shell(command: str) -> tuple[int, str]:
    """Run any other command in a shell."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout


def run(path: Path) -> int:
    """Run the examples of a page; return how many there were. The first fault ends it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for block in blocks(path):
        if not block.runs:
            continue
        try:
            run_console(block) if block.language == "console" else run_python(block, names)
        except BaseException:
            print(f"\n{block.where}: this example fails", file=sys.stderr)
            raise
        count += block.language != "before"
    return count


if __name__ == "__main__":
    print(f"ran {run(Path(sys.argv[1]))}")
