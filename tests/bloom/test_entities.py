"""Entities under decisions about their names: weights, proposals, merges that can be undone."""

from __future__ import annotations

from typing import Any

import pytest

import sag_research as sag
from sag_research.bloom import Entities, bloom
from sag_research.bloom._weigh import is_stop, rarity
from sag_research.errors import MissingDataError, UsageError
from sag_research.model import WORKSPACE_RUN, Event


def step(action: str, observation: str) -> dict[str, str]:
    return {"thought": "", "action": action, "observation": observation}


@pytest.fixture
def ws() -> Any:
    with sag.open(":memory:") as opened:
        texts = (
            "KeyError: 'a'\n",
            "KeyError: 'a'\nshop.faults.RefusedError: no\nraise RefusedError('x')\n",
            "raise RefusedError('x')\nexcept shop.faults.RefusedError:\n",
        )
        for number, text in enumerate(texts):
            steps = [step("git status", text), step("cat src/cart.py", "cart.py:3: KeyError")]
            opened.add({"task_id": f"t{number}", "repo": "a/b", "steps": steps})
        yield opened


def test_what_every_run_names_weighs_nothing(ws: Any) -> None:
    table = ws.entities().table_.set_index("entity_id")
    git = table.loc["Command||git"]
    assert (git["runs"], git["stop"], git["weight"]) == (3, True, 0.0)
    rare = table.loc["Error||shop.faults.RefusedError"]
    assert rare["weight"] == pytest.approx(2 * rarity(3, 2))
    assert not rare["stop"]
    graph = bloom(ws.sql)
    weights = dict(zip(graph.entities_["entity_id"], graph.entities_["weight"], strict=True))
    assert weights["Command||git"] == 0.0


def test_rarity_falls_with_the_runs_that_name_it() -> None:
    assert [is_stop(3, 3), is_stop(3, 2), is_stop(2, 2)] == [True, False, False]
    assert rarity(10, 1) > rarity(10, 5) > rarity(10, 9) > rarity(10, 10) == 0.0
    assert rarity(1, 1) > 0


def test_proposals_merge_nothing(ws: Any) -> None:
    entities = ws.entities()
    before = ws.store.last_seq()
    found = entities.merge_candidates()
    pairs = {(row.source, row.target): row for row in found.itertuples()}
    assert set(pairs) == {
        ("Error||RefusedError", "Error||shop.faults.RefusedError"),
        ("File|a/b|cart.py", "File|a/b|src/cart.py"),
    }
    assert pairs["Error||RefusedError", "Error||shop.faults.RefusedError"].runs_both == 2
    assert ws.store.last_seq() == before
    assert len(entities.merge_candidates(kind="File")) == 1
    assert entities.decisions_.empty


def test_a_merge_is_an_event_and_takes_effect(ws: Any) -> None:
    entities = ws.entities()
    event = entities.merge("RefusedError", "shop.faults.RefusedError", by="ann", reason="one class")
    assert (event.run_id, event.type) == (WORKSPACE_RUN, "entity.merged")
    assert event.payload == {
        "source": "Error||RefusedError", "target": "Error||shop.faults.RefusedError", "by": "ann",
        "reason": "one class",
    }  # fmt: skip
    row = entities.table_.set_index("entity_id").loc["Error||shop.faults.RefusedError"]
    assert (row["mentions"], row["merged"]) == (4, ["Error||RefusedError"])
    assert "Error||RefusedError" not in set(entities.table_["entity_id"])
    named = entities.mentions("RefusedError")
    assert set(named["entity_id"]) == {"Error||RefusedError", "Error||shop.faults.RefusedError"}
    graph = bloom(ws.sql, entity="RefusedError").nx
    assert "Error||shop.faults.RefusedError" in graph
    assert "Error||RefusedError" not in graph
    assert len(entities.merge_candidates()) == 1  # this pair is decided
    raw = ws.sql("SELECT count(*) FROM mentions WHERE name = 'RefusedError'").rows()
    assert raw == [(2,)]  # extraction is not rewritten


def test_a_split_undoes_it_and_both_stay_on_record(ws: Any) -> None:
    entities = ws.entities()
    entities.merge("RefusedError", "shop.faults.RefusedError", by="ann")
    entities.split("RefusedError", by="bob", reason="another package")
    assert "Error||RefusedError" in set(entities.table_["entity_id"])
    decisions = entities.decisions_
    assert decisions["type"].tolist() == ["entity.merged", "entity.split"]
    assert decisions["by"].tolist() == ["ann", "bob"]
    assert decisions["stands"].tolist() == [False, False]
    assert entities.canonical() == {}
    assert len(entities.merge_candidates()) == 1  # decided, so not proposed again
    entities.merge("RefusedError", "shop.faults.RefusedError", by="ann")
    assert entities.canonical() == {"Error||RefusedError": "Error||shop.faults.RefusedError"}


def test_merges_follow_each_other(ws: Any) -> None:
    entities = ws.entities()
    entities.merge("RefusedError", "shop.faults.RefusedError", by="ann")
    entities.merge("shop.faults.RefusedError", "KeyError", by="ann")
    assert entities.find("RefusedError") == "Error||KeyError"
    with pytest.raises(UsageError, match="one entity already"):
        entities.merge("KeyError", "RefusedError", by="ann")
    with pytest.raises(UsageError, match="one entity already"):
        entities.merge("RefusedError", "KeyError", by="ann")


def test_what_cannot_be_decided(ws: Any) -> None:
    entities = ws.entities()
    with pytest.raises(UsageError, match="different kinds"):
        entities.merge("KeyError", "git", by="ann")
    with pytest.raises(UsageError, match="somebody"):
        entities.merge("RefusedError", "KeyError", by=" ")
    with pytest.raises(UsageError, match="not merged"):
        entities.split("RefusedError", by="ann")
    with pytest.raises(MissingDataError, match="no entity"):
        entities.merge("Nothing", "KeyError", by="ann")


def test_a_log_of_others_may_go_in_circles(ws: Any) -> None:
    pairs = [("Error||RefusedError", "Error||KeyError"), ("Error||KeyError", "Error||RefusedError")]
    for source, target in pairs:
        payload = {"source": source, "target": target, "by": "x"}
        ws.store.append(Event(run_id=WORKSPACE_RUN, type="entity.merged", payload=payload))
    ws.store.append(Event(run_id=WORKSPACE_RUN, type="entity.merged", payload={"source": 7}))
    entities = ws.entities()
    assert len(entities.decisions_) == 2
    assert len(entities.table_)


def test_a_run_s_own_root_is_left_out_of_its_paths() -> None:
    with sag.open(":memory:") as ws:
        seen = "./a/b.py /srv/x/a/b.py a/b.py /srv/x/c.py /repo/a/b.py /usr/lib/a/b.py"
        ws.add({"task_id": "t", "repo": "o/p", "steps": [step("ls", seen)]})
        ws.add({"task_id": "u", "repo": "o/p", "steps": [step("ls", "/srv/x/a/b.py")]})
        entities = ws.entities()
        assert entities.roots_[["root", "n"]].values.tolist() == [["/srv/x", 1]]
        rows = entities.table_.set_index("name")["mentions"].to_dict()
        assert rows["a/b.py"] == 4
        assert rows["c.py"] == 1
        assert rows["/srv/x/a/b.py"] == 1  # the other run does not say so
        assert rows["/usr/lib/a/b.py"] == 1


def test_relations_show_their_place(ws: Any) -> None:
    relations = ws.entities().relations_
    raised = relations[relations["type"] == "RAISED"].iloc[0]
    assert raised["source_id"] == "File|a/b|cart.py"
    text = "cart.py:3: KeyError"
    places = ("source_start", "source_end", "target_start", "target_end")
    a, b, c, d = (int(raised[place]) for place in places)
    assert (text[a:b], text[c:d], raised["field"]) == ("cart.py", "KeyError", "observation")
    merged = ws.entities()
    merged.merge("File|a/b|cart.py", "File|a/b|src/cart.py", by="ann")
    assert "File|a/b|src/cart.py" in set(merged.relations_["source_id"])


def test_representations_are_stable_and_escaped(ws: Any) -> None:
    entities = Entities(ws.sql, ws.store)
    assert repr(entities).endswith("in every run, 0 merged)")
    ws.add({"task_id": "h", "steps": [step("ls", "<b>.py x/<script>.py")]})
    assert "<script>" not in Entities(ws.sql, ws.store)._repr_html_()


def test_what_another_process_decided_counts_before_a_merge(ws: Any) -> None:
    mine = ws.entities()
    assert not mine.canonical()
    ws.entities().merge("RefusedError", "shop.faults.RefusedError", by="bob")
    with pytest.raises(UsageError, match="one entity already"):
        mine.merge("shop.faults.RefusedError", "RefusedError", by="ann")


def test_a_file_that_no_run_names_without_its_root_can_be_found() -> None:
    with sag.open(":memory:") as ws:
        ws.add(
            {
                "task_id": "t",
                "steps": [
                    {"action": "cat /srv/x/a/b.py /srv/x/q/e.py", "observation": "a/b.py q/e.py"},
                    {"action": "cat d.py", "observation": "/srv/x/a/d.py"},
                ],
            }
        )
        entities = ws.entities()
        pair = entities.merge_candidates().query("why == 'base name'").iloc[0]
        assert (pair.source, pair.target) == ("File||d.py", "File||a/d.py")
        assert entities.find("a/d.py") == "File||a/d.py"
        assert entities.mentions("File||a/d.py")["entity_id"].tolist() == ["File||/srv/x/a/d.py"]
        entities.merge(pair.source, pair.target, by="ann")
        assert "File||d.py" not in set(entities.table_["entity_id"])


@pytest.mark.parametrize("name", ["\ud800", "\x00", "'; drop table events; --", ""])
def test_hostile_names_are_only_unknown(ws: Any, name: str) -> None:
    with pytest.raises(MissingDataError, match="no entity"):
        ws.entities().find(name)
