"""Text that no log, table or page can take as it is: from bytes to every place it is shown."""

import json

import pytest

import sag_research as sag
from sag_research._text import REPLACEMENT, strip_terminal
from sag_research.cli import main
from tests.ingest.make import write

HALF, ESC = "\ud835", "\x1b"


def file_with(observation: bytes) -> bytes:
    """A native file whose only observation is this piece of JSON text."""
    step = b'{"thought": "t", "action": "cat x", "observation": "%s"}' % observation
    return b'{"task_id": "t", "steps": [%s]}\n' % step


KINDS = {
    "lone surrogate": (b"half \\ud835 char", f"half {REPLACEMENT} char", "repaired"),
    "invalid UTF-8": (b"ok \xff\xfe.", f"ok {REPLACEMENT * 2}.", "repaired"),
    "cut character": (b"caf\xc3", f"caf{REPLACEMENT}", "repaired"),
    "NUL": (b"a\\u0000b", f"a{REPLACEMENT}b", "repaired"),
    "colour": (b"\\u001b[31mapp.py\\u001b[0m", f"{ESC}[31mapp.py{ESC}[0m", "terminal"),
    "carriage return": (b" 10%\\r100%", " 10%\r100%", "terminal"),
    "backspace": (b"ab\\bc", "ab\x08c", "terminal"),
    "CRLF": (b"one\\r\\ntwo", "one\r\ntwo", None),
    "plain": (b"caf\\u00e9", "café", None),
}
SHOWN = {"colour": "app.py", "carriage return": "100%", "backspace": "ac", "CRLF": "one\ntwo"}


@pytest.fixture
def ws(tmp_path):
    with sag.open(tmp_path / "ws") as ws:
        yield ws


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_from_end_to_end(ws, tmp_path, capsys, kind):
    raw, kept, flag = KINDS[kind]
    write(tmp_path / "in/x.jsonl", file_with(raw))
    assert ws.ingest(tmp_path / "in").ingested == 1
    (step,) = ws.steps("t").itertuples()
    assert step.observation == kept
    assert list(step.flags) == ([flag] if flag else [])
    assert ws.sql("SELECT observation, flags FROM steps").rows() == [(kept, list(step.flags))]
    (clean,) = ws.steps("t", clean=True).observation
    assert clean == SHOWN.get(kind, strip_terminal(kept))
    assert not set(clean) & {ESC, "\r", "\x08", "\x00", HALF}
    page = tmp_path / "run.html"
    ws.bloom("t").to_html(page)
    data = page.read_bytes()
    assert b"\x00" not in data
    assert data.decode("utf-8")
    assert printed(capsys, "steps", "t", "-w", str(ws.path)).isprintable()


def printed(capsys, *arguments):
    """What the command prints, without the ends of its lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["sag", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
    assert left.value.code == 0
    return capsys.readouterr().out.replace("\n", "").replace(REPLACEMENT, "?")


@pytest.mark.parametrize("kind", [kind for kind, one in KINDS.items() if one[2] == "repaired"])
def test_what_was_repaired_is_kept_as_it_came(ws, tmp_path, kind):
    write(tmp_path / "in/x.jsonl", file_with(KINDS[kind][0]))
    ws.ingest(tmp_path / "in")
    (run_id,) = ws.runs().run_id
    (event,) = ws.store.read(run_id, types=("agent.step",))
    before = ws.store.blob(event.payload["raw"]["observation"])
    expected = json.loads(file_with(KINDS[kind][0]).decode("utf-8", "surrogateescape"))
    text = expected["steps"][0]["observation"]
    assert before == text.encode("utf-8", "surrogatepass")


def test_entities_are_found_in_what_a_terminal_shows(ws, tmp_path):
    texts = {
        "a": "reading foo_10.py\rreading bar_99.py\r\n",
        "b": "wrong.pz\x08y: see it",
        "c": f"{ESC}[1mbold.py{ESC}[0m",
    }
    for task, text in texts.items():
        ws.add({"task_id": task, "steps": [{"action": "ls", "observation": text}]})
    rows = ws.sql(
        "SELECT r.task_id, m.name, m.start, m.end FROM mentions m JOIN runs r USING (run_id)"
        " WHERE m.kind = 'File' AND m.field = 'observation' ORDER BY r.task_id"
    ).rows()
    assert [(task, name) for task, name, _, _ in rows] == [
        ("a", "bar_99.py"), ("b", "wrong.py"), ("c", "bold.py"),
    ]  # fmt: skip
    spans = {task: texts[task][start:end] for task, _, start, end in rows}
    assert spans == {"a": "bar_99.py", "b": "wrong.pz\x08y", "c": "bold.py"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("long line\rshort", "shortline"),
        (f"long line\r{ESC}[Kshort", "short"),
        (f"abc{ESC}[2K\rdone", "done"),
        ("a\x08\x08\x08b", "b"),
        ("only\r", "only"),
        ("a\r\r\nb", "a\nb"),
        (f"x{ESC}]0;title\x07y\rz", "zy"),
        ("\r\r\r", ""),
    ],
)
def test_what_a_terminal_shows(text, shown):
    assert strip_terminal(text) == shown
