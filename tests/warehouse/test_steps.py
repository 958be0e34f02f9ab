"""Steps read by their types give the rows that any event gives."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.warehouse._project import Projector
from sag_research.warehouse._steps import TypedStep, read_page
from tests.warehouse.support import TinyExtractor, step

LONG = "see long.py " * 60
TEXTS = st.sampled_from(["", "ls", "a.py b.py", LONG, LONG + "2", "\x1b[1mx", "é" * 300, "n/a"])
ODD = st.one_of(
    TEXTS, st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70), st.lists(TEXTS, max_size=2),
    st.dictionaries(st.sampled_from(["a", "open_file", "tokens_in", "text"]), TEXTS, max_size=2),
)  # fmt: skip
MOSTLY_TEXT = st.one_of(TEXTS, TEXTS, TEXTS, ODD)


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


CALL = some(
    id=MOSTLY_TEXT, name=MOSTLY_TEXT, arguments=ODD, text=MOSTLY_TEXT, observation=MOSTLY_TEXT,
    status=MOSTLY_TEXT, exit_code=st.integers(-2, 2**32) | ODD,
)  # fmt: skip
USAGE = some(tokens_in=st.integers() | ODD, tokens_out=ODD, cost_usd=st.floats(0, 9) | ODD)
PAYLOAD = some(
    thought=MOSTLY_TEXT,
    action=MOSTLY_TEXT,
    observation=MOSTLY_TEXT,
    calls=st.lists(CALL, max_size=3) | ODD,
    flags=st.lists(st.sampled_from(["inherited", "terminal", "x"]), max_size=2) | ODD,
    usage=USAGE | ODD,
    state=some(open_file=MOSTLY_TEXT) | ODD,
    started=st.none() | st.floats(0, 1e12),
    seconds=st.none() | st.integers(0, 9),
    unreadable=ODD,
    redacted=ODD,
)


def told_twice(payload):
    """A payload whose only call says what the step says."""
    call = {"text": payload.get("action"), "observation": payload.get("observation")}
    return payload | {"calls": [call | {"id": "c", "arguments": {"n": 1.5}}]}


def rows(store, events):
    tables = Projector(store, TinyExtractor()).project(events)
    return {name: table.to_pylist() for name, table in tables.items()}


@settings(max_examples=80, deadline=None)
@given(payloads=st.lists(PAYLOAD | PAYLOAD.map(told_twice), min_size=1, max_size=12))
def test_both_ways_give_the_same_rows(payloads):
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r", repo="a/b"))
        events = [Event(run_id="r", type="agent.step", payload=one) for one in payloads]
        store.append_many(events)
        (page,) = store.raw_pages(0, store.last_seq())
        assert rows(store, read_page(page)) == rows(store, list(store.tail(0)))


def test_steps_as_this_package_writes_them_are_read_by_their_types():
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r"))
        plain = [step("r", "ls"), step("r", LONG, state={"open_file": "a.py"}, seconds=1.0)]
        odd = [step("r", thought=5), step("r", state={"open_file": LONG})]
        store.append_many([*plain, *odd])
        (page,) = store.raw_pages(0, store.last_seq())
        kinds = [type(one) for one in read_page(page)]
        assert kinds == [Event, TypedStep, TypedStep, Event, Event]


def test_a_lost_text_and_a_redacted_step_say_so(tmp_path):
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.create_run(Run(run_id="r"))
        store.append_many([step("r", LONG), step("r", LONG + "3"), step("r", "ls")])
        store.redact("r", 3, "a password")
        store._db.execute("DELETE FROM blobs WHERE id = 1")
        store._blobs.forget()
        (page,) = store.raw_pages(0, store.last_seq())
        typed = rows(store, read_page(page))
        assert typed == rows(store, list(store.tail(0, strict=False)))
        assert [one["flags"] for one in typed["steps"]] == [["unreadable"], [], []]
