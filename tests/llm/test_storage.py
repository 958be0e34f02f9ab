"""What recorded calls take on disk, how they are found, and what must never be among them."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from sag_research.errors import BadPayloadError, StoreError, UsageError
from sag_research.llm import (
    Anthropic,
    Context,
    Gemini,
    Message,
    ModelError,
    OpenAICompatible,
    Request,
    Retry,
    Scripted,
    ToolCall,
    read_request,
)
from sag_research.log import (
    SQLiteEventStore,
    canonical_digest,
    count_calls,
    document_digest,
    find_call,
    has_document,
    put_document,
    read_document,
    rebuild_calls,
    record_call,
)
from sag_research.model import Event, Run
from tests.llm.wire import serving

TURNS = 200
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(tmp_path / "log.sqlite") as opened:
        opened.create_run(Run(run_id="r1"))
        yield opened


def observation(turn: int) -> str:
    """Text of about 900 bytes that differs from turn to turn."""
    lines = (f"{turn * 31 + n:05d} src/part_{turn % 7}/file_{n}.py: changed" for n in range(20))
    return "\n".join(lines)


def converse(store: SQLiteEventStore, run: str, turns: int, start: int = 0) -> list[Request]:
    """Ask the whole transcript at every turn, as agents do."""
    ctx = Context(store, run)
    model = Scripted(lambda request: f"turn {len(request.messages)}")
    messages = [Message(role="user", content="Mend the parser. " * 40)]
    asked = []
    for turn in range(start + turns):
        if turn >= start:
            asked.append(Request(system="You are careful. " * 30, messages=tuple(messages)))
            ctx.llm(model, asked[-1])
        call = ToolCall(id=f"c{turn}", name="bash", arguments={"command": f"ls part_{turn}"})
        messages.append(Message(role="assistant", content=f"Now part {turn}.", calls=(call,)))
        messages.append(Message(role="tool", call_id=f"c{turn}", content=observation(turn)))
    return asked


def size(store: SQLiteEventStore) -> int:
    """Bytes of the file, once everything is in it."""
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(store.path).stat().st_size


def test_a_growing_transcript_is_stored_once(store: SQLiteEventStore) -> None:
    empty = size(store)
    asked = converse(store, "r1", TURNS)
    raw = sum(len(msgspec.json.encode(request)) for request in asked)
    used = size(store) - empty
    assert raw > 15_000_000
    assert used <= 0.03 * raw, f"{used:,} of {raw:,} bytes: {used / raw:.2%}"


def test_every_transcript_is_read_back_whole(store: SQLiteEventStore) -> None:
    asked = converse(store, "r1", 30)
    events = list(store.read("r1", types=["llm.requested"]))
    assert [read_request(store, event) for event in events] == asked


def test_forks_and_later_sessions_share_the_transcript(store: SQLiteEventStore) -> None:
    converse(store, "r1", 30)
    blobs = "SELECT count(*) FROM blobs"
    before = store._db.execute(blobs).fetchone()[0]
    for number in range(5):
        store.fork("r1", at=20, run_id=f"f{number}")
        (asked,) = converse(store, f"f{number}", 1, start=29)
        last = list(store.read(f"f{number}", types=["llm.requested"]))[-1]
        assert read_request(store, last) == asked
    assert store._db.execute(blobs).fetchone()[0] == before


def test_a_lost_message_is_named(store: SQLiteEventStore) -> None:
    converse(store, "r1", 3)
    event = list(store.read("r1", types=["llm.requested"]))[-1]
    last = event.payload["messages"]["last"]
    store._db.execute("DELETE FROM blobs WHERE digest = ?", (bytes.fromhex(last),))
    with SQLiteEventStore(store.path) as again, pytest.raises(StoreError, match=last[:12]):
        read_request(again, event)


def test_an_edited_message_is_noticed(store: SQLiteEventStore) -> None:
    converse(store, "r1", 3)
    event = list(store.read("r1", types=["llm.requested"]))[-1]
    last = event.payload["messages"]["last"]
    forged = b'{"after":null,"message":{"role":"user","content":"give me the keys"}}'
    store._db.execute(
        "UPDATE blobs SET data = ?, size = ?, enc = 0 WHERE digest = ?",
        (forged, len(forged), bytes.fromhex(last)),
    )
    with SQLiteEventStore(store.path) as again, pytest.raises(StoreError, match="digest"):
        read_request(again, event)


# ---- documents


def test_documents_share_long_texts_with_events(store: SQLiteEventStore) -> None:
    text = "a long text " * 100
    store.append(Event(run_id="r1", type="note.taken", payload={"text": text}))
    before = store._db.execute("SELECT count(*) FROM blobs").fetchone()[0]
    digest = put_document(store, {"b": text, "a": [1, None]})
    assert store._db.execute("SELECT count(*) FROM blobs").fetchone()[0] == before + 1
    assert read_document(store, digest) == {"a": [1, None], "b": text}
    assert (
        digest
        == put_document(store, {"a": [1, None], "b": text})
        == document_digest({"a": [1, None], "b": text})
    )
    assert has_document(store, digest)
    assert not has_document(store, "0" * 64)
    with pytest.raises(StoreError):
        read_document(store, "0" * 64)
    with pytest.raises(BadPayloadError, match=r"\$\.a"):
        put_document(store, {"a": float("nan")})
    with pytest.raises(BadPayloadError):
        canonical_digest({"a": {1, 2}})


# ---- the index


def answer(key: str, occurrence: int, value: object, run: str = "r1") -> Event:
    payload = {"key": key, "occurrence": occurrence, "value": value}
    return Event(run_id=run, type="tool.responded", payload=payload)


def digest(name: str) -> str:
    return canonical_digest({"name": name})


def rows(store: SQLiteEventStore) -> list[tuple[Any, ...]]:
    return store._db.execute("SELECT * FROM calls ORDER BY key, occ, run, pos").fetchall()


def test_the_index_can_be_made_again(store: SQLiteEventStore) -> None:
    ctx = Context(store, "r1", clock=lambda: 1.0)
    for _ in range(3):
        ctx.llm(Scripted(["a"]), "q")
    ctx.now()
    with pytest.raises(ZeroDivisionError):
        ctx.tool("t", lambda: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        ctx.tool("u", interrupt)
    store.fork("r1", at=4, run_id="child")
    Context(store, "child", mode="reuse", scope="family").llm(Scripted([]), "q")
    store.append(Event(run_id="r1", type="llm.responded", payload={"text": "not ours"}))
    store.append(Event(run_id="r1", type="llm.responded", payload={"key": "zz", "occurrence": 0}))
    before = rows(store)
    assert len(before) == 6
    store._db.execute("DELETE FROM calls")
    assert rebuild_calls(store) == 6
    assert rows(store) == before
    assert rebuild_calls(store) == 6


def interrupt() -> None:
    raise KeyboardInterrupt


def test_event_and_entry_are_written_together(store: SQLiteEventStore) -> None:
    def fails_afterwards() -> None:
        with store.transaction():
            record_call(store, answer(digest("a"), 0, 1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails_afterwards()
    assert rows(store) == []
    assert store.head("r1").position == 1


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"key": "00", "occurrence": 0},
        {"key": "0" * 64},
        {"key": "0" * 64, "occurrence": -1},
        {"key": "0" * 64, "occurrence": True},
        {"key": "0" * 64, "occurrence": 2**63},
        {"key": 7, "occurrence": 0},
        {"key": "x" * 64, "occurrence": 0},
        {"key": "0" * 64, "occurrence": 0, "unanswered": True},
    ],
)
def test_what_answers_nothing_is_not_entered(
    store: SQLiteEventStore, payload: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="answers no call"):
        record_call(store, Event(run_id="r1", type="tool.responded", payload=payload))
    with pytest.raises(UsageError, match="answers no call"):
        record_call(store, Event(run_id="r1", type="note.taken", payload={"key": "0" * 64}))


def test_counting_is_right_at_every_size(store: SQLiteEventStore) -> None:
    key = digest("a")
    with store.transaction():
        for n in range(70):
            assert count_calls(store, key, "r1") == n
            record_call(store, answer(key, n, n))
    assert count_calls(store, digest("b"), "r1") == 0


def test_a_redacted_answer_is_no_answer(store: SQLiteEventStore) -> None:
    record_call(store, answer(digest("a"), 0, 1))
    assert find_call(store, digest("a"), 0, "r1") is not None
    store._db.execute("UPDATE events SET body = NULL WHERE pos = 2")
    assert find_call(store, digest("a"), 0, "r1") is None


@pytest.mark.parametrize(
    "reference", [{}, {"run": "gone", "position": 2}, {"run": "r1", "position": 1}, {"run": 7}]
)
def test_a_reference_that_leads_nowhere_is_no_answer(
    store: SQLiteEventStore, reference: dict[str, Any]
) -> None:
    payload = {"key": digest("a"), "occurrence": 0, **reference}
    record_call(store, Event(run_id="r1", type="call.reused", payload=payload))
    assert find_call(store, digest("a"), 0, "r1") is None


def test_looking_up_never_scans(store: SQLiteEventStore) -> None:
    """Every statement of a hit is a search by an index, however long the log is."""
    for n in range(50):
        record_call(store, answer(digest(f"{n}"), 0, n))
    store.fork("r1", at=30, run_id="child")
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    for scope in ("lineage", "family", "store"):
        assert find_call(store, digest("3"), 0, "child", scope) is not None  # type: ignore[arg-type]
        assert find_call(store, digest("49"), 0, "child", scope) is None or scope != "lineage"  # type: ignore[arg-type]
    store._db.set_trace_callback(None)
    selects = {text for text in statements if text.lstrip().startswith("SELECT")}
    assert any("calls" in text for text in selects)
    for text in selects:
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {text}")]
        assert not [step for step in plan if step.startswith("SCAN") and "calls" in step], plan
        assert not [step for step in plan if step.startswith("SCAN e")], plan
        assert not [step for step in plan if "TEMP B-TREE" in step], plan


# ---- secrets


def stored_texts(path: Path) -> str:
    """Everything that a log holds: the raw file and what is compressed in it."""
    raw = b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))
    texts = [raw.decode("latin-1")]
    with sqlite3.connect(path) as db:
        unpack = zstandard.ZstdDecompressor()
        for size_, enc, data in db.execute("SELECT size, enc, data FROM blobs"):
            texts.append((unpack.decompress(data, size_) if enc else data).decode("latin-1"))
        texts += [json.dumps(str(row)) for row in db.execute("SELECT body FROM events")]
    db.close()
    return "\n".join(texts)


@pytest.mark.parametrize("kind", [OpenAICompatible, Anthropic, Gemini])
def test_no_key_reaches_the_log(tmp_path: Path, kind: type[OpenAICompatible]) -> None:
    pytest.importorskip({"google-genai": "google.genai"}.get(kind.package, kind.package))
    path = tmp_path / "log.sqlite"
    with serving() as provider, SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
        url = provider.url.replace("//", f"//user:{KEY}@") + ("/v1" * (kind is OpenAICompatible))
        model = kind(
            "m", api_key=KEY, base_url=url, headers={"X-Team": KEY + "-team"},
            retry=Retry(attempts=1),
        )  # fmt: skip
        ctx = Context(store, "r1", model=model)
        assert ctx.llm(None, "q").text
        for fault in ("401", "429", "500", "malformed", "hang-up"):
            provider.then(fault)
            with pytest.raises(ModelError):
                ctx.llm(None, "q " + fault * 300)
        provider.then("error-event")
        with pytest.raises(ModelError):
            list(ctx.stream(None, "q"))
        model.close()
    held = stored_texts(path)
    assert KEY in str([sent.headers for sent in provider.sent]), "the provider must have had it"
    assert "[redacted]" in held, "the provider echoed it"
    assert KEY not in held
    assert base64.b64encode(f"user:{KEY}".encode()).decode() not in held
