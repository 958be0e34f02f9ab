"""Python programs of the agent, run for real in a process of their own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from sag_research.errors import MissingDataError
from sag_research.lab.bugfix._sandbox import Sandbox

__all__ = ["Finished", "run_known", "run_python"]

_MAX_OUTPUT = 12_000
_ROOT = "<root>"
_FLAGS = ("-p", "no:cacheprovider", "--import-mode=importlib", "--color=no")


class Finished(msgspec.Struct, frozen=True):
    """What a command left: its text and exit code (124 after a time-out)."""

    text: str
    code: int


def run_python(box: Sandbox, arguments: list[str], cwd: Path, timeout: float = 20.0) -> Finished:
    """Run ``python <arguments>`` with a bare environment, and normalise what it prints.

    The process inherits no variable of ours (no keys, no user site, no plug-ins), runs in a
    session of its own and is killed as a group after ``timeout`` seconds. This confines
    accidents, not malice: Python code can reach whatever its user can.
    """
    if find_spec("pytest") is None:
        raise MissingDataError("pytest is not installed", fix="run `pip install pytest`")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=_environment(box),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, timeout)
        output.seek(0)
        raw = output.read(50 * _MAX_OUTPUT).decode("utf-8", errors="replace")
    text = box.normalise(raw)
    if code == 124:
        text += f"\nstopped after {timeout:g} seconds\n"
    return Finished(_shorten(text), code)


def run_known(box: Sandbox, arguments: list[str], cwd: Path, timeout: float = 20.0) -> Finished:
    """Do what :func:`run_python` does, but only once for equal trees in this process.

    A program is taken to depend on its arguments, the checkout and the working folder alone.
    What it does to the checkout is done again, too.
    """
    root, files = str(box.root), box.files()
    spoken = tuple(word.replace(root, _ROOT) for word in arguments)
    inner = cwd.relative_to(box.root).as_posix()
    done, after = _run_apart(tuple(files.items()), spoken, inner, timeout)
    if after is not None:
        box.write(after)
    return done


@lru_cache(maxsize=2048)
def _run_apart(
    files: tuple[tuple[str, str], ...], arguments: tuple[str, ...], cwd: str, timeout: float
) -> tuple[Finished, dict[str, str] | None]:
    """Run a program in a checkout of its own; returns the files, too, if they are others now."""
    box = Sandbox()
    try:
        box.write(dict(files))
        words = [word.replace(_ROOT, str(box.root)) for word in arguments]
        done = run_python(box, words, box.root / cwd, timeout)
        after = box.files()
    finally:
        box.close()
    return done, None if after == dict(files) else after


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment(box: Sandbox) -> dict[str, str]:
    basetemp = f"--basetemp={box.root / 'tmp' / 'pytest'}"
    return {
        "PATH": os.defpath,
        "HOME": str(box.root / "home"),
        "TMPDIR": str(box.root / "tmp"),
        "CI": "true",  # pytest then never cuts a line to the terminal's width
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONNODEBUGRANGES": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTEST_ADDOPTS": f"{shlex.join([*_FLAGS, basetemp])}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def _shorten(text: str) -> str:
    if len(text) <= _MAX_OUTPUT:
        return text
    half = _MAX_OUTPUT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
