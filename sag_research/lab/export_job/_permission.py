"""Who may do what: a file that its owner may change while a task is under way."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sag_research.errors import SagError
from sag_research.lab.export_job._evidence import create_once
from sag_research.lab.export_job.request import TaskRequest

__all__ = ["PermissionRevokedError", "authorise", "grant"]


class PermissionRevokedError(SagError):
    """The one who asked may not, or may not any more."""


class _Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str
    principal: str
    modes: tuple[str, ...]


class _Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    grants: tuple[_Grant, ...]


def grant(path: Path, request: TaskRequest) -> None:
    """Write a policy file that allows a request, unless there is a file."""
    if not path.exists():
        allowed = _Grant(request.tenant, request.principal, (request.mode,))
        create_once(path, msgspec.json.encode(_Policy((allowed,))))


def authorise(path: Path, request: TaskRequest) -> None:
    """Let a request pass, or raise.

    Raises
    ------
    PermissionRevokedError
        If the policy file does not allow it; also if it is missing or cannot be read.
    """
    try:
        policy = msgspec.json.decode(path.read_bytes(), type=_Policy)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PermissionRevokedError(f"{path.name} allows nothing", why=str(error)) from None
    for one in policy.grants:
        same = (one.tenant, one.principal) == (request.tenant, request.principal)
        if same and request.mode in one.modes:
            return
    raise PermissionRevokedError(
        f"{request.principal} of {request.tenant} may not {request.mode} {request.job_id}",
        fix=f"ask the owner of {path.name}",
    )
