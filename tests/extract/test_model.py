"""A model as a second reader: recorded, held to the text, hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sag_research as sag
from sag_research.errors import UsageError
from sag_research.extract import EntityExtractor, ModelExtractor, extract_run
from sag_research.llm import Context, ReplayMiss, Reply, Request, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Run, Usage

TEXT = "mill.py broke: GrindFault\nmill.py again"


def listing(*entities: tuple[str, str], usage: Usage | None = None) -> Reply:
    rows = [{"kind": kind, "name": name} for kind, name in entities]
    return Reply(text=json.dumps({"entities": rows}), usage=usage)


def reader(*answers: Any, way: Any = "names", mode: Any = "record") -> ModelExtractor:
    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="x", kind="extraction"))
    return ModelExtractor(Context(store, "x", model=Scripted(answers), mode=mode), way)


def test_names_are_found_in_the_text_or_dropped() -> None:
    usage = Usage(tokens_in=7, tokens_out=3, cost_usd=0.5)
    answer = listing(
        ("File", "mill.py"), ("Error", "GrindFault"), ("File", "made_up.py"), ("Error", "Grind"),
        usage=usage,
    )  # fmt: skip
    found = reader(answer).extract(TEXT, scope="a/b")
    assert [(m.entity.entity_id, m.start, m.end) for m in found.mentions] == [
        ("File|a/b|mill.py", 0, 7), ("Error||GrindFault", 15, 25), ("File|a/b|mill.py", 26, 33),
    ]  # fmt: skip
    assert found.dropped == [("File", "made_up.py"), ("Error", "Grind")]
    assert (found.asked, found.malformed, found.usage) == (1, 0, usage)
    assert {m.rule for m in found.mentions} == {"model-names"}


@pytest.mark.parametrize(
    "text", ["no json", '{"entities": 3}', '{"entities": [3, {}]}', "[]", None]
)
def test_answers_of_another_shape_are_counted_or_empty(text: str | None) -> None:
    found = reader(text).extract(TEXT)
    assert found.mentions == []
    assert found.malformed == (text in ("no json", None))
    assert found.usage.tokens_in is None


def test_kinds_that_were_not_asked_for_are_left_out() -> None:
    found = reader(listing(("Host", "mill.py"), ("Nothing", "mill.py"))).extract(TEXT)
    assert (found.mentions, found.dropped) == ([], [])


def test_the_schema_names_the_kinds() -> None:
    one = reader(listing())
    one.extract(TEXT)
    request = one.context._model.requests[0]
    assert request.output_schema["properties"]["entities"]["items"]["properties"]["kind"] == {
        "enum": ["File", "Error", "Test"]
    }
    assert request.messages[-1].content == TEXT


def test_spans_ask_of_each_candidate() -> None:
    def choose(request: Request) -> Reply:
        words = request.messages[-1].content.split("[[")[1].split("]]")[0]
        kind = {"mill.py": "File", "GrindFault": "Error"}.get(words, "none")
        return Reply(text=kind, usage=Usage(tokens_in=2, tokens_out=1))

    store = SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="x"))
    spans = ModelExtractor(Context(store, "x", model=Scripted(choose)), "spans")
    found = spans.extract(TEXT)
    assert [(m.entity.name, m.start) for m in found.mentions] == [
        ("mill.py", 0), ("GrindFault", 15), ("mill.py", 26),
    ]  # fmt: skip
    assert (found.dropped, found.asked) == ([], 2)
    assert found.usage.tokens_in == 4
    assert found.usage.cost_usd is None


def test_terminal_codes_do_not_shift_places() -> None:
    text = "\x1b[31mmill\x1b[0m.py"
    (mention,) = reader(listing(("File", "mill.py"))).extract(text).mentions
    assert text[mention.start : mention.end] == "mill\x1b[0m.py"


def test_nothing_is_asked_about_nothing() -> None:
    found = reader().extract("  \n")
    assert (found.asked, found.mentions) == (0, [])


def test_what_cannot_be_asked_for() -> None:
    context = reader().context
    with pytest.raises(UsageError, match="way 'guess'"):
        ModelExtractor(context, "guess")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown kind 'Files'"):
        ModelExtractor(context, kinds=["Files"])


def test_rules_come_first_and_the_model_complements_when_asked() -> None:
    extractor = EntityExtractor()
    model = reader(listing(("Error", "GrindFault"), ("File", "mill.py")))
    entities, _ = extractor.extract(TEXT, model=model)
    assert [e.name for e in entities] == ["mill.py"]
    assert model.context.live == 0
    entities, _ = extractor.extract(TEXT, model=model, complement=True)
    assert [e.name for e in entities] == ["mill.py", "GrindFault"]
    quiet = reader(listing(("Error", "GrindFault")))
    entities, _ = extractor.extract("a GrindFault came up", model=quiet)
    assert [e.name for e in entities] == ["GrindFault"]


def test_an_extraction_is_a_hidden_run_that_is_paid_once() -> None:
    with sag.open(":memory:") as ws:
        steps = [{"thought": "", "action": "", "observation": TEXT}]
        (run,) = [ws.add({"task_id": "t", "repo": "a/b", "steps": steps})]
        source = ws.sql("SELECT run_id FROM runs").rows()[0][0]
        model = Scripted([listing(("Error", "GrindFault"), ("File", "gone.py"))])
        made = extract_run(ws.store, source, model)
        assert made[1:] == (1, 1, 1, 0)
        again = extract_run(ws.store, source, model)
        assert again == made
        assert len(model.requests) == 1
        rows = ws.sql("SELECT run_id, kind, hidden FROM runs ORDER BY kind").rows()
        assert rows == [(source, "agent", False), (made.run_id, "extraction", True)]
        (event,) = ws.store.read(made.run_id, types=("object.created",))
        assert event.payload == {
            "run": source, "position": 2, "field": "observation", "start": 15, "end": 25,
            "kind": "Error", "scope": "", "name": "GrindFault", "rule": "model-names",
        }  # fmt: skip
        assert run is not None


def test_an_extraction_replays_without_its_model() -> None:
    first = reader(listing(("Error", "GrindFault")))
    found = first.extract(TEXT)
    context = first.context
    identity = context._model.identity()
    replayed = Context(context.store, "x", model=identity, mode="replay")
    assert ModelExtractor(replayed).extract(TEXT) == found
    with pytest.raises(ReplayMiss):
        ModelExtractor(replayed).extract("another text, mill.py")


def test_an_interrupted_extraction_goes_on() -> None:
    with sag.open(":memory:") as ws:
        steps = [{"thought": "", "action": "", "observation": f"{TEXT} {n}"} for n in range(2)]
        ws.add({"task_id": "t", "steps": steps})
        source = ws.sql("SELECT run_id FROM runs").rows()[0][0]
        with pytest.raises(Exception, match="script"):
            extract_run(ws.store, source, Scripted([listing(("Error", "GrindFault"))]))
        more = Scripted([listing(("Error", "GrindFault"))])
        made = extract_run(ws.store, source, more)
        assert (made.mentions, made.asked, len(more.requests)) == (2, 2, 1)
        assert len(list(ws.store.read(made.run_id, types=("object.created",)))) == 2
