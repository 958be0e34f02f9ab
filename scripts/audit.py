"""Look the locked packages up among known vulnerabilities: ``make audit``.

pip-audit runs in an environment of its own, so that what it needs does not get into the lock
files. It exits with 1 both when it finds something and when it cannot ask; here these are told
apart: 0 nothing is known, or nobody could be asked, which is said; 1 something is known.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
TOOL: Final = "pip-audit==2.10.0"
SERVICES: Final = ("pypi", "osv")
"""Who is asked; the next one where the one before cannot be reached."""
SECONDS: Final = 300
NOT_FOUND: Final = 0.5
"""If so many packages are not found, it is the service that lacks, not the packages."""


class Answer(NamedTuple):
    """What a service said about a lock file."""

    asked: int
    """Packages that it knows."""
    missing: int
    """Packages that it does not."""
    known: list[str]
    """Vulnerabilities, each as a line."""
    problem: str = ""
    """Why it cannot be believed, if so."""


def read_answer(text: str, said: str = "") -> Answer:
    """Read pip-audit's JSON.

    Examples
    --------
    >>> read_answer('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}')
    Answer(asked=1, missing=0, known=[], problem='')
    """
    try:
        packages: list[dict[str, Any]] = json.loads(text)["dependencies"]
    except (ValueError, KeyError):
        last = said.strip().splitlines()[-1:] or ["it gave no answer"]
        return Answer(0, 0, [], last[0][:200])
    asked = [one for one in packages if "skip_reason" not in one]
    known = [
        f"{one['name']} {one['version']}: {bug['id']}"
        f" (mended in {', '.join(bug['fix_versions']) or 'no version yet'})"
        for one in asked
        for bug in one["vulns"]
    ]
    missing = len(packages) - len(asked)
    few = missing > NOT_FOUND * len(packages) or not packages
    problem = f"it does not know {missing} of {len(packages)} packages" if few else ""
    return Answer(len(asked), missing, known, problem)


def ask(lock: Path, service: str) -> Answer:
    """Ask one service about one lock file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "answer.json")
        command = [
            sys.executable, "-m", "uv", "tool", "run", "--from", TOOL, "pip-audit",
            "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--desc", "off",
            "--vulnerability-service", service, "--requirement", str(lock),
            "--format", "json", "--output", str(out),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, encoding="utf-8",
                errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answer(0, 0, [], f"no answer within {SECONDS} s")
        text = out.read_text(encoding="utf-8") if out.is_file() else ""
        return read_answer(text, done.stderr)


def main(locks: list[Path]) -> int:
    """Ask about every lock file, and say what is known."""
    found: list[str] = []
    for lock in locks:
        for service in SERVICES:
            answer = ask(lock, service)
            if not answer.problem:
                print(
                    f"{lock.name}: {answer.asked} packages audited, {answer.missing} not known"
                    f" to {service}, {len(answer.known)} known faults"
                )
                found += answer.known
                break
            print(f"{lock.name}: {service} cannot be asked: {answer.problem}", file=sys.stderr)
        else:
            print(f"{lock.name}: NOT AUDITED, because no advisory data can be reached")
    for line in dict.fromkeys(found):
        print(f"  {line}")
    return 1 if found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="audit the lock files")
    parser.add_argument("locks", nargs="*", type=Path)
    sys.exit(main(parser.parse_args().locks or sorted((ROOT / "requirements").glob("*.txt"))))
