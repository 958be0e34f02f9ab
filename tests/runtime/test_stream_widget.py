"""What a cell shows of an agent at work: a button, and texts as they grow."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sag_research.llm import Reply, Scripted
from sag_research.runtime import Delta, Source, react, start_react
from sag_research.viz import stop_button, token_view
from tests.runtime.agents import asks, lookup, scripted

PATIENCE = 30


def delta(text: str, route: str = "r1") -> Delta:
    return Delta(route_key=route, delta=text, source=Source("react-agent", "call-model"))


def test_a_view_has_all_texts_in_the_end() -> None:
    view = token_view("At work")
    result = react(scripted(), [lookup], "g", run="r1", sink=view)
    assert view.shown == view.texts_ == {"r1": result.answer}
    assert repr(view) == "TokenView(13 deltas)"


def test_texts_of_several_threads_stay_apart() -> None:
    view = token_view()

    def write(route: str) -> None:
        for number in range(200):
            view(delta(f"{number} ", route))
        view.flush()

    threads = [threading.Thread(target=write, args=(f"r{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = "".join(f"{n} " for n in range(200))
    assert view.shown == view.texts_ == {f"r{n}": whole for n in range(5)}


def test_of_a_long_text_the_end_is_shown() -> None:
    view = token_view()
    view(delta("a" * 30_000 + "z"))
    view.flush()
    assert len(view.shown["r1"]) == 20_000
    assert view.shown["r1"].endswith("z")
    assert len(view.texts_["r1"]) == 30_001


def test_a_view_says_the_same_of_itself_each_time() -> None:
    data = token_view()._repr_mimebundle_()
    plain = data[0] if isinstance(data, tuple) else data
    assert plain["text/plain"] == "TokenView(0 deltas)"


@pytest.fixture
def under_way() -> Any:
    entered, release = threading.Event(), threading.Event()

    def wait(request: Any) -> Reply:
        entered.set()
        assert release.wait(PATIENCE)
        return asks()

    handle = start_react(Scripted(wait), [lookup], "g", run="r1")
    assert entered.wait(PATIENCE)
    yield handle, release
    release.set()
    handle.wait(PATIENCE)


def test_the_button_stops_and_tells(under_way: Any) -> None:
    handle, release = under_way
    shown, over = handle.show(), threading.Event()
    shown.told.observe(lambda change: change.new == "cancelled" and over.set(), "value")
    assert (shown.told.value, repr(shown)) == ("running", "StopButton('r1')")
    shown.button.click()
    assert (shown.told.value, handle.done) == ("stopping", False)
    release.set()
    assert over.wait(PATIENCE)
    assert handle.status == "cancelled"
    assert shown.button.disabled


def test_the_button_of_what_has_ended_is_off() -> None:
    handle = start_react(scripted(), [lookup], "g")
    assert handle.wait(PATIENCE)
    shown, off = stop_button(handle), threading.Event()
    shown.button.observe(lambda _: off.set(), "disabled")
    assert shown.button.disabled or off.wait(PATIENCE)
    assert shown.told.value == "completed"
