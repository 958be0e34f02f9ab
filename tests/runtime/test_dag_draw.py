"""Documents as Mermaid text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from sag_research.errors import UsageError
from sag_research.runtime import (
    Body,
    Document,
    Documents,
    EmbeddedDag,
    Gather,
    Phase,
    Scatter,
    SingleNode,
    Terminal,
    bundled_document,
    mermaid,
)
from tests.runtime.documents import documents, known, place, sample, single, terminal

AGENT = """\
%% react-agent 1
flowchart TB
  entry_main(["main"])
  build_request["build-request"]
  call_model["call-model"]
  normalize_response["normalize-response"]
  append_assistant["append-assistant"]
  decode_tools["decode-tools"]
  normalize_tools["normalize-tools"]
  worksets["worksets"]
  dispatch_tools[/"dispatch-tools"/]
  join_tool_results{"join-tool-results"}
  collect_results["collect-results"]
  end_done((("end-done")))
  end_error>"end-error"]
  entry_main --> build_request
  build_request -->|"ready"| call_model
  build_request -->|"error"| end_error
  call_model -->|"text"| normalize_response
  call_model -->|"tools"| normalize_response
  call_model -->|"mixed"| normalize_response
  call_model -->|"error"| end_error
  normalize_response -->|"text"| append_assistant
  normalize_response -->|"tools"| decode_tools
  normalize_response -->|"mixed"| decode_tools
  normalize_response -->|"empty"| end_error
  normalize_response -->|"error"| end_error
  append_assistant -->|"done"| end_done
  append_assistant -->|"error"| end_error
  decode_tools -->|"decoded"| normalize_tools
  decode_tools -->|"empty"| end_error
  decode_tools -->|"error"| end_error
  normalize_tools -->|"valid"| worksets
  normalize_tools -->|"empty"| end_error
  normalize_tools -->|"error"| end_error
  worksets -->|"ready"| dispatch_tools
  worksets -->|"empty"| end_error
  worksets -->|"error"| end_error
  dispatch_tools -->|"all-success"| join_tool_results
  dispatch_tools -->|"partial"| join_tool_results
  dispatch_tools -->|"all-error"| join_tool_results
  dispatch_tools -->|"empty"| join_tool_results
  join_tool_results -->|"success"| collect_results
  join_tool_results -->|"error"| end_error
  join_tool_results -->|"empty"| collect_results
  collect_results -->|"done"| build_request
  collect_results -->|"empty"| build_request
  collect_results -->|"error"| end_error
"""
TRACE = """\
%% react-agent-memory-trace 1
flowchart TB
  entry_main(["main"])
  scatter_steps[/"scatter-steps"/]
  collect_steps{"collect-steps"}
  end_((("end")))
  entry_main --> scatter_steps
  scatter_steps -->|"all-success"| collect_steps
  scatter_steps -->|"partial"| collect_steps
  scatter_steps -->|"all-error"| collect_steps
  scatter_steps -->|"empty"| end_
  collect_steps -->|"success"| end_
  collect_steps -->|"error"| end_
  collect_steps -->|"empty"| end_
"""
LINE = re.compile(
    r'  (?:[A-Za-z]\w*(?:\(\["L"\]\)|\["L"\]|\[/"L"/\]|\{"L"\}|\[\["L"\]\]|\{\{"L"\}\}|'
    r'\(\(\("L"\)\)\)|>"L"\])|[A-Za-z]\w* -->(?:\|"L"\|)? [A-Za-z]\w*)'.replace(
        "L", r"(?:[^\x00-\x1f\"#%&<>`$\\]|#\w+;)*"
    ),
    re.ASCII,
)


def named(*names: str) -> list[str]:
    """Return the lines of a document of nodes with these names, without head and routes."""
    ends = [Terminal(place(str(n)), name, "completed") for n, name in enumerate(names)]
    document = Document(place("d"), "d", "1", {"main": ends[0].id}, tuple(ends))
    return mermaid(document).splitlines()[3:-1]


@pytest.mark.parametrize(
    ("name", "text"), [("react-agent", AGENT), ("react-agent-memory-trace", TRACE)]
)
def test_d6_the_drawings_of_the_documents(name: str, text: str) -> None:
    assert mermaid(bundled_document(name)) == text


@pytest.mark.parametrize("orientation", ["TB", "LR", "RL", "BT"])
def test_d6_orientation_changes_one_line(orientation: str) -> None:
    text = mermaid(bundled_document("react-agent-memory-trace"), orientation=orientation)
    assert text == TRACE.replace("flowchart TB", f"flowchart {orientation}")


@pytest.mark.parametrize("orientation", ["tb", "TD", "", "LR\nclick a"])
def test_d6_other_orientations_are_refused(orientation: str) -> None:
    with pytest.raises(UsageError, match="TB, LR, RL, BT"):
        mermaid(sample(terminal()), orientation=orientation)


def test_d6_every_kind_has_its_shape_and_every_entry_its_root() -> None:
    to_end = {"done": place("end")}
    placements = (
        SingleNode(place("n"), "n", "f", to_end),
        Scatter(place("s"), "s", "x", Body(node="f"), to_end),
        Gather(place("g"), "g", (place("s"),), "discard", to_end),
        EmbeddedDag(place("e"), "e", "urn:x:inner", to_end),
        Phase(place("p"), "p", "pre", "f", to_end),
        terminal(), terminal("lost", "failed"),
    )  # fmt: skip
    entries = {"main": place("n"), "again:now": place("s")}
    drawn = mermaid(Document("urn:x", "all", "2", entries, placements)).splitlines()
    assert drawn[:13] == [
        "%% all 2", "flowchart TB", '  entry_main(["main"])', '  entry_again_now(["again:now"])',
        '  n["n"]', '  s[/"s"/]', '  g{"g"}', '  e[["e"]]', '  p{{"p"}}', '  end_((("end")))',
        '  lost>"lost"]', "  entry_main --> n", "  entry_again_now --> s",
    ]  # fmt: skip
    assert drawn[13:] == [f'  {name} -->|"done"| end_' for name in "nsgep"]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["a:b", "a_b", "a b", "A_B"], ["a_b", "a_b_2", "a_b_3", "A_B_4"]),
        (["a_b_2", "a:b", "a-b"], ["a_b_2", "a_b", "a_b_3"]),
        (["end", "End", "end_", "graph"], ["end_", "End__2", "end__3", "graph_"]),
        (["entry:main", "entry_main"], ["entry_main_2", "entry_main_3"]),
        (["诊断", "é", "", "1", "_self"], ["n___", "n__", "n_", "n_1", "n__self"]),
        (["__proto__", "constructor", "toString"], ["n___proto__", "constructor_", "toString_"]),
        (["same", "same"], ["same", "same_2"]),
    ],
)
def test_d6_ids_are_plain_and_no_two_are_alike(names: list[str], ids: list[str]) -> None:
    drawn = [line.strip().partition("(((")[0] for line in named(*names)]
    assert drawn == ids


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('say "hi"', "say #quot;hi#quot;"),
        ("<b>&amp;</b>", "#lt;b#gt;#amp;amp;#lt;/b#gt;"),
        ("#35; it's", "#35;35; it#apos;s"),
        ("`*md*` $$x$$", "#96;*md*#96; #36;#36;x#36;#36;"),
        ("%%{init: {}}%%", "#37;#37;{init: {}}#37;#37;"),
        ("two\nlines\x1b[31m\u202e", "two lines"),
        ("Direction TB", "Direction#32;TB"),
        ("fa:fa-car fab:x", "fa#58;fa-car fab#58;x"),
        ("诊断 (ok)]", "诊断 (ok)]"),
    ],
)
def test_d6_labels_are_text_and_nothing_else(name: str, label: str) -> None:
    [line] = named(name)
    assert line.partition("(((")[2] == f'"{label}")))'
    document = Document(place("d"), name, name, {}, ())
    assert mermaid(document) == f"%% {label} {label}\nflowchart TB\n"


def test_d6_a_long_name_is_cut() -> None:
    [line] = named("x" * 500)
    assert len(line) < 700
    assert "…" in line


@settings(max_examples=100, deadline=None)
@given(documents())
def test_d6_each_placement_entry_and_route_has_one_line(document: Document) -> None:
    head, chart, *lines = mermaid(document).removesuffix("\n").split("\n")
    assert (head[:2], chart) == ("%%", "flowchart TB")
    assert not [line for line in lines if not LINE.fullmatch(line)]
    drawn = {" --> ": len(document.entrypoints), " -->|": len(document.routes)}
    nodes = [line for line in lines if " -->" not in line]
    assert len(nodes) == len(document.placements) + len(document.entrypoints)
    assert {way: sum(way in line for line in lines if " -->" in line and line not in nodes)
            for way in drawn} == drawn  # fmt: skip
    ids = [re.match(r"\s*(\w+)", node)[1].lower() for node in nodes]  # type: ignore[index]
    assert len(set(ids)) == len(ids)
    ends = [n for n, p in enumerate(document.placements) if isinstance(p, Terminal)]
    for n in ends:
        id = re.match(r"\s*(\w+)", nodes[len(document.entrypoints) + n])[1]  # type: ignore[index]
        assert not [line for line in lines if line.startswith(f"  {id} -->")]


def test_d6_a_document_that_is_not_registered_is_said_not_to_be() -> None:
    what = "no document #apos;other#apos; is registered"
    expected = f'%% {what}\nflowchart TB\n  unknown["{what}"]\n'
    assert (
        mermaid("other") == mermaid("other", Documents()) == mermaid("other", known()) == expected
    )


def test_d6_a_registered_document_is_drawn_by_name_or_iri() -> None:
    document = sample(single("first", done="end"), terminal())
    held = known().register(document)
    assert mermaid("sample", held) == mermaid(document.id, held) == mermaid(document)


def test_d6_a_route_to_nowhere_is_drawn_as_such() -> None:
    document = sample(single("first", done="gone", error="gone"), first="lost")
    assert mermaid(document).splitlines()[3:] == [
        '  first["first"]',
        '  missing["no placement lost"]',
        '  missing_2["no placement urn:sag:dag:sample:gone"]',
        "  entry_main --> missing",
        '  first -->|"done"| missing_2',
        '  first -->|"error"| missing_2',
    ]
