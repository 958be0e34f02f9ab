"""The words of the field as plain, frozen records.

Nothing here touches a file. All records are :class:`msgspec.Struct`, so they are cheap to
make, compare by value and convert to and from JSON.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

__all__ = [
    "ENTITY_KINDS",
    "FIELDS",
    "OUTCOMES",
    "TERMINAL_TYPES",
    "WORKSPACE_RUN",
    "Call",
    "Entity",
    "EntityKind",
    "Event",
    "Field",
    "Mention",
    "Outcome",
    "OutcomeName",
    "Relation",
    "Role",
    "Run",
    "Step",
    "Trajectory",
    "Usage",
]

WORKSPACE_RUN: Final = "@workspace"
"""Id of the run that holds facts about other runs (labels, sources, annotations)."""

TERMINAL_TYPES: Final = frozenset({"run.completed", "run.failed", "run.abandoned", "run.cancelled"})
"""Types of the event that ends a run. They say why it stopped, never whether it succeeded."""

OutcomeName: TypeAlias = Literal["success", "failure", "unknown"]
EntityKind: TypeAlias = Literal[
    "File", "Module", "Symbol", "Error", "Test", "Command", "Configuration", "System", "Host",
    "Commit",
]  # fmt: skip
Role: TypeAlias = Literal["PROCESSED", "MUTATED"]
Field: TypeAlias = Literal["action", "observation"]

OUTCOMES: Final[tuple[str, ...]] = get_args(OutcomeName)
ENTITY_KINDS: Final[tuple[str, ...]] = get_args(EntityKind)
FIELDS: Final[tuple[str, ...]] = get_args(Field)

SCOPED_KINDS: Final = frozenset({"File", "Module", "Symbol", "Test"})
"""Kinds whose names mean something inside one repository only."""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of an agent (or of an extraction).

    ``run_id``, ``label``, ``attempt``, ``source_id`` and ``created_at`` are the envelope: they
    are not part of the digested history, so the same history written twice has the same digest.
    """

    run_id: str
    goal: str = ""
    kind: str = "agent"
    task_id: str | None = None
    """What was attempted; the group key of every statistic."""
    dataset: str | None = None
    repo: str | None = None
    """Scope of file, module, symbol and test names, e.g. ``django/django``."""
    agent: str | None = None
    model: str | None = None
    config: dict[str, Any] = {}
    """The recorded configuration of the run, as it was found."""
    label: str = ""
    attempt: int | None = None
    """Number of the attempt as the source gives it (0- or 1-based there); see the view ``runs``."""
    source_id: str | None = None
    created_at: float | None = None
    """Seconds since the epoch (UTC); set by the store when absent."""
    parent_id: str | None = None
    fork_position: int = 0
    """The child sees its parent's events 1..fork_position."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the log.

    A new event needs ``run_id``, ``type`` and ``payload``; the store assigns the rest. Events
    read back carry the digest of the history up to and including them.
    """

    run_id: str
    type: str
    payload: dict[str, Any] = {}
    actor: str = "agent"
    cause: int | None = None
    """Position (in this run's lineage) of the event that caused this one."""
    frame: str | None = None
    ts: float | None = None
    """Seconds since the epoch (UTC) when the event was recorded."""
    position: int | None = None
    """1-based number in the run's lineage, ancestors' prefix included."""
    seq: int | None = None
    """Number in the whole log; grows, may have gaps."""
    digest: str | None = None
    """64 hex digits chained over the history up to this event."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens and cost; ``None`` means unknown, never zero."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of a step and what came back."""

    id: str = ""
    name: str = ""
    arguments: Any = None
    """The arguments as the model gave them: an object, or the raw string if it is no JSON."""
    text: str = ""
    """The call as text: what a person would read as the action."""
    observation: str = ""
    status: str = "ok"
    """``ok``, ``error`` or ``unknown``."""
    exit_code: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the model: a reply, its tool calls (0..n) and their observations."""

    thought: str = ""
    action: str = ""
    observation: str = ""
    calls: tuple[Call, ...] = ()
    flags: tuple[str, ...] = ()
    """E.g. ``rejected`` (nothing was run), ``repaired`` (text was not valid Unicode)."""
    usage: Usage | None = None
    started: float | None = None
    """Seconds since the epoch when the turn began, if the source knows."""
    seconds: float | None = None
    """Duration of the turn's tool calls, if the source knows."""
    state: Any = None
    """The environment's own account after the step (e.g. open file, working directory)."""
    raw: dict[str, str] = {}
    """Digest of the blob that holds a field's text before repair, for fields that were repaired."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a label source says of a run."""

    outcome: OutcomeName
    detail: str | None = None
    """``empty``, ``error``, ``infra``, ``partial`` …: why, where the source says."""
    score: float | None = None
    source: str = ""
    """Where the label comes from, e.g. ``report.json`` or ``tau reward``."""
    known_at_step: int | None = None
    """From this step on the outcome stands in the run itself."""


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a format reader yields it, before it is in the log."""

    task_id: str
    steps: tuple[Step, ...] = ()
    goal: str = ""
    dataset: str | None = None
    repo: str | None = None
    agent: str | None = None
    model: str | None = None
    attempt: int | None = None
    record: str | None = None
    """Key or index inside a source of several runs."""
    end: str | None = "run.completed"
    """Type of the terminal event; ``None`` where the source does not say that it ended."""
    exit_status: str | None = None
    submission: str | None = None
    usage: Usage | None = None
    """Totals as the source gives them."""
    outcome: Outcome | None = None
    """Only where the source itself holds a label (e.g. a reward)."""
    parent: str | None = None
    """Record, in the same source and read before, of the run that this one left or serves."""
    parent_step: int | None = None
    """The last step shared with the parent; for a sub-agent, the step that called it."""
    relation: str = "fork"
    """How it left its parent: ``fork``, ``resume``, ``compaction`` …

    A ``subagent`` shares no step.
    """
    config: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    """What the reader had to leave out or could not honour."""


class Entity(msgspec.Struct, frozen=True, order=True):
    """A thing that texts name: one node over all runs.

    Examples
    --------
    >>> Entity("File", "django/django", "setup.py").entity_id
    'File|django/django|setup.py'
    >>> Entity("Error", "", "TimeoutError").entity_id
    'Error||TimeoutError'
    """

    kind: str
    scope: str
    name: str

    @property
    def entity_id(self) -> str:
        """The id used in tables and graphs: kind, scope and name joined by ``|``."""
        return f"{self.kind}|{self.scope}|{self.name}"


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """Where a text names an entity."""

    entity: Entity
    field: str = "observation"
    start: int
    """First code point of the span, 0-based."""
    end: int
    """One past the last code point."""
    role: str = "PROCESSED"
    rule: str = ""


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """A typed edge between two entities, with the rule that found it."""

    source: Entity
    type: str
    target: Entity
    rule: str = ""
