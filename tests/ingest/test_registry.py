import json
import os
import re
import subprocess
import sys
from functools import partial

import pytest

import sag_research as sag
from sag_research.errors import FormatError, MissingDataError, UsageError
from sag_research.ingest import agentpile_runs
from sag_research.ingest._copies_spelling import deeds_of_steps, fingerprint
from sag_research.ingest._fetch import CARD, fetch, fetched_sets
from sag_research.ingest.formats import FORMATS, by_name
from sag_research.ingest.registry import bibtex, cite, public_set, public_sets
from tests.ingest.formats import rows_make as rows
from tests.ingest.hub import COMMIT, Hub, serve
from tests.ingest.make import write

REPO = "SWE-Gym/OpenHands-Sampled-Trajectories"
FIRST, SECOND = (f"data/train.raw-0000{n}-of-00003.parquet" for n in (0, 1))


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between its attempts
    files = {FIRST: bytes(range(256)) * 40, SECOND: b"abc" * 100, "README.md": b"a card"}
    with serve(Hub(REPO, files)) as hub:
        yield hub


def downloads(hub):
    return [one for one in hub.asked if one.startswith("GET /datasets/")]


class TestRegistry:
    def test_every_set_says_what_a_paper_needs(self):
        for one in public_sets().values():
            assert all((one.title, one.licence, one.label, one.files)), one.name
            assert (one.revision is None) == (one.revision_from == ""), one.name
            assert one.revision is None or len(one.revision) == 40, one.name
            assert one.formats or one.agentpile, one.name
            assert cite([one.name]).keys() >= set(one.cite)

    def test_its_formats_are_there(self):
        named = {name for one in public_sets().values() for name in one.formats}
        named |= {name for work in cite(public_sets()).values() for name in work.of}
        assert named <= {one.name for one in FORMATS}

    def test_it_pins_what_agentpile_pins(self):
        from agentpile.corpora._base import manifest

        shared = [one for one in public_sets().values() if one.agentpile]
        assert len(shared) >= 13
        for one in shared:
            theirs = manifest(one.agentpile)
            counted = theirs["counts"]["runs_after_load"]["value"]
            said = (one.hub, one.revision, one.runs)
            assert said == (theirs["hf_id"], theirs["revision"], counted), one.name

    def test_an_unknown_name_lists_the_known(self):
        with pytest.raises(UsageError, match="swe-gym"):
            public_set("swe-gim")

    def test_bibtex_is_balanced_and_escapes_nothing_twice(self):
        text = bibtex(cite(public_sets(), ["swe-agent", "inspect"], version="1.0"))
        assert text.count("{") == text.count("}")
        assert text.count("\n@") + 1 == len(cite(public_sets(), ["swe-agent", "inspect"])) + 1
        assert "@software{sag_research," in text


class TestFetch:
    def test_it_takes_the_pinned_commit_and_only_the_runs(self, hub, tmp_path):
        found = fetch("swe-gym", tmp_path / "d", endpoint=hub.url)
        assert (found.revision, found.pinned) == (public_set("swe-gym").revision, True)
        assert found.files == [FIRST, SECOND]
        assert (tmp_path / "d" / FIRST).read_bytes() == hub.files[FIRST]
        assert not (tmp_path / "d/README.md").exists()
        assert fetched_sets([tmp_path, tmp_path / "d"]) == {"swe-gym": found.revision}

    def test_an_unpinned_set_has_its_commit_recorded(self, hub, tmp_path):
        hub.repo = public_set("swe-smith-mini").hub
        found = fetch("swe-smith-mini", tmp_path, endpoint=hub.url)
        assert (found.revision, found.pinned) == (COMMIT, False)
        card = json.loads((tmp_path / CARD).read_text())
        assert (card["revision"], card["pinned"]) == (COMMIT, False)

    def test_what_is_there_is_not_fetched_again(self, hub, tmp_path):
        fetch("swe-gym", tmp_path, endpoint=hub.url)
        hub.asked.clear()
        assert fetch("swe-gym", tmp_path, endpoint=hub.url).kept == 2
        assert downloads(hub) == []

    def test_what_was_spoilt_is_fetched_again(self, hub, tmp_path):
        fetch("swe-gym", tmp_path, endpoint=hub.url)
        (tmp_path / SECOND).write_bytes(b"abd" * 100)  # of the same size
        hub.asked.clear()
        assert fetch("swe-gym", tmp_path, endpoint=hub.url).kept == 1
        assert (tmp_path / SECOND).read_bytes() == hub.files[SECOND]

    def test_a_download_that_broke_off_goes_on_where_it_stopped(self, hub, tmp_path):
        hub.cut = 3000
        found = fetch("swe-gym", tmp_path, endpoint=hub.url)
        assert (tmp_path / FIRST).read_bytes() == hub.files[FIRST]
        starts = [int(one.split()[2]) for one in downloads(hub) if len(one.split()) == 3]
        assert starts == sorted(starts)
        assert min(starts) >= 1000
        assert found.bytes == 10_540

    def test_other_bytes_than_the_hub_lists_are_refused(self, hub, tmp_path):
        hub.lies = True
        with pytest.raises(FormatError, match="not what the hub says"):
            fetch("swe-gym", tmp_path, endpoint=hub.url)
        assert not (tmp_path / FIRST).exists()

    def test_another_commit_than_asked_for_is_refused(self, hub, tmp_path, monkeypatch):
        monkeypatch.setattr(hub, "listing", lambda _: Hub(REPO, hub.files).listing("main"))
        with pytest.raises(FormatError, match="answers with commit"):
            fetch("swe-gym", tmp_path, endpoint=hub.url)

    def test_names_that_leave_the_folder_are_not_taken(self, hub, tmp_path):
        hub.files["../data/x.parquet"] = b"x"
        found = fetch("swe-gym", tmp_path / "d", files=["*.parquet"], endpoint=hub.url)
        assert found.files == [FIRST, SECOND]

    def test_patterns_that_fit_nothing(self, hub, tmp_path):
        with pytest.raises(UsageError, match=r"no file of .* fits \*\.csv"):
            fetch("swe-gym", tmp_path, files=["*.csv"], endpoint=hub.url)

    def test_a_full_disk_is_seen_before(self, hub, tmp_path, monkeypatch):
        usage = type("Usage", (), {"free": 100})()
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
        with pytest.raises(MissingDataError, match="do not fit"):
            fetch("swe-gym", tmp_path, endpoint=hub.url)
        assert downloads(hub) == []

    @pytest.mark.parametrize(("status", "told"), [(500, "refused"), (404, "not there")])
    def test_the_hub_refuses(self, hub, tmp_path, status, told):
        hub.status = status
        with pytest.raises(MissingDataError, match=told):
            fetch("swe-gym", tmp_path, endpoint=hub.url)

    def test_nobody_answers(self, tmp_path):
        with pytest.raises(MissingDataError, match=r"cannot be reached.*goes on from there"):
            fetch("swe-gym", tmp_path, endpoint="http://127.0.0.1:9")
        assert list(tmp_path.iterdir()) == []

    def test_the_command_takes_the_mirror_from_the_environment(self, hub, tmp_path):
        command = [sys.executable, "-m", "sag_research.cli", "datasets", "fetch", "swe-gym"]
        done = subprocess.run(
            [sys.executable, "-c", "from sag_research.cli import main; main()", *command[3:],
             "-o", str(tmp_path / "d"), "--json"],
            env={**os.environ, "HF_ENDPOINT": hub.url}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["files"] == [FIRST, SECOND]


class TestAgentpile:
    """The same rows, read by us and through agentpile, are the same runs."""

    @staticmethod
    def told(trajectory):
        """What a run is about, and all words that were said and done, without their marks."""
        steps = trajectory.steps
        said = " ".join(f"{step.thought} {step.action}" for step in steps)
        outcome = trajectory.outcome.outcome if trajectory.outcome else "unknown"
        heard = " ".join(step.observation for step in steps)
        words = re.findall(r"\w+", said.replace("command", ""))
        return trajectory.task_id, outcome, len(steps), sorted(words), heard.split()[:1]

    def both(self, folder, name, path, rows_):
        file = rows.container(folder / path, rows_, "parquet")
        (format_,) = public_set(name).formats
        ours, _ = rows.read(by_name(format_), file)
        return ours, list(agentpile_runs(name, folder))

    def test_nebius(self, tmp_path):
        found = [
            rows.nebius(),
            rows.nebius(target=True, instance_id="b"),
            rows.nebius(rows.ai("One.\n```\nls\n```"), rows.heard("x" + rows.PROMPT)),
        ]
        ours, theirs = self.both(tmp_path, "nebius-swe-agent", "data/train-00000-of-00012", found)
        assert list(map(self.told, ours)) == list(map(self.told, theirs))
        assert [one.model for one in ours] == [one.model for one in theirs]

    @pytest.mark.parametrize(
        ("name", "path", "make"),
        [
            ("swe-gym", "data/train.raw-00000-of-00003", rows.gym),
            ("nebius-openhands", "trajectories", rows.rebench),
            ("swe-smith", "data/tool-00000-of-00001", partial(rows.smith, "tool")),
        ],
    )
    def test_structured_calls_give_the_same_actions(self, tmp_path, name, path, make):
        write(tmp_path / "tools.json", [])
        found = [make(), make(instance_id="org__repo-2", resolved=make()["resolved"] and 0)]
        if isinstance(found[0]["resolved"], bool):
            found[1]["resolved"] = False
        ours, theirs = self.both(tmp_path, name, path, found)
        deeds = [fingerprint(deeds_of_steps(one.steps), ()).actions for one in ours]
        assert deeds == [fingerprint(deeds_of_steps(one.steps), ()).actions for one in theirs]
        assert [one.task_id for one in ours] == [one.task_id for one in theirs]
        outcomes = [one.outcome.outcome for one in ours]
        assert outcomes == [one.outcome.outcome for one in theirs] == ["success", "failure"]

    def test_a_set_without_a_reader_of_ours(self, tmp_path):
        write(tmp_path / "some-model.jsonl", json.dumps(TAU).encode() + b"\n")
        with sag.open(":memory:") as ws:
            report = ws.load_public("tau-bench", tmp_path)
            assert (report.runs, report.steps, report.ingested) == (1, 2, 1)
            assert ws.load_public("tau-bench", tmp_path).runs == 0
            (run,) = ws.runs().itertuples()
            assert (run.task_id, run.model, run.outcome, run.score) == (
                "retail/3", "some-model", "success", 1.0,
            )  # fmt: skip
            first, second = ws.steps(run.run_id).itertuples()
            assert (first.tool, first.observation, second.thought) == ("find", "u1", "Done.")
            assert "yao2024taubench" in ws.cite()
            assert "| agentpile |" in ws.card()

    def test_what_is_not_there_is_said(self, tmp_path):
        with pytest.raises(MissingDataError, match="sag datasets fetch tau-bench"):
            list(agentpile_runs("tau-bench", tmp_path / "gone"))
        with pytest.raises(UsageError, match="does not read swe-smith-xml"):
            list(agentpile_runs("swe-smith-xml", tmp_path))

    def test_records_it_does_not_understand(self, tmp_path):
        write(tmp_path / "m.jsonl", b"{not json}\n")
        with pytest.raises(FormatError, match="agentpile cannot read tau-bench"):
            list(agentpile_runs("tau-bench", tmp_path))


TAU = {
    "task_name": "retail",
    "messages": [
        {"role": "system", "content": "policy"},
        {"role": "user", "content": "Return it"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "u1"},
        {"role": "assistant", "content": "Done."},
    ],
    "eval_result": {"db_match": True, "score": 1.0},
    "meta": {"id": "retail_3", "task_description": {"instruction": "Return it"}},
}  # fmt: skip


class TestCard:
    @pytest.fixture
    def ws(self, tmp_path):
        with sag.open(tmp_path / "my-study") as ws:
            ws.add(
                {"task_id": f"t{i}", "model": "m|<b>", "outcome": outcome,
                 "steps": [{"action": f"ls {i}"}]}
                for i, outcome in enumerate(("success", "failure", "failure", "unknown"))
            )  # fmt: skip
            yield ws

    def test_counts_add_up_and_rates_have_their_n(self, ws):
        card = ws.card(licence="CC0-1.0")
        assert card.startswith("# my-study\n")
        assert "- 4 runs of 4 tasks by 1 models" in card
        assert "| all | 4 | 1 | 2 | 1 | 0.333 " in card
        assert "n = 3 |" in card
        assert f"`{ws.digest()}`" in card
        assert "licence: CC0-1.0" in card

    def test_names_are_no_markup(self, ws):
        assert r"| m\|\<b\> | 4 |" in ws.card("a *b* <i>")
        assert ws.card("a *b* <i>").startswith(r"# a \*b\* \<i\>")

    def test_an_empty_workspace(self):
        with sag.open(":memory:") as ws:
            assert "- 0 runs of 0 tasks" in ws.card()
            assert ws.cite().startswith("@software{sag_research,")

    def test_a_fetched_set_is_cited_with_its_commit(self, hub, tmp_path):
        sink = rows.container(tmp_path / "row", [rows.gym()], "parquet")
        hub.files[FIRST] = sink.read_bytes()
        fetch("swe-gym", tmp_path / "d", files=[FIRST], endpoint=hub.url)
        with sag.open(":memory:") as ws:
            ws.ingest(tmp_path / "d")
            commit = public_set("swe-gym").revision
            assert ws.cite().startswith(f"% swe-gym: {commit}\n@misc{{pan2024swegym,")
            assert f"| swe-gym | {commit} |" in ws.card()
