"""Steps that need no cleaning are made ready without it, and come out the same."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import SagError
from sag_research.ingest import _events
from sag_research.model import Call, Step, Usage

TEXTS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "\x00", "a" * 600, "é" * 600, "\x00" + "b" * 600, "half \ud835"]),
    st.sampled_from(['{"\\u0000":"x"}', "\\u0000", '{"\x00":"x"}', "c" * 600 + "\udc00"]),
)
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.just(2**63)
)


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value]
    return value


DEEP = st.integers(0, 70).map(nested)
VALUES = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.builds(
    Call, id=TEXTS, name=TEXTS, arguments=VALUES | DEEP, text=TEXTS, observation=TEXTS,
    exit_code=NUMBERS,
)  # fmt: skip
STEPS = st.builds(
    Step,
    thought=TEXTS,
    action=TEXTS,
    observation=TEXTS,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    flags=st.lists(TEXTS, max_size=2).map(tuple),
    usage=st.none() | st.builds(Usage, tokens_in=NUMBERS, tokens_out=NUMBERS, cost_usd=NUMBERS),
    started=st.none() | st.floats(0, 2e9),
    seconds=st.none() | st.just(math.nan) | st.floats(0, 9),
    state=VALUES | DEEP,
)


def made(step):
    spoilt, texts = {}, {}
    try:
        return _events._step_event("r", 0, step, spoilt, texts), spoilt, texts
    except SagError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(step=STEPS)
def test_the_short_way_gives_what_cleaning_gives(step):
    short = made(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_events, "_prepared_as_it_is", lambda *arguments: None)
        assert short == made(step)


def test_a_plain_step_goes_the_short_way_and_a_spoilt_one_does_not():
    plain = Step(
        thought="a" * 600, calls=(Call(text="ls", arguments={"n": [1]}),), state={"a": "b"}
    )
    assert _events._prepared_as_it_is("r", plain, {}) is not None
    for state in ("\x00", "x\x00" * 400, 2**63, {"\x00": 1}, math.inf, "\ud800"):
        texts = {}
        assert _events._prepared_as_it_is("r", Step(state=state), texts) is None
        assert texts == {}
