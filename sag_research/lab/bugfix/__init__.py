"""Bug fixing in small repositories: a world, scripted models, and the data set made with them.

>>> from sag_research.lab.bugfix import BugfixWorld, ScriptedPolicy, run_episode
>>> with BugfixWorld("kestrel__logscan-26") as world:
...     episode = run_episode(world, ScriptedPolicy(world.task, "scripted-a", seed=3))
>>> episode.task_id, episode.model
('kestrel__logscan-26', 'scripted-a')
"""

from __future__ import annotations

from sag_research.lab.bugfix._episode import Episode, Step, run_episode
from sag_research.lab.bugfix._tasks import Edit, Task, load_task, task_ids
from sag_research.lab.bugfix._truth import lost_at, trapped_at
from sag_research.lab.bugfix.fixer import ScriptedFixer
from sag_research.lab.bugfix.local import LocalFixer
from sag_research.lab.bugfix.play import carry_on, judge
from sag_research.lab.bugfix.policy import Profile, ScriptedPolicy, Turn, profile, profile_names
from sag_research.lab.bugfix.world import (
    BugfixWorld,
    Observation,
    Snapshot,
    Verdict,
    parse,
    render,
)

__all__ = [
    "BugfixWorld",
    "Edit",
    "Episode",
    "LocalFixer",
    "Observation",
    "Profile",
    "ScriptedFixer",
    "ScriptedPolicy",
    "Snapshot",
    "Step",
    "Task",
    "Turn",
    "Verdict",
    "carry_on",
    "judge",
    "load_task",
    "lost_at",
    "parse",
    "profile",
    "profile_names",
    "render",
    "run_episode",
    "task_ids",
    "trapped_at",
]
