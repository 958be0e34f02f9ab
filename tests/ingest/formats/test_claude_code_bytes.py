"""Whatever happens to the bytes of a Claude Code file: runs, or a reason."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats.claude_code import ClaudeCode
from tests.ingest.formats.claude_make import call, family, lines, reply, result, simple, streamed
from tests.ingest.formats.openhands_make import bitten
from tests.ingest.make import write

GOOD = {"session": lines(*family()), "stream": lines(*streamed())}
ODD = [None, True, 0, -1, 2**70, 1.5, "", "x", "half \ud835", [], {}, [None], [[]], {"type": {}}]


def runs_in(path, data):
    source = Source(write(path, data))
    ClaudeCode().sniff(data[:4096], source.path)
    reading = ClaudeCode().read(source)
    return list(reading)


@pytest.mark.parametrize("kind", GOOD)
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=80)
    @given(bitten(GOOD[kind]))
    def check(data):
        with suppress(FormatError):  # nothing else may come out
            assert runs_in(folder / "x.jsonl", data)

    check()


@pytest.mark.parametrize("kind", GOOD)
def test_any_value_in_any_place(tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("values")
    good = [json.loads(line) for line in GOOD[kind].splitlines()]

    @settings(max_examples=120)
    @given(st.data())
    def check(data):
        entries = json.loads(json.dumps(good))
        for _ in range(data.draw(st.integers(1, 4))):
            holder, key = data.draw(st.sampled_from(list(_places(entries))))
            if data.draw(st.booleans()):
                holder[key] = data.draw(st.sampled_from(ODD))
            elif isinstance(holder, dict):
                del holder[key]
        with suppress(FormatError):
            assert runs_in(folder / "x.jsonl", lines(*entries))

    check()


def _places(value):
    """List each object or list with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


@st.composite
def shuffled(draw):
    """Replies with any parents: each reply must come out once."""
    size = draw(st.integers(1, 14))
    parents = [draw(st.none() | st.sampled_from([f"a{n}" for n in range(size + 1)]))
               for _ in range(size)]  # fmt: skip
    sides = [draw(st.sampled_from([{}, {"isSidechain": True}, {"sessionId": "other"}]))
             for _ in range(size)]  # fmt: skip
    return [
        reply(
            f"a{number}", parent, [call(f"t{number}", command=f"c{number}")], f"m{number}", **side
        )
        for number, (parent, side) in enumerate(zip(parents, sides, strict=True))
    ]


@given(shuffled(), st.data())
@settings(max_examples=150)
def test_no_reply_and_no_result_is_lost_or_doubled(tmp_path_factory, entries, data):
    folder = tmp_path_factory.getbasetemp() / "shuffled"
    answers = [
        result(f"r{number}", f"a{number}", f"t{number}", f"o{number}")
        for number in range(len(entries))
        if data.draw(st.booleans())
    ]
    runs = runs_in(folder / "x.jsonl", lines(*data.draw(st.permutations([*entries, *answers]))))
    own = [step for run in runs for step in run.steps if "inherited" not in step.flags]
    assert sorted(step.action for step in own) == sorted(f"c{n}" for n in range(len(entries)))
    # what came back on one branch alone is in that branch's copy of the turn
    every = [step for run in runs for step in run.steps]
    came = [text for step in every for text in step.observation.split("\n") if text]
    said = [text for run in runs for text in run.config.get("unanswered", [])]
    said += [text for run in runs for text in run.config.get("preamble", [])]
    assert sorted({*came, *said}) == sorted(f"o{number[1:]}" for number in _ids(answers))


def _ids(answers):
    return [answer["uuid"] for answer in answers]


def test_texts_keep_their_odd_characters(tmp_path):
    odd = lines(*simple()).replace(b'"ls"', b'"ls \\ud835 \\u0000 \xff"')
    (run,) = runs_in(tmp_path / "x.jsonl", odd)
    assert run.steps[0].action == "ls \ud835 \x00 \udcff"


def test_deep_nesting_costs_its_line(tmp_path):
    deep = b'{"type": "user", "uuid": "d", "message": ' + b"[" * 100_000
    (run,) = runs_in(tmp_path / "x.jsonl", lines(*simple()) + deep + b"\n")
    assert len(run.steps) == 2
