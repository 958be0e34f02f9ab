"""Finding secrets from the command line, and leaving them out of what is written."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest

from tests.cli.test_cli import sag, sag_json
from tests.ingest.secrets.seeds import drawn

RNG = random.Random(23)
KEY = drawn(RNG, "ghp_<A36>")
PASSWORD = "tr0ub4dor"
RUN = {
    "task_id": "t",
    "steps": [
        {"action": f"export TOKEN={KEY}", "observation": "ok"},
        {"action": "env", "observation": f"\x1b[1mPGPASSWORD={PASSWORD}\x1b[0m"},
    ],
}
EXPORTS = ["xes", "csv", "cypher", "duckdb", "prov", "trig", "nquads", "jsonld"]


def has(folder: Path, *secrets: str) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.name
        for path in files
        if any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "runs.jsonl").write_text(json.dumps(RUN), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that holds secrets."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "runs.jsonl").write_text(json.dumps(RUN), encoding="utf-8")
    done = sag("ingest", "runs.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "runs.jsonl").unlink()
    return folder


def test_scan_says_where_and_never_what(place: Path) -> None:
    done = sag("scan", "runs.jsonl", cwd=place)
    assert done.returncode == 3
    assert "github-token" in done.stdout
    assert "observation" in done.stdout
    assert KEY not in done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    told = sag_json("scan", "runs.jsonl", cwd=place)
    places = {(one["file"], one["step"], one["field"], one["kind"]) for one in told["findings"]}
    assert ("runs.jsonl", 0, "action", "github-token") in places
    assert ("runs.jsonl", 1, "observation", "password") in places
    assert told["counts"]["github-token"] >= 1
    assert told["detectors"].startswith("sag_research")


def test_scan_of_what_is_clean(place: Path) -> None:
    (place / "clean.txt").write_text("commit 0123456789abcdef0123456789abcdef01234567\n", "utf-8")
    done = sag("scan", "clean.txt", cwd=place)
    assert done.returncode == 0
    assert sag_json("scan", "clean.txt", cwd=place)["findings"] == []


def test_scan_of_what_is_not_there(place: Path) -> None:
    assert sag("scan", "nothing", cwd=place).returncode == 2
    assert sag("scan", "--redact", "runs.jsonl", cwd=place).returncode == 2
    assert not (place / "sag-workspace").exists()


def test_ingest_with_redact(place: Path) -> None:
    done = sag("ingest", "runs.jsonl", "--redact", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "secrets replaced" in done.stdout
    assert has(place / "sag-workspace", KEY, PASSWORD) == []
    assert sag("scan", cwd=place).returncode == 0
    assert sag("scan", "sag-workspace", cwd=place).returncode == 0


def test_scan_takes_secrets_out_of_a_log(place: Path) -> None:
    assert sag("ingest", "runs.jsonl", cwd=place).returncode == 0
    assert has(place / "sag-workspace", KEY, PASSWORD)
    look = sag("scan", cwd=place)
    assert look.returncode == 3
    assert "nothing was changed" in look.stdout
    assert "made up for tests" in look.stdout
    assert "LogRedaction" not in look.stdout
    done = sag("scan", "--redact", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "2 events redacted" in done.stdout
    assert has(place / "sag-workspace", KEY, PASSWORD) == []
    again = sag("scan", "--redact", cwd=place)
    assert again.returncode == 0
    assert "nothing to redact" in again.stdout
    verified = sag_json("verify", cwd=place)
    assert verified["ok"]
    assert verified["redacted"] == 2
    steps = sag_json("sql", "SELECT action, flags FROM steps ORDER BY step", cwd=place)
    assert "[secret:github-token:" in json.dumps(steps)


def test_an_open_reader_is_told_of(place: Path) -> None:
    assert sag("ingest", "runs.jsonl", cwd=place).returncode == 0
    reader = sqlite3.connect(place / "sag-workspace" / "log.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    done = sag("scan", "--redact", cwd=place)
    reader.close()
    assert done.returncode == 3
    assert "log.sqlite-wal still holds" in done.stdout
    assert sag("scan", "--redact", cwd=place).returncode == 0
    assert has(place / "sag-workspace", KEY, PASSWORD) == []


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_with_redact(study: Path, tmp_path: Path, name: str) -> None:
    texts = ["--texts"] if name in ("xes", "csv", "cypher") else []
    for flag, expected in (([], True), (["--redact"], False)):
        out = tmp_path / ("clean" if flag else "as-it-is")
        out.mkdir()
        done = sag("export", name, *texts, *flag, "-o", str(out / "o"), cwd=study)
        assert done.returncode == 0, done.stderr
        if name in ("xes", "csv", "cypher", "duckdb") or not expected:
            assert bool(has(out, KEY)) == expected
    assert has(study / "sag-workspace", KEY)
