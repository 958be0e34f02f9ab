"""Produce the logs: write small broken programs, run the real tools, keep what they print.

``python -m tests.extract.produced.produce --node-modules DIR`` writes ``steps.jsonl``. It needs
the tools themselves (python, pytest, ruff, mypy; node with jest, mocha, vitest and typescript
below DIR; go; cargo and rustc; a JDK, JUnit and Maven with its plugins at hand; gcc and g++) and
is no part of the tests, which read the logs as they were committed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STEPS = HERE / "steps.jsonl"
FRESH = HERE / "steps-fresh.jsonl"
JAVA = Path("/usr/share/java")
JUNIT4 = f"{JAVA}/junit4.jar:{JAVA}/hamcrest-core.jar:{JAVA}/hamcrest.jar"
LIMIT = 9_000
"""Characters of one output that are kept."""

VARIANTS: tuple[dict[str, str], ...] = (
    {
        "root": "/repo", "mod": "cart", "Cls": "Cart", "fn": "total", "fn2": "apply_tax",
        "cfn": "total", "cfn2": "applyTax", "Gfn": "Total", "Gfn2": "ApplyTax", "pkg": "shop",
        "Err": "RefundRefused", "JErr": "RefundException", "var": "price", "VAR": "PRICE",
    },
    {
        "root": "/testbed", "mod": "row_reader", "Cls": "RowReader", "fn": "read_row",
        "fn2": "split_line", "cfn": "readRow", "cfn2": "splitLine", "Gfn": "ReadRow",
        "Gfn2": "SplitLine", "pkg": "tabula", "Err": "BadRow", "JErr": "BadRowFault",
        "var": "cell", "VAR": "CELL",
    },
    {
        "root": "/home/dev/heron", "mod": "planner", "Cls": "Planner", "fn": "schedule",
        "fn2": "next_slot", "cfn": "schedule", "cfn2": "nextSlot", "Gfn": "Schedule",
        "Gfn2": "NextSlot", "pkg": "heron", "Err": "SlotTakenError", "JErr": "SlotTakenError",
        "var": "slot", "VAR": "SLOT",
    },
)  # fmt: skip


def fill(value: Any, variant: dict[str, str]) -> Any:
    """Put a variant's names for the tokens, anywhere in parsed TOML."""
    if isinstance(value, str):
        return re.sub(r"%(\w+)%", lambda found: variant[found[1]], value)
    if isinstance(value, dict):
        return {fill(key, variant): fill(member, variant) for key, member in value.items()}
    if isinstance(value, list):
        return [fill(member, variant) for member in value]
    return value


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case once a variant, with its id and root."""
    for path in sorted((HERE / "cases").glob("*.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            variants = VARIANTS[:1] if is_fresh(case["id"]) else VARIANTS
            for number, variant in enumerate(variants):
                filled = fill(case, variant)
                yield {**filled, "id": f"{case['id']}/{number}", "root": variant["root"]}


def is_fresh(id: str) -> bool:
    """Tell whether a case was written after the rules were finished."""
    return id.split("/")[1] == "fresh"


def read_steps() -> list[dict[str, str]]:
    """Read all produced steps."""
    paths = (path for path in (STEPS, FRESH) if path.exists())
    return [json.loads(line) for path in paths for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def run_case(case: dict[str, Any], modules: Path) -> dict[str, str]:
    """Write a case's files, run its command, and return the step."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / case["root"].strip("/")
        root.mkdir(parents=True)
        _write(root, case.get("files", {}))
        if case["id"].startswith(("javascript", "typescript")):
            (root / "node_modules").symlink_to(modules)
        if case.get("maven"):
            shutil.copyfile(HERE / "pom.xml", root / "pom.xml")
        environment = _environment(modules, folder)
        if case.get("git"):
            _shell("git init -q . && git add -A && git commit -qm start", root, environment)
            _write(root, case["edit"])
        if "prepare" in case:
            _shell(case["prepare"], root, environment, check=True)
        output = _shell(case["run"], root, environment)
        action = case["run"]
        if case["id"].endswith("/0") and not action.startswith("cd "):
            action = f"cd {case['root']} && {action}"
        return {
            "id": case["id"],
            "root": case["root"],
            "action": action.replace(f":{JUNIT4}", ""),
            "observation": _scrub(output, folder, modules, case["root"])[:LIMIT],
        }


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.removeprefix("\n"), encoding="utf-8")


def _environment(modules: Path, folder: str) -> dict[str, str]:
    bin_of = Path(sys.executable).parent
    names = ("HOME", "JAVA_HOME", "CARGO_HOME", "RUSTUP_HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    identity = {f"GIT_{who}_{what}": "dev@example.org" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
    return {
        **kept, **identity,
        "PATH": f"{bin_of}:{modules}/.bin:{os.environ['PATH']}", "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1", "CI": "1", "NO_COLOR": "1", "FORCE_COLOR": "0",
        "TERM": "dumb", "COLUMNS": "100", "GOFLAGS": "-mod=mod", "GOCACHE": "/tmp/go-cache",
        "GOTRACEBACK": "single", "TMPDIR": folder, "npm_config_update_notifier": "false",
        "JUNIT4": JUNIT4, "JUNIT5": f"{JAVA}/junit-jupiter-api.jar:{JAVA}/apiguardian-api.jar",
    }  # fmt: skip


def _shell(command: str, root: Path, environment: dict[str, str], check: bool = False) -> str:
    console = f"java -cp '{JAVA}/*' org.junit.platform.console.ConsoleLauncher"
    command = command.replace("junit -cp", f"{console} -cp")
    done = subprocess.run(
        ["bash", "-c", command], cwd=root, env=environment, check=False, timeout=300,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    text = done.stdout.decode("utf-8", "replace")
    if check and done.returncode:
        raise SystemExit(f"{command}\n{text}")
    return text


def _scrub(text: str, folder: str, modules: Path, root: str) -> str:
    """Put general places for those of this machine."""
    library = Path(os.__file__).parent
    site = Path(sys.executable).parent.parent / "lib" / library.name / "site-packages"
    places = {
        str(modules): f"{root}/node_modules",
        str(modules.resolve()): f"{root}/node_modules",
        str(site): f"/opt/venv/lib/{library.name}/site-packages",
        str(Path(sys.executable).parent): "/opt/venv/bin",
        str(library): f"/usr/lib/{library.name}",
        f"{folder}{root}": root,
        folder: "/tmp",
        str(Path.home()): "/home/dev",
    }
    for place, general in places.items():
        text = text.replace(place, general)
    text = re.sub(rf"(?:\.\./)+{re.escape(str(modules.relative_to('/tmp')))}", "node_modules", text)
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def main() -> int:
    """Run every case, or those whose id has a word, and write the steps."""
    parser = argparse.ArgumentParser(description="Produce logs of real tools.")
    parser.add_argument("--node-modules", type=Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    known = {step["id"]: step for step in read_steps()}
    order = []
    for case in cases():
        order.append(case["id"])
        if arguments.only in case["id"]:
            known[case["id"]] = run_case(case, arguments.node_modules.resolve())
            print(case["id"], len(known[case["id"]]["observation"]), flush=True)
            _save(known, order)
    _save(known, order)
    return 0


def _save(known: dict[str, dict[str, str]], order: list[str]) -> None:
    for path, fresh in ((STEPS, False), (FRESH, True)):
        ids = [id for id in order if id in known and is_fresh(id) is fresh]
        lines = [json.dumps(known[id], ensure_ascii=False) for id in ids]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
