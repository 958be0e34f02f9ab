"""A live drawing: what its pages are told, and that they all end up with the same."""

from __future__ import annotations

import gzip
import json
import threading
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise

import comm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import UsageError
from sag_research.viz import BloomView, Edge, Node, Scene, scene, scene_data, scene_patch
from sag_research.viz import _bloom_view as module
from sag_research.viz._js_lib import JsLib, js_lib
from sag_research.viz._patch import apply_patch
from sag_research.viz._patch_log import PatchLog
from sag_research.viz._pyvis import LIBRARY
from tests.viz.pages import Page, Wire, unpack
from tests.viz.sample import graph

VIS_SHA256 = "1f20f0736f32cb9bedf8f6383b25cfea2f839e1abe80d6e8040b4d5bea378c69"


@pytest.fixture
def wire(monkeypatch):
    wire = Wire()
    monkeypatch.setattr(comm, "create_comm", wire.create)
    monkeypatch.setattr(JsLib, "_made", None)
    return wire


class Clock:
    """Time that a test moves, and timers that go off in it."""

    def __init__(self):
        self.now, self.timers = 100.0, []

    def monotonic(self):
        return self.now

    def Timer(self, wait, work):
        timer = Timer(self.now + wait, work)
        self.timers.append(timer)
        return timer

    def pass_(self, seconds):
        self.now += seconds
        for timer in [one for one in self.timers if one.at <= self.now and one.runs]:
            timer.runs = False
            timer.work()


class Timer:
    def __init__(self, at, work):
        self.at, self.work, self.runs = at, work, False

    def start(self):
        self.runs = True

    def cancel(self):
        self.runs = False


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(module.threading, "Timer", clock.Timer)
    return clock


def lane(n, *, first=0, text="look"):
    nodes = [Node(id=f"event:r:{i}", kind="Step", label=str(i), x=40.0 * i, detail={"action": text})
             for i in range(first, n)]  # fmt: skip
    edges = [Edge(source=a.id, target=b.id, kind="NEXT")
             for a, b in pairwise(nodes)]  # fmt: skip
    return Scene(nodes=nodes, edges=edges, layout="timeline", title=text)


# ---- the library


def test_the_drawing_code_is_the_one_that_was_looked_at():
    path = files("pyvis").joinpath(*LIBRARY)
    assert sha256(path.read_bytes()).hexdigest() == VIS_SHA256


def test_the_library_travels_once_a_kernel_ahead_of_its_views(wire):
    first, second = BloomView(lane(2)), BloomView(lane(3))
    carriers = [one for one in wire.opened if one["data"]["state"]["_model_name"] == "WidgetModel"]
    assert len(carriers) == 1
    assert sum(len(buffer) for buffer in carriers[0]["buffers"]) > 100_000
    assert wire.opened.index(carriers[0]) < min(
        n for n, one in enumerate(wire.opened) if "_esm" in one["data"]["state"]
    )
    for view in (first, second):
        assert view.get_state()["_lib"] == f"IPY_MODEL_{js_lib().model_id}"
    sent = [one for one in wire.opened if "_esm" in one["data"]["state"]]
    assert all(sum(map(len, one["buffers"])) < 5_000 for one in sent)
    assert all(len(json.dumps(one["data"])) < 40_000 for one in sent)


def test_a_closed_library_is_made_anew(wire):
    old = js_lib()
    old.close()
    assert js_lib() is not old
    assert js_lib() is js_lib()


def test_the_library_unpacks_to_what_it_was():
    script = gzip.decompress(js_lib().vis).decode("ascii")
    assert "vis-network" in script
    assert b"function sagDraw" in gzip.decompress(js_lib().draw)


# ---- what pages are told


def test_a_page_is_opened_with_the_drawing_and_follows_it(wire, clock):
    view = BloomView(scene(graph(fork=False)))
    page = Page(wire, view)
    page.hello()
    assert page.shows()
    assert page.messages == []
    view.scene = scene(graph())
    assert page.shows()
    assert page.messages == [{"type": "patches", "start": 0, "end": 1}]


def test_scenes_that_come_fast_are_drawn_once_a_second_and_the_last_one_is(wire, clock):
    view = BloomView(lane(1))
    page = Page(wire, view)
    page.hello()
    for n in range(2, 42):  # forty scenes in four seconds
        view.scene = lane(n)
        clock.pass_(0.1)
    assert 4 <= len(page.messages) <= 5
    clock.pass_(1.0)
    assert len(page.messages) <= 6
    assert page.shows()
    assert len(page.data["keys"]) == 41
    said = len(page.messages)
    clock.pass_(10.0)
    assert len(page.messages) == said  # nothing new, nothing said
    assert not [timer for timer in clock.timers if timer.runs]


def test_the_same_scene_again_is_not_told(wire, clock):
    view = BloomView(lane(3))
    page = Page(wire, view)
    page.hello()
    view.scene = lane(3)
    view.flush()
    assert page.messages == []
    assert view.cursor == 0


def test_a_page_that_comes_late_shows_the_same(wire, clock):
    view = BloomView(lane(1))
    for n in range(2, 6):  # no page is there
        view.scene = lane(n)
        clock.pass_(1.0)
    early = Page(wire, view)
    early.hello()
    view.scene = lane(6)
    clock.pass_(1.0)
    late = Page(wire, view)
    late.hello()
    view.scene = lane(4, first=1)
    clock.pass_(1.0)
    assert early.shows()
    assert late.shows()
    assert early.cursor == late.cursor == view.cursor


def test_a_page_that_still_loads_while_a_cell_is_busy_misses_nothing(wire, clock):
    view = BloomView(lane(1))
    page = Page(wire, view, listens=False)
    for n in range(2, 2 + module.REPEATED - 1):
        view.scene = lane(n)
        clock.pass_(1.0)
    page.listens = True  # its code has come; its hello waits for the cell's end
    view.scene = lane(20)
    clock.pass_(1.0)
    assert page.gaps == 0
    assert page.shows()


def test_a_gap_is_closed_by_hello(wire, clock):
    view = BloomView(lane(1))
    page = Page(wire, view)
    page.hello()
    page.listens = False  # say the connection was lost
    for n in range(2, 5):
        view.scene = lane(n)
        clock.pass_(1.0)
    page.listens = True
    view.scene = lane(5)
    clock.pass_(1.0)
    assert page.gaps == 1
    page.hello()
    assert page.shows()


@pytest.mark.parametrize("cursor", [-1, 99, "x", None, 1.5, True])
def test_a_hello_from_nowhere_is_sent_the_whole(wire, clock, cursor):
    view = BloomView(lane(1))
    page = Page(wire, view)
    view.scene = lane(2)
    page.cursor, page.data = -1, {}
    page.say(type="hello", cursor=cursor)
    page.say(type="nonsense")
    page.say()
    assert page.messages[-1] == {"type": "snapshot", "at": 1}
    assert page.shows()


def test_two_views_of_one_scene_are_told_apart(wire, clock):
    a, b = BloomView(lane(1)), BloomView(lane(1))
    pages = Page(wire, a), Page(wire, b)
    a.scene = lane(5)
    assert pages[0].shows()
    assert pages[1].shows()
    assert pages[1].messages == []


def test_it_may_be_set_from_any_thread(wire):
    view = BloomView(lane(1))
    page = Page(wire, view)
    page.hello()
    threads = [
        threading.Thread(target=lambda n=n: setattr(view, "scene", lane(n))) for n in range(2, 12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view.flush()
    assert page.gaps == 0
    assert page.shows()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12), st.data())
def test_patches_lead_from_any_version_to_the_newest(steps, data):
    versions = [scene_data(lane(1))]
    log = PatchLog(versions[0])
    for first, n in steps:
        if log.update(scene_data(lane(n, first=first))):
            versions.append(scene_data(lane(n, first=first)))
    assert log.version == len(versions) - 1
    cursor = data.draw(st.integers(0, log.version))
    message = log.since(cursor)
    if cursor == log.version:
        assert message is None
        return
    assert len(unpack(message.body)) == log.version - cursor
    drawn = versions[cursor]
    for patch in unpack(message.body):
        drawn = apply_patch(drawn, patch)
    assert message.content == {"type": "patches", "start": cursor, "end": log.version}
    assert scene_patch(drawn, versions[-1]) == {}


def test_old_patches_are_given_up_for_the_whole():
    log = PatchLog(scene_data(lane(1)))
    for n in range(2, 40):
        log.update(scene_data(lane(3, text=str(n) * 10_000)))
    assert log.version == 38
    assert 0 < log.oldest < log.version
    assert log.since(0).content == {"type": "snapshot", "at": 38}
    assert unpack(log.since(0).body) == scene_data(lane(3, text="39" * 10_000))
    assert log.since(log.oldest).content["type"] == "patches"
    assert log.since(log.oldest - 1).content["type"] == "snapshot"


def test_half_a_character_and_markup_travel(wire, clock):
    view = BloomView(lane(1))
    page = Page(wire, view)
    page.hello()
    text = "\ud800 </script><img src=x onerror=alert(1)> \u202e"
    view.scene = lane(2, text=text)
    assert page.data["texts"][1][2]["action"] == text


# ---- choosing


def test_a_click_is_told_and_a_choice_is_shown(wire, clock):
    view = BloomView(lane(3))
    page = Page(wire, view)
    heard = []
    end = view.on_select(heard.append)
    choose = {"method": "update", "state": {"selected": "event:r:1"}}
    view._handle_msg({"content": {"data": choose}, "buffers": []})
    assert view.selected == "event:r:1"
    view.selected = ""
    end()
    view.selected = "event:r:2"
    assert heard == ["event:r:1", ""]
    assert page.view is view


def test_what_is_not_drawn_cannot_be_chosen(wire, clock):
    view = BloomView(lane(3))
    with pytest.raises(UsageError, match="no node 'event:r:7'"):
        view.selected = "event:r:7"
    gone = {"method": "update", "state": {"selected": "event:r:7"}}  # a click that came late
    view._handle_msg({"content": {"data": gone}, "buffers": []})
    assert view.selected == ""


def test_what_is_removed_is_chosen_no_more(wire, clock):
    view = BloomView(lane(3))
    view.selected = "event:r:2"
    view.scene = lane(2)
    assert view.selected == ""


# ---- showing and saving


def test_it_is_shown_without_an_address_and_with_a_page_for_readers(wire, clock):
    view = BloomView(scene(graph()))
    assert repr(view) == repr(view.scene).replace("Scene", "BloomView")
    data, _ = view._repr_mimebundle_()
    assert data["text/plain"] == repr(view)
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert len(data["text/html"]) < 300_000
    assert "<script" not in data["text/html"]  # it is in a frame's attribute, escaped
    view.scene = lane(2)
    assert view._repr_mimebundle_()[0]["text/html"] != data["text/html"]


def test_what_is_saved_is_renewed_after_a_change(wire, clock, monkeypatch):
    told = []
    monkeypatch.setattr("IPython.display.publish_display_data", lambda *a, **k: told.append((a, k)))
    view = BloomView(lane(1))
    view._ipython_display_()
    (live, _), (saved, names) = told
    assert set(live[0]) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert set(saved[0]) == {"text/plain", "text/html"}
    for n in range(2, 8):
        view.scene = lane(n)
        clock.pass_(1.0)
    clock.pass_(5.0)
    renewed = told[2:]
    assert 1 <= len(renewed) <= 3
    assert all(one[1] == names | {"update": True} for one in renewed)
    assert renewed[-1][0][0] == {"text/plain": repr(view), "text/html": view._saved.html()}


def test_it_can_be_written_to_a_file(wire, clock, tmp_path):
    path = BloomView(lane(2)).to_html(tmp_path / "a.html")
    assert path.read_text(encoding="ascii").startswith("<!")
