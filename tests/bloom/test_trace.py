"""From steps to trace items."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.bloom import (
    Action,
    Final,
    Observation,
    Thought,
    TraceItem,
    Tracer,
    decode_item,
    item_kind,
    item_text,
    trace_items,
)
from sag_research.errors import FormatError
from sag_research.model import Call, Step

LOOKUP = Call(id="c1", name="lookup", arguments={"query": "dagonizer"}, observation='{"n": 3}')
ANSWER = Step(thought="Based on it: 3", flags=("final",))


def kinds(steps, **options):
    return [item_kind(item) for item in trace_items(steps, **options)]


def test_d17_a_tool_call_and_an_answer_give_the_five_kinds():
    steps = [Step(thought="planning to look", calls=(LOOKUP,)), ANSWER]
    items = list(trace_items(steps))
    assert [item_kind(item) for item in items] == [
        "thought", "action", "observation", "thought", "final",
    ]  # fmt: skip
    assert [item.ordinal for item in items] == [0, 1, 2, 3, 4]
    assert items[1].step == Action("lookup", {"query": "dagonizer"}, "c1")
    assert item_text(items[1]) == 'lookup({"query": "dagonizer"})'
    assert items[2].step == Observation('{"n": 3}', "c1")
    assert items[2].origin == 1
    assert items[4].step == Final("Based on it: 3")
    assert items[4].origin == 2


def test_several_calls_keep_their_order_and_their_answers():
    calls = tuple(Call(name=f"t{n}", arguments={"n": n}, observation=f"o{n}") for n in range(3))
    items = list(trace_items([Step(calls=calls)], start=7))
    assert [item.ordinal for item in items] == [7, 8, 9, 10, 11, 12]
    assert [item.step.tool for item in items[:3]] == ["t0", "t1", "t2"]
    assert [(item.step.output, item.origin) for item in items[3:]] == [
        ("o0", 7), ("o1", 8), ("o2", 9),
    ]  # fmt: skip


@pytest.mark.parametrize("flag", ["rejected", "error"])
def test_d16_a_step_that_did_nothing_takes_no_ordinal(flag):
    dropped = Step(thought="try", calls=(LOOKUP,), flags=(flag,))
    with_it = list(trace_items([Step(thought="a"), dropped, ANSWER]))
    assert with_it == list(trace_items([Step(thought="a"), ANSWER]))
    assert [item.ordinal for item in with_it] == [0, 1, 2]


def test_completing_makes_the_last_silent_step_the_answer():
    steps = [Step(thought="first"), Step(thought="look", calls=(LOOKUP,)), Step(thought="three")]
    assert kinds(steps)[-1] == "thought"
    assert kinds(steps, completed=True)[-2:] == ["thought", "final"]
    assert kinds(steps).count("thought") == kinds(steps, completed=True).count("thought")


@pytest.mark.parametrize(
    "last",
    [
        Step(thought="submit", calls=(LOOKUP,)),
        Step(thought="stop", flags=("rejected",)),
        Step(thought="  "),
        Step(thought="done", action="submit"),
    ],
)
def test_completing_invents_no_answer(last):
    assert "final" not in kinds([Step(thought="a"), last], completed=True)


def test_completing_does_not_answer_twice():
    assert kinds([ANSWER], completed=True) == ["thought", "final"]
    tracer = Tracer()
    tracer.take(Step(thought="three"))
    assert [item_kind(item) for item in tracer.complete()] == ["final"]
    assert tracer.complete() == []


def test_texts_without_calls_are_not_lost():
    told, seen = Step(action="ls", observation="setup.py"), Step(observation="[exit 1]")
    assert [item_text(item) for item in trace_items([told])] == ["ls", "setup.py"]
    assert [(item_kind(i), item_text(i)) for i in trace_items([seen])] == [
        ("observation", "[exit 1]")
    ]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action("", "git log | head"), "git log | head"),
        (Action("now"), "now()"),
        (Action("say", "<t>诊断"), 'say("<t>诊断")'),
        (Action("f", [1, None]), "f([1, null])"),
    ],
)
def test_actions_read_as_they_were_asked(action, text):
    assert item_text(TraceItem(0, action)) == text


@pytest.mark.parametrize(
    "bad",
    [
        {"ordinal": -1, "step": {"kind": "thought", "text": ""}},
        {"ordinal": 0, "step": {"kind": "thought", "text": "", "more": 1}},
        {"ordinal": 0, "step": {"kind": "plan", "text": ""}},
        {"ordinal": 0, "step": {"kind": "action", "args": {}}},
        {"ordinal": 0, "step": {"kind": "final", "text": ""}, "run": "r"},
        {"step": {"kind": "final", "text": ""}},
        [],
    ],
)
def test_d18_what_is_no_item_is_refused(bad):
    with pytest.raises(FormatError):
        decode_item(json.dumps(bad))


TEXT = st.text(max_size=20)
CALLS = st.builds(Call, name=TEXT, arguments=st.none() | st.dictionaries(TEXT, TEXT), text=TEXT,
                  observation=TEXT)  # fmt: skip
FLAGS = st.lists(st.sampled_from(["rejected", "final", "repaired"]), max_size=2).map(tuple)
STEPS = st.builds(Step, thought=TEXT, action=TEXT, observation=TEXT, flags=FLAGS,
                  calls=st.lists(CALLS, max_size=3).map(tuple))  # fmt: skip


@given(st.lists(STEPS, max_size=8), st.booleans(), st.integers(0, 5))
def test_ordinals_are_contiguous_and_items_survive_json(steps, completed, start):
    items = list(trace_items(steps, start=start, completed=completed))
    assert [item.ordinal for item in items] == list(range(start, start + len(items)))
    assert [decode_item(msgspec.json.encode(item)) for item in items] == items
    assert all(item.origin is None or start <= item.origin < item.ordinal for item in items)


@given(st.lists(STEPS, max_size=8), st.integers(0, 8))
def test_a_trace_can_be_taken_in_parts(steps, cut):
    whole = list(trace_items(steps, completed=True))
    tracer = Tracer()
    parts = [item for step in steps[:cut] for item in tracer.take(step)]
    assert parts == whole[: len(parts)]
    parts += [item for step in steps[cut:] for item in tracer.take(step)]
    assert parts + tracer.complete() == whole


def test_every_observation_and_thought_is_in_the_trace():
    steps = [Step(thought=f"t{n}", calls=(Call(name="x", observation=f"o{n}"),)) for n in range(9)]
    items = list(trace_items(steps))
    assert [i.step.text for i in items if isinstance(i.step, Thought)] == [
        f"t{n}" for n in range(9)
    ]
    assert [i.step.output for i in items if isinstance(i.step, Observation)] == [
        f"o{n}" for n in range(9)
    ]
