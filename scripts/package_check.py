"""Build the package, install it in a fresh environment elsewhere, and use it there.

Nothing of the checkout is importable while the checks run. In order:

1. the wheel, built from the source distribution, holds every file of the package and its data;
2. it installs beside the locked core dependencies, and they are all it asks for;
3. the README's marked examples run;
4. ``sag demo`` runs;
5. a small program against the public interface runs and passes ``mypy --strict``.

An example is marked by a line ``<!-- run -->`` before its fence. A ``python`` block is a program
of its own, or a doctest where it has prompts. In a ``console`` block the lines after ``$`` are
commands, and what stands below a command is its expected output (``...`` matches anything).
All examples run in one folder, in the order of the page.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "sag_research"
CONSUMER = ROOT / "tests" / "project" / "consumer.py"
MARKED = re.compile(
    r"^<!-- run -->[ \t]*\n\s*?^```(python|console)[ \t]*\n(.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
MARK = "<!-- run -->"


class CheckError(Exception):
    """A check found the package wanting."""


@dataclass(frozen=True)
class Place:
    """A fresh environment and an empty folder to work in."""

    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.environment / "bin" / "python"

    def variables(self) -> dict[str, str]:
        """Environment variables without any trace of the checkout."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SAG_"))}
        kept["PATH"] = f"{self.environment / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
        kept["VIRTUAL_ENV"] = str(self.environment)
        return kept

    def run(self, *command: str | Path) -> str:
        """Run a command here and return what it printed on standard output."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=900,
        )
        if done.returncode:
            shown = " ".join(str(word) for word in command)
            raise CheckError(f"exit code {done.returncode} from: {shown}\n{done.stdout}")
        return done.stdout


def build(folder: Path) -> Path:
    """Build the source distribution, and the wheel from it; return the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise CheckError(f"the build failed\n{done.stdout}{done.stderr}")
    return next(folder.glob("*.whl"))


def check_contents(wheel: Path, root: Path = ROOT) -> int:
    """Compare the wheel with the tree; return how many files of the package it holds."""
    shipped = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"{PACKAGE}/{name}" for name in files_below(root / PACKAGE)}
    expected |= {f"{PACKAGE}/_datasets/{name}" for name in files_below(root / "datasets")}
    if missing := sorted(expected - shipped):
        raise CheckError(f"the wheel lacks {missing}")
    strange = sorted(n for n in shipped - expected if ".dist-info/" not in n)
    if strange:
        raise CheckError(f"the wheel holds what the tree does not: {strange}")
    return len(expected)


def files_below(folder: Path) -> Iterator[str]:
    """Relative names of the files that belong to the project below `folder`."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield name.as_posix()


def install(wheel: Path, place: Place) -> None:
    """Install the locked core dependencies and the wheel, and let pip judge the result."""
    subprocess.run([sys.executable, "-m", "venv", str(place.environment)], check=True)
    uv = subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False)
    pip: list[str | Path] = [
        place.python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    if uv.returncode == 0:
        pip = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", place.python]
    place.run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "core.txt")
    place.run(*pip, "--no-deps", wheel)
    place.run(place.python, "-m", "pip", "check")
    where = place.run(place.python, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)").strip()
    if not Path(where).is_relative_to(place.environment.resolve()):
        raise CheckError(f"{PACKAGE} is imported from {where}, not from the wheel")


def marked_examples(text: str) -> list[tuple[str, str]]:
    """Language and source of the README's marked blocks."""
    found = MARKED.findall(text)
    if not found:
        raise CheckError(f"README.md has no example marked {MARK}")
    if len(found) != text.count(MARK):
        raise CheckError(f"{text.count(MARK)} marks in README.md, but {len(found)} blocks below")
    return found


def run_python(source: str, number: int, place: Place) -> None:
    """Run one Python example: as a doctest where it has prompts, else as a program."""
    if ">>> " in source:
        path = place.folder / f"example{number}.txt"
        command: list[str | Path] = [
            "-m",
            "doctest",
            "-o",
            "ELLIPSIS",
            "-o",
            "NORMALIZE_WHITESPACE",
        ]
    else:
        path = place.folder / f"example{number}.py"
        command = []
    path.write_text(source, encoding="utf-8")
    place.run(place.python, "-X", "utf8", *command, path)


def run_console(source: str, place: Place) -> None:
    """Run the commands of one console example and compare what they print, where it is shown."""
    for command, expected in console_steps(source):
        printed = place.run("bash", "-euo", "pipefail", "-c", command)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if expected and not doctest.OutputChecker().check_output(expected, printed, flags):
            raise CheckError(f"$ {command}\nREADME.md shows:\n{expected}\nit prints:\n{printed}")


def console_steps(source: str) -> list[tuple[str, str]]:
    """Commands of a console block with the output shown below each."""
    joined = re.sub(r"\\\n(?:> )?", "", source)
    steps = re.split(r"^\$ ", joined, flags=re.MULTILINE)
    if steps[0].strip():
        raise CheckError(f"a console example must begin with '$ ': {steps[0].strip()[:60]!r}")
    pairs = (step.partition("\n") for step in steps[1:])
    return [(command, output if output.strip() else "") for command, _, output in pairs]


def check_consumer(place: Place) -> None:
    """Type-check and run a program that uses the installed package."""
    program = place.folder / "consumer.py"
    program.write_text(CONSUMER.read_text(encoding="utf-8"), encoding="utf-8")
    cache = place.folder / ".mypy_cache"
    config = place.folder / "mypy.ini"
    config.write_text("[mypy]\n", encoding="utf-8")
    checker = (sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache)
    place.run(*checker, "--strict", "--python-executable", place.python, program)
    place.run(place.python, program)


def check_demo(place: Place) -> None:
    """Run ``sag demo`` and look for its report."""
    place.run(place.environment / "bin" / "sag", "demo")
    report = place.folder / "sag-demo" / "report.html"
    if not report.is_file() or report.stat().st_size < 1_000:
        raise CheckError("sag demo wrote no report")


def check_all(folder: Path) -> None:
    """Run every check in `folder`, saying what was done."""
    place = Place(folder / "environment", folder / "work")
    place.folder.mkdir()
    wheel = build(folder / "dist")
    print(f"built {wheel.name} with {check_contents(wheel)} files", flush=True)
    install(wheel, place)
    print("installed outside the checkout", flush=True)
    examples = marked_examples((ROOT / "README.md").read_text(encoding="utf-8"))
    for number, (language, source) in enumerate(examples, 1):
        if language == "python":
            run_python(source, number, place)
        else:
            run_console(source, place)
    print(f"ran {len(examples)} README examples", flush=True)
    check_demo(place)
    print("ran sag demo", flush=True)
    check_consumer(place)
    print("type-checked and ran a consumer", flush=True)


def main() -> int:
    """Check in a temporary folder; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="package-check-") as folder:
        try:
            check_all(Path(folder).resolve())
        except CheckError as error:
            print(f"package-check: {error}", file=sys.stderr)
            return 1
    print("package-check: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
