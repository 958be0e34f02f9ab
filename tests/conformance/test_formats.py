"""All our formats run the suite that formats of others can run."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import FORMATS, Format, Reading, Source
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import by_name
from sag_research.model import Call, Outcome, Step, Trajectory, Usage
from tests.ingest import make
from tests.ingest.formats import claude_make as claude
from tests.ingest.formats import inspect_make as logs
from tests.ingest.formats import langgraph_make as langgraph
from tests.ingest.formats import openhands_make as oh
from tests.ingest.formats import rows_make as rows
from tests.ingest.formats import spans_make as spans
from tests.ingest.formats import test_activegraph as activegraph
from tests.ingest.formats import test_aider as aider
from tests.ingest.formats import test_atif as atif
from tests.ingest.formats import test_codex as codex
from tests.ingest.formats import test_copilot_cli as copilot_cli
from tests.ingest.formats import test_cursor as cursor
from tests.ingest.formats import test_gemini_cli as gemini_cli
from tests.ingest.formats import test_harbor as harbor
from tests.ingest.formats import test_intercode as intercode
from tests.ingest.formats import test_moatless as moatless
from tests.ingest.formats import test_openclaw as openclaw
from tests.ingest.formats import test_opencode as opencode
from tests.ingest.formats import test_otel as otel
from tests.ingest.formats import test_reflexion as reflexion
from tests.ingest.formats import test_tables as tables
from tests.ingest.formats import test_tau2 as tau2
from tests.ingest.formats import test_terminal_bench as terminal_bench

COUNT = itertools.count()
Examples = Callable[[Path], list[Path]]


def file(name: str, value: Any) -> Examples:
    return lambda folder: [make.write(folder / name, value)]


def every_container(*data: dict[str, Any]) -> Examples:
    return lambda folder: [
        rows.container(folder / "rows", [*data], kind) for kind in rows.CONTAINERS
    ]


def lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def openhands_folder(folder: Path) -> list[Path]:
    events = [
        oh.said("u1", "Mend it."),
        oh.act("a1", "ls", "r1"),
        oh.got("o1", "call-a1", "a.py"),
        oh.said("m1", "Done.", "agent"),
    ]
    return [oh.write_events(folder / "org__repo-1", events)]


RETRY = {
    "attempts": [make.swe_file(), make.swe_file()],
    **make.swe_file(),
    "info": {"best_attempt_idx": 1},
}

EXAMPLES: dict[str, list[Examples]] = {
    "swe-agent": [file("org__repo-1.traj", make.swe_file()), file("org__repo-1.traj", RETRY)],
    "mini-swe-agent": [
        file("org__repo-1.traj.json", make.mini_file()),
        file("a.json", make.mini_file()["messages"]),
    ],
    "tau-bench": [file("results.json", [make.tau_result(0), make.tau_result(1)])],
    "native": [file("a.jsonl", lines(make.native("a"), make.native("b")))],
    "openhands": [file("events.json", oh.v0_events())],
    "openhands-sdk": [openhands_folder],
    "openhands-output": [file("output.jsonl", lines(oh.record(), oh.record()))],
    "openhands-completions": [file(f"org__repo-1/{oh.MODEL_FILE}", oh.completion())],
    "nebius-swe-agent": [every_container(rows.nebius(), rows.nebius(target=True), rows.nebius())],
    "nebius-openhands": [every_container(rows.rebench(), rows.rebench(resolved=0), rows.rebench())],
    "swe-smith": [every_container(*map(rows.smith, ("tool", "xml", "ticks")))],
    "swe-gym": [every_container(rows.gym(), rows.gym(resolved=False), rows.gym())],
    "openai-chat": [
        every_container({"messages": rows.chat()}, {"messages": rows.chat()}),
        file("one.json", {"id": "a", "messages": rows.chat(), "metadata": {"resolved": True}}),
    ],
    "inspect": [
        file("log.json", logs.log(logs.sample())),
        lambda folder: [make.write(folder / "log.eval", logs.zipped(logs.entries(logs.sample())))],
    ],
    "atif": [file("trajectory.json", atif.trajectory())],
    "tau2": [file("results.json", tau2.results(tau2.simulation(), tau2.simulation(task_id="1")))],
    "intercode": [
        file("turns.json", {"0": intercode.episode(), "1": intercode.episode(task_id=1)}),
        file("person.json", {"7": intercode.of_a_person()}),
    ],
    "aider": [
        file("own__repo-1.md", (aider.edited("Applied edit to mend.py") + aider.talk()).encode())
    ],
    "harbor": [
        lambda folder: [harbor.trial(folder / "t__a", harbor.result(), atif.trajectory())],
        lambda folder: [harbor.trial(folder / "t__b", harbor.result(0.0))],
    ],
    "terminal-bench": [file("results.json", terminal_bench.result())],
    "moatless": [
        file("tree.json", moatless.FORKED),
        file("loop.json", moatless.loop(moatless.state(1, moatless.action()))),
    ],
    "reflexion": [
        file("env_results_trial_1.json", [reflexion.environment(), reflexion.environment(1)])
    ],
    "claude-code": [
        file("session.jsonl", claude.lines(*claude.family())),
        file("claude-code.txt", claude.lines(*claude.streamed())),
    ],
    "langgraph": [
        lambda folder: [langgraph.forked(folder / "checkpoints.sqlite")],
        lambda folder: [langgraph.talk(folder / "talk.db")],
    ],
    "openinference": [
        file("trace.json", spans.otlp(*spans.trace())),
        file("trace.jsonl", spans.lines(*map(spans.sdk_python, spans.trace()))),
    ],
    "otel-genai": [
        file("trace.json", spans.otlp(*otel.numbered())),
        file("spans.json", [spans.sdk_js(one) for one in otel.vercel()]),
    ],
    "activegraph": [
        file(
            "runtime_events.jsonl",
            activegraph.lines(
                activegraph.batch(activegraph.simulation(), activegraph.simulation(30, "t2"))
            ),
        )
    ],
}
"""How examples of each format are written."""


@pytest.fixture(
    params=[(name, place) for name in EXAMPLES for place in range(len(EXAMPLES[name]))],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def example(request: pytest.FixtureRequest) -> tuple[str, Examples]:
    name, place = request.param
    return name, EXAMPLES[name][place]


class TestFormats(FormatConformance):
    """Each check runs on each example."""

    damages = 24

    @pytest.fixture(autouse=True)
    def _chosen(self, example: tuple[str, Examples]) -> None:
        self._name, self._examples = example

    def format(self) -> Format:
        return by_name(self._name)

    def examples(self, folder: Path) -> list[Path]:
        return self._examples(folder)


def test_no_format_is_left_out() -> None:
    """These run the suite in the files with their own tests."""
    own = [
        codex.TestConformance, copilot_cli.TestEvents, cursor.TestStream,
        gemini_cli.TestConformance, openclaw.TestTelemetry, opencode.TestExport,
        tables.TestConformance,
    ]  # fmt: skip
    assert all(issubclass(one, FormatConformance) for one in own)
    names = [*EXAMPLES, *(one().format().name for one in own)]
    assert sorted(names) == sorted(one.name for one in FORMATS)


# ---- a suite that nothing fails is none


class Broken:
    """A format that keeps its promises, unless a test breaks one."""

    name = "broken"

    def __init__(self, **broken: Any) -> None:
        self.__dict__.update(broken)

    def sniff(self, head: bytes, path: Path) -> float:
        return 0.9 if b'"broken_format"' in head else 0.0

    def read(self, source: Source) -> Reading:
        try:
            value = json.loads(source.bytes())
        except (ValueError, RecursionError):
            raise FormatError("no JSON") from None
        if not isinstance(value, dict):
            raise FormatError("no object")
        return Reading("1", self.runs(source))

    def runs(self, source: Source) -> Iterator[Trajectory]:
        yield Trajectory(task_id="t", record="0", steps=(Step(action="ls"),))
        yield Trajectory(task_id="t", record="1", parent="0", parent_step=0)


def suite(broken: Broken) -> FormatConformance:
    class Suite(FormatConformance):
        damages = 6

        def format(self) -> Format:
            return broken

        def examples(self, folder: Path) -> list[Path]:
            return file("a.json", {"broken_format": 1})(folder)

    return Suite()


CHECKS = [name for name in vars(FormatConformance) if name.startswith("test_")]


def failing(broken: Broken, tmp_path: Path) -> set[str]:
    """Names of the checks that a format fails."""
    found = set()
    for name in CHECKS:
        folder = tmp_path / name
        folder.mkdir()
        check = getattr(suite(broken), name)
        try:
            check(*([folder] if check.__code__.co_argcount > 1 else []))
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            found.add(name)
    return found


def once(**more: Any) -> Any:
    return lambda source: iter([Trajectory(**{"task_id": "t", **more})])


def raises(*_: Any) -> Any:
    raise KeyError("x")


def test_a_format_that_keeps_its_promises_passes(tmp_path: Path) -> None:
    assert failing(Broken(), tmp_path) == set()


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ({"name": "Broken Format"}, "test_its_name_is_in_kebab_case"),
        ({"sniff": lambda head, path: 0.0}, "test_it_claims_its_examples"),
        ({"sniff": lambda head, path: 0.9}, "test_it_claims_nothing_of_nobody"),
        ({"sniff": lambda head, path: 1.5}, "test_claims_are_numbers_from_0_to_1"),
        ({"runs": lambda source: iter(())}, "test_its_examples_are_runs"),
        ({"runs": lambda source: iter([Trajectory(task_id="t")] * 2)},
         "test_its_examples_are_runs"),
        ({"runs": once(task_id=" ")}, "test_runs_are_made_of_known_values"),
        ({"runs": once(goal=None)}, "test_runs_are_made_of_known_values"),
        ({"runs": once(end="run.ended")}, "test_runs_are_made_of_known_values"),
        ({"runs": once(usage=Usage(tokens_in=-1))}, "test_runs_are_made_of_known_values"),
        ({"runs": once(outcome=Outcome(outcome="failure"))}, "test_runs_are_made_of_known_values"),
        ({"runs": once(steps=(Step(action=None),))}, "test_runs_are_made_of_known_values"),
        ({"runs": once(steps=({},))}, "test_runs_are_made_of_known_values"),
        ({"runs": once(steps=(Step(calls=(Call(status="good"),)),))},
         "test_runs_are_made_of_known_values"),
        ({"runs": once(steps=(Step(seconds=math.nan),))}, "test_runs_are_made_of_known_values"),
        ({"runs": once(parent="9")}, "test_parents_come_before_children"),
        ({"runs": lambda source: once(goal=str(next(COUNT)))(source)},
         "test_reading_again_gives_the_same"),
        ({"runs": lambda source: once(steps=(Step(action=source.path.suffix),))(source)},
         "test_compressed_files_are_read_alike"),
        ({"runs": once(steps=(Step(state={1: object}),))}, ""),
        ({"read": raises}, "test_damage_gives_runs_or_a_reason"),
        ({"read": raises}, "test_what_it_does_not_claim_gives_a_reason"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found(tmp_path: Path, broken: dict[str, Any], check: str) -> None:
    found = failing(Broken(**broken), tmp_path)
    assert check in found if check else not found


def test_the_suite_needs_no_pytest() -> None:
    code = "import sys, sag_research.ingest.conformance; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
