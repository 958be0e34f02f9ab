"""Annotating steps: codes and notes of people, kept as facts in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import repair
from sag_research.errors import UsageError
from sag_research.model import WORKSPACE_RUN, Event
from sag_research.workspace._base import Base

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend import Agreement

__all__ = ["Annotating"]


class Annotating(Base):
    """The methods of a workspace that keep what people see in runs."""

    def annotate(
        self, run: str, step: int | None = None, *, code: str, note: str = "", by: str = "me"
    ) -> None:
        """Note what somebody sees in a step, or in a run as a whole.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it. A step that a fork took over is noted under the run that
            wrote it.
        step : int, optional
            0-based; default: the run as a whole.
        code : str
            A word of your code book, e.g. ``"wrong-file"``.
        note : str
            Free text.
        by : str
            Who says so.

        Notes
        -----
        Nothing is overwritten: of each annotator, run, step and code the last word holds, and
        earlier ones stay in the log.
        """
        self._note("annotation.added", run, step, code, by, note=repair(note))

    def remove_annotation(
        self, run: str, step: int | None = None, *, code: str, by: str = "me"
    ) -> None:
        """Take an annotation back; the log keeps that it was made.

        Raises
        ------
        UsageError
            If there is none.
        """
        run_id, at = self._writer(run, step)
        known = self.annotations(run_id)
        same = (known["code"] == _word(code, "code")) & (known["by"] == _word(by, "annotator"))
        same &= known["step"].isna() if at is None else known["step"] == at
        if not same.any():
            where = f"run {run_id!r}" + ("" if at is None else f", step {at}")
            raise UsageError(
                f"{by!r} has no annotation {code!r} at {where}", fix="see ws.annotations()"
            )
        self._note("annotation.removed", run_id, at, code, by)

    def annotations(self, run: str | None = None) -> pd.DataFrame:
        """List what was annotated and holds.

        Parameters
        ----------
        run : str, optional
            Only at steps of this run, those that it took over included; default: of all runs.

        Returns
        -------
        DataFrame
            Columns run_id, step (missing for a run as a whole), code, note, by, at (UTC), and the
            run's task_id; ``.to_csv(path, index=False)`` for other programs.
        """
        frame = self.sql(_ANNOTATIONS, [WORKSPACE_RUN]).df()
        frame["step"] = frame["step"].astype("Int64")
        if run is None:
            return frame
        run_id = self.resolve(run)
        taken = self._taken_over(run_id)
        places = enumerate(zip(frame["run_id"], frame["step"], strict=True))
        rows = [row for row, place in places if place[0] == run_id or place in taken]
        return frame.iloc[rows].reset_index(drop=True)

    def agreement(
        self, a: str, b: str, *, unit: str = "step", runs: Sequence[str] | None = None
    ) -> Agreement:
        """Compare two annotators: Cohen's kappa for each code and for all, with n and interval.

        Parameters
        ----------
        a, b : str
            Names as given to :meth:`annotate`.
        unit : {"step", "run"}
            For each step and code, or for each run and code: is the code there?
        runs : sequence of str, optional
            Runs that both have read, also where one of them found nothing. Default: runs that
            both have annotated; that somebody noted nothing does not mean that they looked.

        Returns
        -------
        Agreement
            ``.kappa``, ``.table_`` and ``.left_out``.
        """
        from sag_research.deadend import agreement

        frame = self.annotations()
        if a == b:
            raise UsageError("agreement is of two annotators", why=f"both are {a!r}")
        read = {who: set(frame["run_id"][frame["by"] == who]) for who in (a, b)}
        for who, found in read.items():
            if not found and runs is None:
                known = ", ".join(sorted(set(frame["by"]))) or "nobody has"
                raise UsageError(f"{who!r} has annotated nothing", fix=f"annotators: {known}")
        both = read[a] & read[b] if runs is None else {self.resolve(run) for run in runs}
        query = "SELECT run_id, count(*) FROM steps WHERE list_contains($1, run_id) GROUP BY 1"
        n_steps = dict(self.sql(query, [sorted(both)]).rows())
        if unit == "step":
            frame = frame[frame["step"].notna()]
        frame = frame.assign(step=frame["step"].fillna(-1))
        columns = ["run_id", "step", "code"]
        marks = {
            who: [(str(run), int(step), str(code)) for run, step, code in
                  frame.loc[frame["by"] == who, columns].itertuples(index=False)]
            for who in (a, b)
        }  # fmt: skip
        left = (read[a] | read[b]) - both
        return agreement(marks, dict(sorted(n_steps.items())), unit=unit, left_out=left)

    def _note(
        self, type_: str, run: str, step: int | None, code: str, by: str, **more: Any
    ) -> None:
        run_id, at = self._writer(run, step)
        payload = {"run": run_id, "step": at, "code": _word(code, "code")}
        payload |= {"by": _word(by, "annotator"), **more}
        self.store.append(
            Event(run_id=WORKSPACE_RUN, type=type_, actor="annotator", payload=payload)
        )

    def _taken_over(self, run_id: str) -> set[tuple[str, int]]:
        """Writer and number of each step that a run took over."""
        if self.store.get_run(run_id).parent_id is None:
            return set()
        steps = enumerate(self.store.read(run_id, types=(_STEP,)))
        return {(event.run_id, step) for step, event in steps if event.run_id != run_id}

    def _writer(self, run: str, step: int | None) -> tuple[str, int | None]:
        """Return the run that wrote a step, and the step's number."""
        run_id = self.resolve(run)
        if step is None:
            return run_id, None
        position = self.store.position_of_step(run_id, step)
        return next(self.store.read(run_id, position, position)).run_id, step


_STEP: Final = "agent.step"


def _word(text: str, what: str) -> str:
    word = " ".join(repair(text).split())
    if not word:
        raise UsageError(f"an annotation needs a {what}", fix="give a word")
    return word


_ANNOTATIONS = """
    WITH said AS (
        SELECT body ->> '$.run' AS run_id, try_cast(body ->> '$.step' AS BIGINT) AS step,
               body ->> '$.code' AS code, coalesce(body ->> '$.note', '') AS note,
               body ->> '$.by' AS "by", ts AS "at", type, seq
        FROM events
        WHERE run_id = ? AND type IN ('annotation.added', 'annotation.removed')
    ),
    last AS (
        SELECT * FROM said
        QUALIFY row_number() OVER (PARTITION BY run_id, step, code, "by" ORDER BY seq DESC) = 1
    )
    SELECT last.run_id, step, code, note, "by", "at", runs.task_id
    FROM last LEFT JOIN runs USING (run_id)
    WHERE type = 'annotation.added' ORDER BY last.seq"""
