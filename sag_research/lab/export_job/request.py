"""The trusted request: who wants what done to which job, and within which limits."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from sag_research._text import repair
from sag_research.errors import UsageError
from sag_research.lab.export_job.client import check_origin
from sag_research.log import canonical_digest

__all__ = ["TaskRequest"]

Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
_JOB: Final = r"^JOB-[0-9]{1,12}\Z"


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person with the right to do so asked for; nothing a model says can change it.

    Attributes
    ----------
    id : str
        Of the request, and of the run in the log.
    tenant, principal : str
        On whose behalf, and who asked.
    job_id : str
        The one job that may be touched.
    goal : str
        In the person's words and language.
    origin : str
        Of the export service; see :func:`~sag_research.lab.export_job.check_origin`.
    mode : {'recover', 'inspect'}
        Whether the job may be retried.
    delivery : {'api', 'browser'}
        How the exported file is fetched.
    max_steps : int
        Model calls, 1 to 20.
    max_actions : int
        Tool calls, 0 to 20.
    max_repeated_actions : int
        How often one and the same thing may be observed before the run is stopped, 1 to 4.
    deadline_seconds : int
        From the start of the task, pauses included, 1 to 1800.

    Raises
    ------
    UsageError
        If something is not within its limits.
    """

    id: Id
    tenant: Name = "acme"
    principal: Name = "operator"
    job_id: Annotated[str, Meta(pattern=_JOB)] = "JOB-204"
    goal: Annotated[str, Meta(min_length=1, max_length=4000)] = (
        "Get the export done, and report its total."
    )
    origin: str
    mode: Literal["recover", "inspect"] = "recover"
    delivery: Literal["api", "browser"] = "api"
    max_steps: Annotated[int, Meta(ge=1, le=20)] = 12
    max_actions: Annotated[int, Meta(ge=0, le=20)] = 12
    max_repeated_actions: Annotated[int, Meta(ge=1, le=4)] = 3
    deadline_seconds: Annotated[int, Meta(ge=1, le=1800)] = 300

    def __post_init__(self) -> None:
        check_origin(self.origin)
        if repair(self.goal) != self.goal:
            raise UsageError("the goal is no text", why="it holds NUL or half a character")

    @classmethod
    def of(cls, fields: dict[str, Any]) -> TaskRequest:
        """Check plain data and make a request of it.

        Examples
        --------
        >>> TaskRequest.of({"id": "t1", "origin": "https://jobs.example.org"}).max_steps
        12
        """
        try:
            return msgspec.convert(fields, cls, strict=True)
        except msgspec.ValidationError as error:
            why = re.sub(r"\s+", " ", str(error))
            raise UsageError("the request is refused", why=why) from None

    def plain(self) -> dict[str, Any]:
        """Return the request as plain JSON data, every field named."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @property
    def fingerprint(self) -> str:
        """Digest of all fields, which everything that is kept of the task is bound to."""
        return canonical_digest(self.plain())
