"""Write the data set: trajectories, labels, checksums and the data card."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

import msgspec

from sag_research.errors import UsageError
from sag_research.lab.bugfix import _card
from sag_research.lab.bugfix._episode import run_episode
from sag_research.lab.bugfix._tasks import load_task, task_ids
from sag_research.lab.bugfix._traj import compress, document, to_bytes
from sag_research.lab.bugfix.policy import ScriptedPolicy, profile
from sag_research.lab.bugfix.world import BugfixWorld

__all__ = ["ATTEMPTS", "Row", "generate"]

ATTEMPTS: Mapping[str, int] = {"scripted-a": 4, "scripted-b": 3, "scripted-c": 3}
"""Runs per task of each scripted model."""

_SUFFIX = {"scripted-c": ".gz"}
_UNLABELLED = 0.03
_COPIES = 2
_OURS = ("README.md", "SHA256SUMS", "labels.csv", "trajectories")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the data set.

    Attributes
    ----------
    path : str
        Of its file, relative to the data set.
    task_id, model, exit_status, detail : str
    success : bool
        The held-out test's word.
    labelled : bool
        Whether ``labels.csv`` tells.
    steps, size : int
        Turns; bytes of the compressed file.
    digest, content_digest : str
        SHA-256 of the file, and of what is in it.
    """

    path: str
    task_id: str
    model: str
    exit_status: str
    success: bool
    detail: str
    steps: int
    size: int
    digest: str
    content_digest: str
    labelled: bool = True


class _Job(msgspec.Struct, frozen=True):
    task_id: str
    model: str
    attempt: int
    seed: int
    out: str


def generate(
    out: Path,
    *,
    seed: int = 7,
    tasks: Sequence[str] | None = None,
    attempts: Mapping[str, int] = ATTEMPTS,
    jobs: int = 2,
    force: bool = False,
) -> list[Row]:
    """Run every scripted model on every task and write what happened.

    Parameters
    ----------
    out : Path
        Folder to write; it must be empty or absent.
    seed : int
        The same seed and the same Python and pytest give the same bytes.
    tasks : sequence of str, optional
        Ids; all by default.
    attempts : mapping
        Runs per task of each model.
    jobs : int
        Processes.
    force : bool
        Replace an earlier data set in ``out``.

    Returns
    -------
    list of Row
        Sorted by path; exact copies of files are listed like the others.
    """
    _prepare(out, force)
    work = [
        _Job(task, model, number, _seed_of(seed, task, model, number), str(out))
        for task in (tasks if tasks is not None else task_ids())
        for model, count in attempts.items()
        for number in range(1, count + 1)
    ]
    rows = sorted(_run_all(work, jobs), key=lambda row: row.path)
    rows = _leave_out_labels(rows, Random(f"{seed} unlabelled"))
    rows = sorted([*rows, *_copy_some(rows, out)], key=lambda row: row.path)
    _write(out / "labels.csv", _labels(rows))
    _write(out / "README.md", _card.write(rows, seed, dict(attempts)))
    sums = {name: _sha(out / name) for name in ("README.md", "labels.csv")}
    sums |= {row.path: row.digest for row in rows}
    _write(out / "SHA256SUMS", "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    return rows


def _prepare(out: Path, force: bool) -> None:
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(f"{out} is not empty", fix="choose another folder, or pass --force")
    out.mkdir(parents=True, exist_ok=True)
    for name in _OURS:
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _seed_of(seed: int, task: str, model: str, attempt: int) -> int:
    text = f"{seed} {task} {model} {attempt}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def _run_all(work: list[_Job], jobs: int) -> Iterable[Row]:
    if jobs == 1:
        yield from map(_run, work)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for number, row in enumerate(pool.map(_run, work), 1):
            print(f"{number}/{len(work)} {row.path} {row.detail}", file=sys.stderr)
            yield row


def _run(job: _Job) -> Row:
    traits = profile(job.model)
    with BugfixWorld(job.task_id) as world:
        policy = ScriptedPolicy(load_task(job.task_id), traits, job.seed)
        episode = run_episode(world, policy, seed=job.seed)
    content = to_bytes(document(episode, traits, job.seed))
    suffix = _SUFFIX.get(job.model, ".zst")
    path = f"trajectories/{job.model}__attempt-{job.attempt}/{job.task_id}.traj{suffix}"
    target = Path(job.out) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    data = compress(content, suffix)
    target.write_bytes(data)
    return Row(
        path=path,
        task_id=job.task_id,
        model=job.model,
        exit_status=episode.exit_status,
        success=episode.verdict.success,
        detail=episode.verdict.detail,
        steps=len(episode.steps),
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        content_digest=hashlib.sha256(content).hexdigest(),
    )


def _leave_out_labels(rows: list[Row], rng: Random) -> list[Row]:
    """Take the label from some runs, so that users meet outcomes that are unknown."""
    chosen = set(rng.sample([row.path for row in rows], round(_UNLABELLED * len(rows))))
    return [msgspec.structs.replace(row, labelled=row.path not in chosen) for row in rows]


def _copy_some(rows: list[Row], out: Path) -> Iterable[Row]:
    """Store some files a second time, as batches that were copied by hand do."""
    labelled = [row for row in rows if row.labelled]
    for row in labelled[:: max(1, len(labelled) // _COPIES)][:_COPIES]:
        path = row.path.replace("__attempt-", "__copy-of-attempt-")
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / row.path, out / path)
        yield msgspec.structs.replace(row, path=path)


def _labels(rows: list[Row]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "outcome", "task_id", "model", "detail"])
    for row in rows:
        if row.labelled:
            outcome = "success" if row.success else "failure"
            table.writerow([row.path, outcome, row.task_id, row.model, row.detail])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
