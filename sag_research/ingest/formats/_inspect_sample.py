"""From one sample of an Inspect log to its runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._inspect_events import Events
from sag_research.ingest.formats._inspect_json import take
from sag_research.ingest.formats._inspect_score import outcome_of, scales
from sag_research.ingest.formats._inspect_text import Attachments, spoken
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.model import Outcome, Trajectory

__all__ = ["Log", "Sample", "read_sample"]


class Sample(msgspec.Struct):
    """A sample as it stands in a log; its events stay undecoded."""

    id: Any = None
    epoch: Any = None
    input: Any = None
    choices: Any = None
    target: Any = None
    sandbox: Any = None
    metadata: Any = None
    messages: list[msgspec.Raw] | None = None
    output: Any = None
    score: Any = None
    scores: Any = None
    events: list[msgspec.Raw] | None = None
    model_usage: Any = None
    started_at: Any = None
    completed_at: Any = None
    total_time: Any = None
    working_time: Any = None
    uuid: Any = None
    error: Any = None
    limit: Any = None
    error_retries: list[msgspec.Raw] | None = None
    invalidation: Any = None
    attachments: Any = None
    message_pool: list[msgspec.Raw] | None = None
    events_data: msgspec.Raw = msgspec.Raw(b"{}")


class _Pools(msgspec.Struct):
    messages: list[msgspec.Raw] | None = None


class _Retry(msgspec.Struct):
    message: Any = None
    events: list[msgspec.Raw] | None = None


_SAMPLE: Final = msgspec.json.Decoder(Sample)
_POOLS: Final = msgspec.json.Decoder(_Pools)
_RETRY: Final = msgspec.json.Decoder(_Retry)
_KEPT: Final = (
    "target", "choices", "metadata", "model_usage", "started_at", "completed_at", "total_time",
    "working_time", "uuid", "limit", "invalidation",
)  # fmt: skip


class Log(msgspec.Struct):
    """What a log says of all its samples."""

    version: Any = None
    status: Any = None
    eval: Any = None
    plan: Any = None
    results: Any = None
    invalidated: Any = None
    samples: list[msgspec.Raw] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """The evaluation's own description."""
        return mapping(self.eval)

    @property
    def release(self) -> str:
        """Version of Inspect, or of the log's schema."""
        packages = mapping(self.about.get("packages"))
        release = shared.word(packages.get("inspect_ai"))
        return release or f"log {shared.integer(self.version) or 'of unknown version'}"

    @property
    def task(self) -> str:
        """Name of the task that was evaluated."""
        return shared.word(self.about.get("task")) or "inspect"

    @property
    def agent(self) -> str | None:
        """The solver that was named, or the last one of the plan."""
        solver = self.about.get("solver")
        steps = mapping(self.plan).get("steps")
        last = mapping(steps[-1]) if isinstance(steps, list) and steps else {}
        return shared.word(solver) or shared.word(last.get("solver"))

    @property
    def config(self) -> dict[str, Any]:
        """What is kept of the evaluation with each run."""
        names = ("task_args", "solver_args", "model_args", "eval_id", "run_id", "created", "tags")
        about = {name: self.about[name] for name in names if self.about.get(name)}
        return about | ({"status": self.status} if shared.word(self.status) else {})


def read_sample(
    data: bytes | msgspec.Raw, log: Log, names: set[str], notes: list[str]
) -> Iterator[Trajectory]:
    """Yield the runs of a sample: earlier attempts, the agent's own, and those it called.

    Parameters
    ----------
    data : bytes or Raw
    log : Log
    names : set of str
        Records that are taken; those of this sample are added.
    notes : list of str
        Receives what was left out.

    Raises
    ------
    FormatError
        If the bytes are no sample.
    """
    sample = take(data, _SAMPLE)
    record = _unique(f"{key(sample.id) or 'sample'}_{shared.integer(sample.epoch) or 1}", names)
    reader = _Reader(sample, log, record)
    yield from reader.earlier()
    yield from reader.runs()
    notes += reader.notes


def _unique(record: str, names: set[str]) -> str:
    found, number = record, 1
    while found in names:
        number += 1
        found = f"{record}.{number}"
    names.add(found)
    return found


class _Reader:
    def __init__(self, sample: Sample, log: Log, record: str) -> None:
        self.notes: list[str] = []
        self._sample, self._log, self._record = sample, log, record
        self._texts = Attachments(sample.attachments)
        self._pool = sample.message_pool or self._pooled(sample.events_data)
        metadata = mapping(sample.metadata)
        self._about: dict[str, Any] = {
            "task_id": f"{log.task}:{key(sample.id) or 'sample'}",
            "dataset": shared.word(mapping(log.about.get("dataset")).get("name")) or log.task,
            "repo": shared.word(metadata.get("repo")),
            "attempt": shared.integer(sample.epoch),
        }

    def _pooled(self, raw: msgspec.Raw) -> list[msgspec.Raw]:
        try:
            return take(raw, _POOLS).messages or []
        except FormatError:
            return []

    # ---- runs

    def runs(self) -> Iterator[Trajectory]:
        """Yield the agent's run, then those that it called or that branched off."""
        events = Events(self._texts, self._pool)
        events.take(self._sample.events or [])
        messages = self._sample.messages or []
        if events.main.turns.all:
            events.main.hear(events.behind(messages, reversed(range(len(messages)))))
        else:
            events.said(messages)
        main = self._main(events)
        yield main
        yield from self._children(events, self._record)
        self._note(events, self._record)

    def _main(self, events: Events) -> Trajectory:
        error = mapping(self._sample.error)
        goal = _asked(self._texts.put_back(self._sample.input))
        limit = mapping(self._sample.limit).get("type") or events.limit
        stop = f"{limit}_limit" if shared.word(limit) else events.main.stop
        return Trajectory(
            **self._about,
            record=self._record,
            goal=goal or "\n".join(events.main.opening),
            agent=self._log.agent,
            model=shared.word(self._log.about.get("model")) or events.main.model,
            steps=events.main.steps(),
            end="run.failed" if error else "run.completed",
            exit_status="error" if error else stop,
            outcome=self._outcome(bool(error)),
            config=self._config(events, error),
        )

    def _config(self, events: Events, error: dict[str, Any]) -> dict[str, Any]:
        kept = {name: getattr(self._sample, name) for name in _KEPT}
        kept["scores"] = self._scores()
        kept["system"] = "\n".join(events.main.system)
        kept["orphans"] = events.main.orphans
        kept["events"] = dict(sorted(events.counts.items()))
        kept["failed_calls"] = events.main.failed
        kept["compactions"] = events.main.compactions
        kept["error"] = shared.text_of(error.get("message"))
        found = {name: self._texts.put_back(value) for name, value in kept.items() if value}
        return self._log.config | found

    def _children(self, events: Events, record: str) -> Iterator[Trajectory]:
        named = {id(events.main): (record, 0)}  # of each run, its steps that are a parent's
        for number, (run, parent, own) in enumerate(events.kept(), start=1):
            forked = run.relation == "fork"
            called_by, before = named[id(parent)]
            step = before + own
            name = f"{record}.{'branch' if forked else 'agent'}{number}"
            named[id(run)] = (name, step + 1 if forked else 0)
            yield Trajectory(
                **self._about,
                record=name,
                goal="\n".join(run.opening),
                agent=run.name,
                model=run.model,
                steps=run.steps(),
                exit_status=run.stop,
                parent=called_by,
                parent_step=step,
                relation=run.relation,
                config=self._log.config | {"span": run.name},
            )

    def earlier(self) -> Iterator[Trajectory]:
        """Yield the attempts that ended in an error and were made again."""
        for number, raw in enumerate(self._sample.error_retries or [], start=1):
            try:
                retry = take(raw, _RETRY)
            except FormatError:
                self.notes.append(f"{self._record}: attempt {number} could not be read")
                continue
            events = Events(self._texts, self._pool)
            events.take(retry.events or [])
            record = f"{self._record}.attempt{number}"
            if not events.main.turns.all:
                self.notes.append(f"{record} ended in an error before the model replied")
                continue
            yield self._attempt(events, record, shared.text_of(retry.message))
            yield from self._children(events, record)
            self._note(events, record)

    def _attempt(self, events: Events, record: str, message: str) -> Trajectory:
        return Trajectory(
            **self._about,
            record=record,
            goal=_asked(self._texts.put_back(self._sample.input)),
            agent=self._log.agent,
            model=shared.word(self._log.about.get("model")) or events.main.model,
            steps=events.main.steps(),
            end="run.failed",
            exit_status="error",
            outcome=Outcome(outcome="unknown", detail="infra", source="inspect error"),
            config=self._log.config | {"retried_as": self._record, "error": message},
        )

    def _note(self, events: Events, record: str) -> None:
        events.notes["calls of the model failed"] += events.main.failed
        events.notes["results come before the first reply"] += len(events.main.orphans)
        events.notes["attachments are missing"] += self._texts.missing
        self._texts.missing = 0
        self.notes += [f"{record}: {n} {what}" for what, n in events.notes.items() if n]

    # ---- the outcome

    def _scores(self) -> dict[str, Any]:
        if self._sample.scores or not self._sample.score:
            return mapping(self._sample.scores)
        return {"score": self._sample.score}  # the first logs had one scorer

    def _outcome(self, failed: bool) -> Outcome | None:
        scores = self._scores()
        found = outcome_of(scores, scales(self._log.results))
        options = mapping(self._log.about.get("config"))
        if self._sample.invalidation or self._log.invalidated is True:
            return _unknown(found, "invalidated")
        if failed and not (found and options.get("score_on_error") is True):
            return _unknown(found, "infra")
        return found


def _unknown(found: Outcome | None, detail: str) -> Outcome:
    source = found.source if found else "inspect error"
    score = found.score if found else None
    return Outcome(outcome="unknown", detail=detail, score=score, source=source)


def _asked(given: Any) -> str:
    """Return the question of a sample, which may be a conversation: what the user says in it."""
    if not isinstance(given, list):
        return spoken(given)
    messages = [one for one in given if isinstance(one, dict)]
    said = [spoken(one.get("content")) for one in messages if one.get("role") == "user"]
    return "\n".join(said)
