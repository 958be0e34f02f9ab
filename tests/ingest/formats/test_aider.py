import gzip
import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import recognise
from sag_research.ingest.formats._aider_chat import sessions_in
from sag_research.ingest.formats.aider import Aider
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.formats.openhands_make import bitten, damaged
from tests.ingest.make import write

FORMAT = Aider()
EDIT = """mend.py
```python
<<<<<<< SEARCH
a = 1
=======
a = 2
>>>>>>> REPLACE
```"""


def marked(mark, *lines):
    return "".join(f"{mark} {line}  \n" for line in lines)


def user(*lines):
    return "\n" + marked("####", *lines)


def console(*lines):
    return marked(">", *lines)


def spent(sent=1000, got=50, cost="0.010000"):
    return console(f"{sent} prompt tokens, {got} completion tokens, ${cost} cost")


def session(*parts, when="2024-05-21 15:19:47", model="gpt-4o"):
    banner = console("Aider v0.35.1-dev", f"Models: {model} with diff edit format, weak model w")
    return f"\n# aider chat started at {when}\n\n{banner}{''.join(parts)}"


def talk(reply="It is mended.", cost="0.010000", **more):
    return session(user("It breaks.", "", "Mend it."), spent(cost=cost), f"\n{reply}\n\n", **more)


def edited(*seen, model="gpt-4o", cost="0.010000"):
    return session(
        user("Mend it."), spent(cost=cost), f"\nI change `a`.\n\n{EDIT}\n\n", console(*seen),
        model=model,
    )  # fmt: skip


def attempt(cost=0.01, **more):
    found = {
        "instance_id": "own__repo-1",
        "model": "gpt-4o",
        "cost": cost,
        "try": 1,
        "model_patch": "diff",
        "test_outcome": True,
        "edited_files": ["mend.py"],
    }
    return {**found, **more}


def result(*attempts, resolved=True, **more):
    attempts = attempts or (attempt(),)
    chosen = {**attempts[-1], "tries": 2, "resolved": resolved}
    return {**chosen, "all_results": list(attempts), **more}


def read(path, text, beside=None):
    if beside is not None:
        write(path.with_suffix(".json"), beside)
    reading = FORMAT.read(Source(write(path, text.encode("utf-8", "surrogatepass"))))
    return list(reading), reading


def one(folder, text, beside=None):
    (run,), reading = read(folder / "own__repo-1.md", text, beside)
    assert (reading.notes, reading.refused) == ([], [])
    return run


def test_a_chat(tmp_path):
    run = one(tmp_path, edited("Applied edit to mend.py", "Attempt to fix? yes"))
    (step,) = run.steps
    assert (run.task_id, run.record, run.goal) == ("own__repo-1", "0", "Mend it.")
    assert (run.agent, run.model, run.repo, run.attempt) == ("aider", "gpt-4o", "own/repo", 1)
    assert (run.outcome, run.submission) == (None, None)
    assert step.thought == "I change `a`.\n\nmend.py"
    assert step.observation == "Applied edit to mend.py\nAttempt to fix? yes"
    assert step.usage == Usage(tokens_in=1000, tokens_out=50, cost_usd=0.01)
    (call,) = step.calls
    assert (call.name, call.arguments["path"], call.status) == ("edit", "mend.py", "ok")
    assert call.arguments["edit"] == "\n".join(EDIT.split("\n")[2:-1])
    assert run.config["started"] == "2024-05-21 15:19:47"
    assert run.config["edit_format"] == "diff"


def test_the_goal_is_the_first_request_that_is_no_command(tmp_path):
    text = session(
        user("/add a.py"), console("Added a.py"), user("One", "", "two"), spent(), "\nA\n"
    )
    run = one(tmp_path, text)
    assert run.goal == "One\n\ntwo"
    assert [step.observation for step in run.steps] == [""]


def test_what_comes_after_a_reply_is_seen(tmp_path):
    text = talk("First.") + user("And now?") + spent(2000) + "\nSecond.\n"
    first, second = one(tmp_path, text).steps
    assert (first.thought, first.observation) == ("First.", "And now?")
    assert (second.thought, second.usage.tokens_in) == ("Second.", 2000)


def test_lines_of_the_model_that_look_like_others(tmp_path):
    reply = "#### Plan\n> a quote\n####\n# aider chat started at noon\n>>>>>>> x"
    (step,) = one(tmp_path, talk(reply)).steps
    assert step.thought == reply


def test_edits_that_did_not_match(tmp_path):
    failed = (
        "## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in mend.py"
    )
    assert one(tmp_path, edited(failed)).steps[0].calls[0].status == "error"
    both = one(tmp_path, edited(failed, "Applied edit to mend.py"))
    assert both.steps[0].calls[0].status == "unknown"
    assert one(tmp_path, edited()).steps[0].calls[0].status == "unknown"


def test_edits_in_another_form(tmp_path):
    text = talk("Whole file.") + console("Applied edit to b.py", "Applied edit to a.py")
    (step,) = one(tmp_path, text).steps
    assert [(call.arguments, call.status) for call in step.calls] == [
        ({"path": "a.py"}, "ok"), ({"path": "b.py"}, "ok"),
    ]  # fmt: skip
    assert step.thought == "Whole file."


@pytest.mark.parametrize("fence", ["```python\n", "<source>python\n", "```\n"])
def test_the_file_of_an_edit(tmp_path, fence):
    block = EDIT.split("```python\n")[1].removesuffix("\n```")
    text = talk(f"**mend.py**\n{fence}{block}\n\n{block}\n")
    calls = one(tmp_path, text).steps[0].calls
    assert [call.arguments["path"] for call in calls] == ["mend.py", "mend.py"]


def test_blocks_that_never_close_are_no_edits(tmp_path):
    """Each line is read once, however many blocks are opened."""
    reply = "\n".join(["<<<<<<< SEARCH", "```", ""] * 30_000)
    (step,) = one(tmp_path, talk(reply)).steps
    assert (step.calls, step.thought) == ((), reply.strip())


def test_later_versions_count_behind_the_reply(tmp_path):
    said = "Tokens: 3.1k sent, 1.5k cache hit, 214 received. Cost: $0.0069 message, $0.02 session."
    text = session(user("Go."), "\nDone.\n\n", console(said, "Applied edit to a.py"))
    (step,) = one(tmp_path, text).steps
    assert step.usage == Usage(tokens_in=3100, tokens_out=214, cost_usd=0.0069)
    assert step.observation == "Applied edit to a.py"


def test_an_empty_reply_was_paid_for(tmp_path):
    text = session(user("Go."), spent(cost="0.25"), spent(cost="0.5"), "\nDone.\n", spent(cost="1"))
    steps = one(tmp_path, text).steps
    assert [(step.thought, step.usage.cost_usd) for step in steps] == [
        ("", 0.25), ("Done.", 0.5), ("", 1.0),
    ]  # fmt: skip


def test_nobody_counted(tmp_path):
    (step,) = one(tmp_path, session(user("Go."), spent(0, 0, "0.000000"), "\nDone.\n")).steps
    assert step.usage in (None, Usage())


# ---- several sessions, and the result beside them


def test_sessions_without_a_reply_are_noted(tmp_path):
    runs, reading = read(tmp_path / "x.md", session() + talk("A") + session() + talk("B"))
    assert [(run.record, run.attempt, run.task_id) for run in runs] == [
        ("1", 2, "x"), ("3", 4, "x"),
    ]  # fmt: skip
    assert reading.notes == ["session 0: no reply", "session 2: no reply"]
    assert reading.version == "0.35.1-dev"


def test_the_outcome_is_that_of_the_judged_try(tmp_path):
    text = talk(cost="0.9") + talk(cost="0.01") + talk(cost="0.02", model="opus")
    tries = (attempt(0.01, test_outcome=False), attempt(0.02, model="opus", model_patch="other"))
    runs, _ = read(tmp_path / "own__repo-1.md", text, result(*tries))
    assert [run.outcome for run in runs] == [
        None, None, Outcome(outcome="success", source="aider resolved"),
    ]  # fmt: skip
    assert [run.submission for run in runs] == [None, "diff", "other"]
    assert [run.config.get("chosen") for run in runs] == [None, None, True]
    assert [run.config.get("test_outcome") for run in runs] == [None, False, True]


@pytest.mark.parametrize(
    ("resolved", "expected"),
    [(True, "success"), (False, "failure"), (None, None), (1, None), ("yes", None)],
)
def test_verdicts(tmp_path, resolved, expected):
    run = one(tmp_path, talk(), result(resolved=resolved))
    assert (run.outcome.outcome if run.outcome else None) == expected
    assert run.task_id == "own__repo-1"


def test_two_attempts_that_cannot_be_told_apart_are_not_guessed(tmp_path):
    runs, _ = read(tmp_path / "a.md", talk() + talk(), result(attempt(), attempt()))
    assert [run.outcome for run in runs] == [None, None]


@pytest.mark.parametrize("beside", [b"{", [], {"instance_id": 3}, {"resolved": True}])
def test_a_strange_file_beside_a_chat(tmp_path, beside):
    assert one(tmp_path, talk(), beside).outcome is None


def test_a_plain_history_is_named_after_its_folder(tmp_path):
    path = tmp_path / "project/.aider.chat.history.md"
    runs, _ = read(path, talk("A") + talk("B"))
    assert [run.task_id for run in runs] == ["project", "project"]
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [path]).by_format == {"aider": {"files": 1, "runs": 2, "steps": 2}}
        assert ingest(store, [tmp_path]).files == 0  # hidden


def test_bytes_that_are_no_text_stay(tmp_path):
    data = talk("half X here").encode().replace(b"X", b"\xff") + b"\n\xed\xa0\xb5"
    (run,) = FORMAT.read(Source(write(tmp_path / "x.md", data)))
    assert run.steps[0].thought == "half \udcff here\n\n\n\udced\udca0\udcb5"
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [tmp_path]).steps == 1
        assert store.verify().ok


@pytest.mark.parametrize(
    "text", ["# aider chat started at\n", "# aider chat started at noon\n", "# A\n", "", "{}"]
)
def test_what_is_no_chat(tmp_path, text):
    assert FORMAT.sniff(text.encode(), tmp_path) == 0
    with pytest.raises(FormatError, match="no session"):
        read(tmp_path / "x.md", text)


def test_a_chat_in_which_the_model_is_silent(tmp_path):
    with pytest.raises(FormatError, match="says nothing"):
        read(tmp_path / "x.md", session(user("Hello?")))


@given(st.data())
def test_any_bytes(tmp_path_factory, data):
    text = (edited("Applied edit to mend.py") + talk()).encode()
    folder = tmp_path_factory.mktemp("any")
    write(folder / "x.json", data.draw(damaged(result(attempt(), attempt(0.5)))))
    source = Source(write(folder / "x.md", data.draw(bitten(text))))
    FORMAT.sniff(source.head, source.path)
    with suppress(FormatError):
        records = [run.record for run in FORMAT.read(source)]
        assert len(set(records)) == len(records)


START = "# aider chat started at 2024-01-01 01:01:01"


@given(st.lists(st.sampled_from(["#### a  ", "> b  ", "c", "", START])))
def test_no_line_is_lost(lines):
    lines = [START, *lines]
    kept = Counter(line.strip("#> ") for line in lines if line and line != START)
    sessions = list(sessions_in("\n".join(lines)))
    said = "\n".join(part.text for one in sessions for part in one.parts)
    found = Counter(filter(None, said.split("\n")))
    assert found.pop(START, 0) + len(sessions) == lines.count(START)
    assert found == kept


@pytest.mark.parametrize(
    "line", [f"{START}\n", f"\n{START}\n", f"\n{START}  \n", f"\n{START}\n\n> x\n"]
)
def test_a_heading_that_the_model_wrote_begins_no_session(tmp_path, line):
    (step,) = one(tmp_path, talk(f"So:\n{line}\nThat is it.")).steps
    assert START in step.thought


def test_a_heading_with_two_spaces_behind_it_is_none_of_the_programs():
    text = f"{START}\n\n> Aider v1  \n\nHi\n\n{START}  \n\n> Aider v1  \n"
    assert len(list(sessions_in(text))) == 1
    assert len(list(sessions_in(text.replace(f"{START}  ", START)))) == 2


def test_labels_that_were_taken_are_not_asked_for(tmp_path):
    read(tmp_path / "own__repo-1.md", talk(), result())
    write(tmp_path / "results.json", [{"instance_id": "own__repo-1", "resolved": True}])
    with SQLiteEventStore(":memory:") as store:
        for _ in range(2):
            notes = ingest(store, [tmp_path], progress=False).notes
            assert "1 label was taken from the JSON beside the chats" in notes
            assert [note for note in notes if "--labels" in note] == [
                "1 file looks like a label report: pass --labels"
            ]


def test_headings_of_sessions_that_came_to_nothing():
    text = f"{START}\n\n> Aider v1  \n\nHi\n\n{START}\n\n\n{START}\n\n"
    assert [len(one.parts) for one in sessions_in(text)] == [2, 0, 0]


# ---- real files


def real(folder):
    """Each chat with its raw text and the result beside it."""
    for path in sorted((folder / "aider_swebench_lite").glob("*__*.md.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        beside = path.with_name(path.name.replace(".md.gz", ".json.gz"))
        yield path, text, json.loads(gzip.decompress(beside.read_bytes()))


def test_real_chats(real_data):
    counts = Counter()
    for path, text, told in real(real_data):
        source = Source(path)
        assert recognise(source).name == "aider"
        runs = list(FORMAT.read(source))
        starts = re.findall(r"(?m)^# aider chat started at (.*)$", text)
        paid = re.findall(
            r"(?m)^> [\d,]+ prompt tokens, [\d,]+ completion tokens, \$([\d.]+)", text
        )
        steps = [step for run in runs for step in run.steps]
        assert len(steps) == len(paid) == sum(step.usage is not None for step in steps)
        assert sum(step.usage.cost_usd for step in steps) == pytest.approx(sum(map(float, paid)))
        blocks = len(re.findall(r"(?m)^>>>>>>> REPLACE$", text))
        shown = sum("edit" in call.arguments for step in steps for call in step.calls)
        assert (shown <= blocks, {run.task_id for run in runs}) == (True, {told["instance_id"]})
        (judged,) = [run for run in runs if run.outcome]
        assert (judged.outcome.outcome == "success") is told["resolved"]
        assert judged.submission == (told["model_patch"] or None)
        assert told.get("model", judged.model) == judged.model
        tried = [run.model for run in runs if "try" in run.config]
        assert len(tried) == len(told["all_results"])
        counts += Counter(
            chats=1, starts=len(starts), runs=len(runs), steps=len(steps), tried=len(tried),
            blocks=blocks, shown=shown, resolved=told["resolved"],
        )  # fmt: skip
    assert counts.pop("blocks") - counts.pop("shown") < 10  # those never opened
    assert counts == {
        "chats": 81, "starts": 231, "runs": 228, "steps": 896, "tried": 222, "resolved": 25,
    }  # fmt: skip


def test_all_real_chats_are_ingested(real_data):
    folder = Path(real_data / "aider_swebench_lite")
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder], progress=False)
        assert report.by_format == {"aider": {"files": 81, "runs": 228, "steps": 896}}
        assert (report.rejected, len(report.ignored), report.files) == ([], 84, 165)
        said = [
            event.payload["outcome"]
            for event in store.read("@workspace", types=("outcome.recorded",))
        ]
    every = json.loads(gzip.decompress((folder / "results.json.gz").read_bytes()))
    chats = {path.name.split(".")[0] for path in folder.glob("*__*.md.gz")}
    resolved = len(chats & set(every["resolved"]))
    assert Counter(said) == {"success": resolved, "failure": len(chats) - resolved}
    assert resolved == 25
