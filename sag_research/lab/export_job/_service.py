"""The export service: a small HTTP application over its own database.

Routes (all under a bare origin; a tenant is named by the header ``X-Tenant``):

=======  ================================  ====================================================
GET      ``/jobs/{id}``                    state, error, retries, key of the retry operation
GET      ``/jobs/{id}/logs``               the log's lines
GET      ``/jobs/{id}/operations/{key}``   the receipt of what was done under a key
POST     ``/jobs/{id}/retry``              the one effect; JSON ``{key, mode, error}``
GET      ``/jobs/{id}/result``             totals, once completed
GET      ``/jobs/{id}/download``           the CSV file, once completed
GET      ``/portal``                       the same for people, as a page
=======  ================================  ====================================================
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sag_research._text import escape
from sag_research.lab.export_job._database import Database, operation_key
from sag_research.lab.export_job._scenario import Job, load_scenario

__all__ = ["LATE_SECONDS", "application"]

LATE_SECONDS = 1.5
"""How long a late reply takes; a client gives up earlier."""

_GARBAGE = b'{"jobId": "JOB-\xff\xfe'
_HUGE = 10 * 1024 * 1024
_LARGEST_REQUEST = 10_000
_MODE, _ERROR = "recover", "E_TRANSIENT"

_Message: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]


class _Dropped(Response):
    """Begins a reply and cuts the line in its middle."""

    async def __call__(self, scope: Any, receive: Any, send: _Send) -> None:
        """Promise a hundred bytes, send one: the server closes the connection."""
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def application(database: Database) -> Starlette:
    """Return the service over a database.

    Parameters
    ----------
    database : Database
        Must hold a job, see :meth:`Database.reset`.
    """
    service = _Service(database)
    routes = [
        Route("/jobs/{job_id}", service.told("status", service.status)),
        Route("/jobs/{job_id}/logs", service.told("logs", service.logs)),
        Route("/jobs/{job_id}/operations/{key}", service.told("operation", service.operation)),
        Route("/jobs/{job_id}/retry", service.told("retry", service.retry), methods=["POST"]),
        Route("/jobs/{job_id}/result", service.told("result", service.result)),
        Route("/jobs/{job_id}/download", service.told("download", service.download)),
        Route("/portal", service.told("portal", service.portal)),
        Route("/portal/{job_id}/download", service.told("download", service.download)),
    ]
    return Starlette(routes=routes)


_Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class _Service:
    def __init__(self, database: Database) -> None:
        self.database = database

    def told(self, route: str, answer: _Answer) -> _Answer:
        """Write each request down, and misbehave where a fault was ordered."""

        async def handle(request: Request) -> Response:
            self.database.note_request(request.method, request.url.path)
            kind = self.database.take_fault(route)
            if kind in _FAULTS:
                return await _FAULTS[kind]()
            response = await answer(request)
            return _Dropped() if kind == "drop" else response

        return handle

    def _job(self, request: Request) -> dict[str, Any] | None:
        tenant = request.headers.get("x-tenant", "") or request.query_params.get("tenant", "")
        return self.database.job(request.path_params["job_id"], tenant)

    async def status(self, request: Request) -> Response:
        """State of a job."""
        job = self._job(request)
        if job is None:
            return _error(404, "NOT_FOUND", "no such job")
        return JSONResponse({
            "jobId": job["job_id"], "state": job["state"], "error": job["error"],
            "retries": job["retries"], "operation": operation_key(job["job_id"], job["tenant"]),
        })  # fmt: skip

    async def logs(self, request: Request) -> Response:
        """Lines of a job's log."""
        job = self._job(request)
        if job is None:
            return _error(404, "NOT_FOUND", "no such job")
        return JSONResponse({"jobId": job["job_id"], "lines": job["log"]})

    async def operation(self, request: Request) -> Response:
        """Receipt of an operation."""
        job = self._job(request)
        receipt = None if job is None else self.database.receipt(request.path_params["key"])
        if receipt is None:
            return _error(404, "NO_RECEIPT", "nothing was done under this key")
        return JSONResponse(receipt)

    async def retry(self, request: Request) -> Response:
        """Carry out the one effect, at most once."""
        job = self._job(request)
        if job is None:
            return _error(404, "NOT_FOUND", "no such job")
        asked = await _body(request)
        key = operation_key(job["job_id"], job["tenant"])
        if asked.get("key") != key or asked.get("mode") != _MODE or asked.get("error") != _ERROR:
            return _error(403, "FORBIDDEN", "key, mode or error does not allow a retry")
        kept = self.database.receipt(key)
        if kept is not None:
            return JSONResponse(kept)
        if job["state"] == "completed":
            return JSONResponse({"jobId": job["job_id"], "state": "completed", "effect": False})
        if job["error"] != _ERROR:
            return _error(403, "FORBIDDEN", "this error does not allow a retry")
        return await self._effect(job, key)

    async def _effect(self, job: dict[str, Any], key: str) -> Response:
        reply = load_scenario(job["scenario"]).reply
        if reply == "refuse":
            return _error(503, "UNAVAILABLE", "no storage node is free", retryable=True)
        receipt = self.database.retry(job["job_id"], key)
        if reply == "drop":
            return _Dropped()
        if reply == "late":
            await anyio.sleep(LATE_SECONDS)
        return JSONResponse(receipt)

    async def result(self, request: Request) -> Response:
        """Totals of a completed job."""
        job = self._job(request)
        if job is None:
            return _error(404, "NOT_FOUND", "no such job")
        if job["state"] != "completed":
            return _error(409, "NOT_COMPLETED", "the export has no result yet")
        export = _as_job(job)
        return JSONResponse({
            "jobId": export.job_id, "quantity": export.quantity, "unitCents": export.unit_cents,
            "totalCents": export.total_cents, "csv": export.csv,
        })  # fmt: skip

    async def download(self, request: Request) -> Response:
        """The file of a completed job."""
        job = self._job(request)
        if job is None:
            return _error(404, "NOT_FOUND", "no such job")
        if job["state"] != "completed":
            return _error(409, "NOT_COMPLETED", "the export has no file yet")
        name = f'attachment; filename="{job["job_id"]}.csv"'
        headers = {"content-disposition": name}
        return PlainTextResponse(_as_job(job).csv, media_type="text/csv", headers=headers)

    async def portal(self, request: Request) -> Response:
        """Page for people: find a job, see its state, download its file."""
        query = request.query_params
        tenant, job_id = query.get("tenant", ""), query.get("jobId", "")
        return HTMLResponse(_page(tenant, job_id, self.database.job(job_id, tenant)))


def _as_job(row: dict[str, Any]) -> Job:
    names = ("job_id", "tenant", "quantity", "unit_cents")
    return Job(**{name: row[name] for name in names})


def _error(status: int, code: str, message: str, *, retryable: bool = False) -> Response:
    body = {"error": {"code": code, "message": message, "retryable": retryable}}
    return JSONResponse(body, status_code=status)


async def _body(request: Request) -> dict[str, Any]:
    """Return the request's JSON object; anything else is an empty one, which allows nothing."""
    read = b""
    async for part in request.stream():
        read += part
        if len(read) > _LARGEST_REQUEST:
            return {}
    try:
        asked = json.loads(read)
    except (ValueError, RecursionError):
        return {}
    return asked if isinstance(asked, dict) else {}


async def _garbage() -> Response:
    return Response(_GARBAGE, media_type="application/json")


async def _huge() -> Response:
    return Response(b" " * _HUGE, media_type="application/json")


async def _unavailable() -> Response:
    return _error(503, "UNAVAILABLE", "try later", retryable=True)


async def _slow() -> Response:
    await anyio.sleep(LATE_SECONDS)
    return _error(503, "UNAVAILABLE", "that took long", retryable=True)


async def _moved() -> Response:
    return Response(status_code=302, headers={"location": "http://127.0.0.1:9/elsewhere"})


_FAULTS: dict[str, Callable[[], Awaitable[Response]]] = {
    "garbage": _garbage, "huge": _huge, "unavailable": _unavailable, "slow": _slow,
    "redirect": _moved,
}  # fmt: skip


def _page(tenant: str, job_id: str, job: dict[str, Any] | None) -> str:
    found = ""
    if job is not None:
        found = f"<p>{escape(job['job_id'])}: {escape(job['state'])} {escape(job['error'])}</p>"
        if job["state"] == "completed":
            link = f"/portal/{escape(job['job_id'])}/download?tenant={escape(tenant)}"
            found += f'<p><a href="{link}">Download CSV</a></p>'
    elif job_id:
        found = f"<p>No job {escape(job_id)}</p>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Exports</title>'
        '<form method="get" action="/portal">'
        f'<input type="hidden" name="tenant" value="{escape(tenant)}">'
        '<label>Job ID <input name="jobId"></label> <button>Find</button></form>'
        f"{found}</html>"
    )
