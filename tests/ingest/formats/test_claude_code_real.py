"""Real Claude Code sessions against counts that are made straight from their JSON."""

import json
from collections import Counter

import pytest

from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore

FOLDERS = ("claude_code_jsonl", "inspect_scout/sources/claude_code_source")


def entries(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        if isinstance(value, dict):
            yield value


def blocks(entry, kind):
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [
        block
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict) and block.get("type") == kind
    ]


def counted(path):
    """Count replies by id, calls, and tokens (those of a reply's last line)."""
    replies, calls, texts = {}, Counter(), []
    for entry in entries(path):
        if entry.get("type") == "assistant":
            message = entry["message"]
            replies[message["id"]] = message["usage"]
            calls.update(block["name"] for block in blocks(entry, "tool_use"))
            texts += [block["text"] for block in blocks(entry, "text")]
        texts += [str(block["content"]) for block in blocks(entry, "tool_result")
                  if isinstance(block["content"], str)]  # fmt: skip
    tokens = [sum(used[name] for name in used if name.endswith("input_tokens"))
              for used in replies.values()]  # fmt: skip
    written = sum(used["output_tokens"] for used in replies.values())
    return len(replies), calls, sum(tokens), written, texts


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_lost(real_data, folder):
    paths = sorted((real_data / folder).rglob("*.jsonl"))
    assert paths
    for path in paths:
        with SQLiteEventStore(":memory:") as store:
            report = ingest(store, [path])
            assert (report.ingested, report.rejected, report.ignored) == (1, [], [])
            assert set(report.by_format) == {"claude-code"}
            steps = [event.payload for event in store.tail(types=("agent.step",))]
        replies, calls, tokens_in, tokens_out, texts = counted(path)
        assert report.steps == len(steps) == replies
        assert Counter(call["name"] for step in steps for call in step["calls"]) == calls
        used = [step["usage"] for step in steps]
        assert sum(one["tokens_in"] for one in used) == tokens_in
        assert sum(one["tokens_out"] for one in used) == tokens_out
        kept = "\n".join(step["thought"] + "\n" + step["observation"] for step in steps)
        assert all(text in kept for text in texts)


def test_every_prompt_is_kept(real_data):
    for folder in FOLDERS:
        for path in sorted((real_data / folder).rglob("*.jsonl")):
            with SQLiteEventStore(":memory:") as store:
                ingest(store, [path])
                told = [event.payload for event in store.tail()]
            kept = json.dumps(told, ensure_ascii=False)
            for entry in entries(path):
                message = entry.get("message") if entry.get("type") == "user" else None
                content = message.get("content") if isinstance(message, dict) else message
                said = [content] if isinstance(content, str) else []
                said += [block["text"] for block in blocks(entry, "text")]
                for text in said:
                    assert json.dumps(text, ensure_ascii=False)[1:-1] in kept


def test_what_the_files_are_known_for(real_data):
    fixtures = real_data / FOLDERS[1] / "fixtures"
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [fixtures / "compaction_session.jsonl"])
        assert (report.runs, report.steps) == (2, 2)
        (child,) = (run for run in store.runs() if run.parent_id)
        (left,) = store.read(child.run_id, types=("run.forked",))
        assert left.payload["relation"] == "compaction"
        report = ingest(store, [fixtures / "clear_split_session.jsonl"])
        assert (report.runs, report.steps) == (2, 2)
        edge = real_data / FOLDERS[0] / "daaain" / "edge_cases.jsonl"
        report = ingest(store, [edge])
        assert (report.runs, report.steps) == (2, 4)
        assert sum(note.endswith(": no object") for note in report.notes) == 3
        assert f"{edge.name}: 2 lines have the uuid of an earlier one" in report.notes
