"""Tests that every trajectory format should pass, ours and those of others.

Derive a class in a test file and say what the format is and how an example of it is written;
pytest then runs the checks. Nothing here needs pytest to be imported.

Examples
--------
>>> from sag_research.ingest.conformance import FormatConformance
>>> class TestMyAgent(FormatConformance):
...     def format(self):
...         return MyAgent()
...
...     def examples(self, folder):
...         path = folder / "run.myagent.json"
...         path.write_text('{"my_agent": 1, "turns": []}', encoding="utf-8")
...         return [path]
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._events import step_payload
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._source import HEAD_BYTES, Source
from sag_research.ingest._walk import find
from sag_research.ingest.formats import FORMATS, recognise
from sag_research.model import OUTCOMES, TERMINAL_TYPES, Step, Trajectory, Usage

__all__ = ["FormatConformance"]

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOBODYS: Final = (
    b"", b" \n", b"{}", b"[]", b"null", b"[[]]", b'{"a": 1}', b'[{"a": 1}]', b'{"a": {"b": []}}',
    b'{"resolved_ids": ["t"], "total_instances": 1}', b"<html><body>{}</body></html>",
    b"\x89PNG\r\n\x1a\n", b"%PDF-1.7", b"\xff\xfe\x00", b"just words\nand words\n",
)  # fmt: skip
"""Contents that are no trajectory of anyone."""
_ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 2**70, 1.5, "", "x", "half \ud835", "\x00", [], {}, [None], {"": None}, [[]],
)  # fmt: skip
"""Values that stand in a damaged file where others are expected."""
_DEEP: Final = 20_000


class FormatConformance:
    """Checks that a trajectory format keeps the promises of :class:`Format`.

    Override :meth:`format` and :meth:`examples`, and :attr:`damages` if reading is slow. The
    checks are methods named ``test_…`` that take pytest's ``tmp_path``.
    """

    damages = 60
    """Damaged copies of each example that are read, by bytes and by values."""

    def format(self) -> Format:
        """Return the format that is checked."""
        raise NotImplementedError

    def examples(self, folder: Path) -> list[Path]:
        """Write valid sources with one run or more into an empty folder; return their paths.

        A source is a file, or a folder of files that are read as one source.
        """
        raise NotImplementedError

    # ---- what it is called, and what it claims

    def test_its_name_is_in_kebab_case(self) -> None:
        """A name is what users type behind ``--format``."""
        name = self.format().name
        _require(bool(_NAME.fullmatch(name)), f"the name {name!r} is not in kebab-case")

    def test_it_claims_its_examples(self, tmp_path: Path) -> None:
        """Of all formats it is the one that claims its own files, compressed or not."""
        mine = self.format()
        others = [one for one in FORMATS if one.name != mine.name]
        for source in self._sources(tmp_path):
            found = recognise(source, (*others, mine))
            taken = "no format" if found is None else repr(found.name)
            _require(found is mine, f"{source.name} is taken by {taken}")

    def test_it_claims_nothing_of_nobody(self, tmp_path: Path) -> None:
        """What is no trajectory at all is not claimed, whatever the file is called."""
        mine = self.format()
        sources = self._sources(tmp_path)
        names = [tmp_path / "x.json", *(one.path for one in sources if not one.members)]
        for head in _NOBODYS:
            for path in names:
                claim = mine.sniff(head, path)
                _require(claim == 0, f"claims {head[:40]!r} with {claim}")

    def test_claims_are_numbers_from_0_to_1(self, tmp_path: Path) -> None:
        """Any beginning, cut anywhere or not of this format, gives a number from 0 to 1."""
        mine, rng = self.format(), random.Random(1)
        for source in self._sources(tmp_path):
            head = source.head
            cuts = [head[: rng.randrange(len(head) + 1)] for _ in range(20)]
            for text in (*cuts, *(_damaged(head, rng) for _ in range(20)), b"{" * _DEEP):
                claim = mine.sniff(text, source.path)
                _require(0 <= claim <= 1, f"claims {text[:40]!r} with {claim}")

    # ---- what it reads

    def test_its_examples_are_runs(self, tmp_path: Path) -> None:
        """Each example has runs, each with a task, and with an id of its own in the source."""
        for source in self._sources(tmp_path):
            runs, reading = self._read(source)
            _require(bool(runs), f"{source.name}: no run in it")
            _require(not reading.refused, f"{source.name}: refused {reading.refused}")
            _require(isinstance(reading.version, str), f"{source.name}: the version is no text")
            keys = [(run.task_id, run.record) for run in runs]
            _require(len(set(keys)) == len(keys), f"{source.name}: two runs have one id")

    def test_runs_are_made_of_known_values(self, tmp_path: Path) -> None:
        """Texts are texts, amounts are known or None, and words are those of the model."""
        for source in self._sources(tmp_path):
            for run in self._read(source)[0]:
                for fault in _faults(run):
                    _require(False, f"{source.name}: {run.task_id}: {fault}")

    def test_parents_come_before_children(self, tmp_path: Path) -> None:
        """A run that left another one of its source comes behind it, and shares steps it has."""
        for source in self._sources(tmp_path):
            lengths: dict[str | None, int] = {}
            for run in self._read(source)[0]:
                shared = 0
                if run.parent is not None:
                    _require(run.parent in lengths, f"{run.record}: its parent comes later")
                    last = -1 if run.parent_step is None else run.parent_step
                    _require(last < lengths[run.parent], f"{run.record}: shares steps not there")
                    shared = 0 if run.relation == "subagent" else last + 1
                lengths[run.record] = shared + len(run.steps)

    def test_reading_again_gives_the_same(self, tmp_path: Path) -> None:
        """Reading depends on nothing but the source, and changes nothing in it."""
        mine = self.format()
        for source in self._sources(tmp_path):
            before = source.digest
            runs, _ = self._read(source)
            again = [*mine.read(source)], [*self.format().read(_again(source))]
            _require(runs == again[0] == again[1], f"{source.name}: other runs")
            _require(_again(source).digest == before, f"{source.name}: was changed")

    def test_compressed_files_are_read_alike(self, tmp_path: Path) -> None:
        """A source that is packed with gzip has the runs of the plain one."""
        for source in self._sources(tmp_path):
            if source.members or source.path.read_bytes()[:4] != source.head[:4]:
                continue  # a folder, or packed already
            packed = source.path.with_name(f"{source.path.name}.gz")
            packed.write_bytes(gzip.compress(source.path.read_bytes()))
            found = recognise(Source(packed), (self.format(),))
            _require(found is not None, f"{packed.name}: not claimed")
            plain, _ = self._read(source)
            again, _ = self._read(Source(packed))
            _require(
                [run.steps for run in plain] == [run.steps for run in again],
                f"{packed.name}: other steps",
            )

    def test_steps_can_be_written_to_a_log(self, tmp_path: Path) -> None:
        """Every step becomes an event whose texts are valid Unicode."""
        for source in self._sources(tmp_path):
            for run in self._read(source)[0]:
                for step in run.steps:
                    msgspec.json.encode(step_payload(step))

    # ---- what is no source of this format

    def test_damage_gives_runs_or_a_reason(self, tmp_path: Path) -> None:
        """Flipped bytes, cut ends, lost keys and odd values: nothing but FormatError escapes."""
        rng = random.Random(2)
        for number in range(self.damages):
            folder = tmp_path / str(number)
            for source in self._sources(folder):
                for path in source.members[:1] or (source.path,):
                    data = path.read_bytes()
                    path.write_bytes(_damaged(data, rng) if number % 2 else _odd(data, rng))
                self._read_anything(_again(source))

    def test_what_it_does_not_claim_gives_a_reason(self, tmp_path: Path) -> None:
        """Forced on any file, it gives runs or a reason; deep nesting is no way to break it."""
        (tmp_path / "any").mkdir()
        deep = (b"[" * _DEEP, b'{"a":' * _DEEP, b'{"messages":' + b"[" * _DEEP)
        for number, content in enumerate((*_NOBODYS, *deep)):
            path = tmp_path / "any" / f"{number}.json"
            path.write_bytes(content)
            self._read_anything(Source(path))

    # ---- helpers

    def _sources(self, folder: Path) -> list[Source]:
        place = folder / "examples"
        place.mkdir(parents=True)
        paths = self.examples(place)
        _require(bool(paths), "there is no example")
        found = [next(one for one in find([path]) if not one.problem) for path in paths]
        return [Source(one.path, one.name, one.root, one.members) for one in found]

    def _read(self, source: Source) -> tuple[list[Trajectory], Reading]:
        reading = self.format().read(source)
        return [*reading], reading

    def _read_anything(self, source: Source) -> None:
        """Read a source that may be damaged: its runs must be sound, or the reason said."""
        with suppress(FormatError):
            runs, reading = self._read(source)
            for run in runs:
                for fault in _faults(run):
                    _require(False, f"{source.name}: {run.task_id}: {fault}")
            for where, why in reading.refused:
                _require(bool(where and why), f"{source.name}: refused without a reason")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _again(source: Source) -> Source:
    return Source(source.path, source.name, source.root, source.members)


def _is(value: Any, kind: type) -> bool:
    """Tell as :func:`isinstance` does; of what plug-ins give, no type is known."""
    return isinstance(value, kind)


def _faults(run: Any) -> Iterator[str]:
    """Say what in a run is not as the model has it."""
    if not _is(run, Trajectory):
        yield f"{type(run).__name__} is no Trajectory"
        return
    if not (isinstance(run.task_id, str) and run.task_id.strip()):
        yield "it names no task"
    for name in (
        "goal",
        "dataset",
        "repo",
        "agent",
        "model",
        "record",
        "exit_status",
        "submission",
    ):
        if not isinstance(getattr(run, name), str | None) or (name == "goal" and run.goal is None):
            yield f"{name} is no text"
    if run.end is not None and run.end not in TERMINAL_TYPES:
        yield f"{run.end!r} is no end"
    if not isinstance(run.config, dict):
        yield "config is no object"
    if run.outcome is not None:
        if run.outcome.outcome not in OUTCOMES:
            yield f"{run.outcome.outcome!r} is no outcome"
        if (run.outcome.known_at_step or 0) < 0 or not run.outcome.source:
            yield "the outcome has no source, or is known before the first step"
    yield from _amounts(run.usage)
    for number, step in enumerate(run.steps):
        yield from (f"step {number}: {fault}" for fault in _step_faults(step))


def _step_faults(step: Any) -> Iterator[str]:
    if not _is(step, Step):
        yield f"{type(step).__name__} is no Step"
        return
    texts = {name: getattr(step, name) for name in ("thought", "action", "observation")}
    for place, call in enumerate(step.calls):
        for name in ("id", "name", "text", "observation"):
            texts[f"calls[{place}].{name}"] = getattr(call, name)
        if call.status not in ("ok", "error", "unknown"):
            yield f"calls[{place}]: the status {call.status!r}"
        if not isinstance(call.exit_code, int | None):
            yield f"calls[{place}]: the exit code is no whole number"
    yield from (f"{name} is no text" for name, text in texts.items() if not isinstance(text, str))
    for name in ("started", "seconds"):
        value = getattr(step, name)
        if value is not None and not math.isfinite(value):
            yield f"{name} is {value}"
    if not all(isinstance(flag, str) and flag for flag in step.flags):
        yield "a flag is no word"
    yield from _amounts(step.usage)


def _amounts(usage: Usage | None) -> Iterator[str]:
    """An amount is above zero, or is really counted as zero; it is never below, and finite."""
    for name in () if usage is None else ("tokens_in", "tokens_out", "cost_usd"):
        value = getattr(usage, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            yield f"{name} is {value}"


# ---- damage


def _damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut out, double or put in bytes; or cut off the end."""
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        place = rng.randrange(len(spoilt) + 1)
        some = rng.randrange(1, 40)
        match rng.randrange(5):
            case 0 if place < len(spoilt):
                spoilt[place] ^= 1 << rng.randrange(8)
            case 1:
                del spoilt[place : place + some]
            case 2:
                spoilt[place:place] = spoilt[place : place + some]
            case 3:
                spoilt[place:place] = rng.randbytes(some)
            case _:
                del spoilt[max(place, 1) :]
    return bytes(spoilt)


def _odd(data: bytes, rng: random.Random) -> bytes:
    """Put odd values into JSON, or lose some of it; of JSON lines, in one line."""
    lines = data.split(b"\n")
    number = rng.randrange(len(lines))
    for place, text in ((number, lines[number]), (None, data)):
        with suppress(ValueError):
            value = _with_odd(json.loads(text), rng)
            changed = json.dumps(value, ensure_ascii=rng.random() < 0.5)
            encoded = changed.encode("utf-8", "surrogatepass")
            if place is None:
                return encoded
            return b"\n".join((*lines[:place], encoded, *lines[place + 1 :]))
    return _damaged(data[:HEAD_BYTES], rng) + data[HEAD_BYTES:]


def _with_odd(value: Any, rng: random.Random) -> Any:
    """Walk down from the root and change what is there when the walk ends."""
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        key = rng.choice([*value] if isinstance(value, dict) else range(len(value)))
        if rng.random() < 0.1:
            del value[key]
        else:
            value[key] = _with_odd(value[key], rng)
        return value
    return rng.choice(_ODD)
