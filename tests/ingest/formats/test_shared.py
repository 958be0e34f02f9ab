"""What several formats share."""

from __future__ import annotations

import pytest

from sag_research.ingest.formats._shared import problem_text


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("<issue>\n it breaks \n</issue> now mend it", "it breaks"),
        ("<task>a</task><issue>b</issue>", "b"),
        ("before ISSUE:\n it breaks\n\n INSTRUCTIONS:\n mend", "it breaks"),
        ("Please solve this issue: it breaks\n\nYou can execute bash commands", "it breaks"),
        ("say: Please solve this issue: x\nYou can execute bash commands", None),
        ("<issue>never closed", None),
        ("</issue> closed before <issue>", None),
        ("<issue>  </issue> and <task>this</task>", "this"),
    ],
)
def test_the_problem_is_what_the_marks_enclose(message: str, problem: str | None) -> None:
    assert problem_text(message) == (message if problem is None else problem)


def test_marks_that_are_opened_often_and_never_closed_end() -> None:
    message = "<issue>x " * 200_000  # a search that begins anew at each would take hours
    assert problem_text(message) == message.strip()
