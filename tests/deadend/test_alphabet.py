from __future__ import annotations

import numpy as np
import pytest

from sag_research.deadend._alphabet import RARE, Alphabet
from sag_research.deadend._prefixes import Prefixes, StepTable
from sag_research.errors import UsageError


def cohort(*runs: str) -> Prefixes:
    return Prefixes.from_tokens([run.split() for run in runs], ["success"] * len(runs))


def test_a_run_that_repeats_a_token_counts_once() -> None:
    p = cohort("a a a a a b", "b", "c")
    assert Alphabet.fit(p, min_runs=2).names == (RARE, "b")
    assert Alphabet.fit(p, min_runs=1).names == (RARE, "a", "b", "c")


def test_only_the_runs_given_count_not_the_others_of_their_table() -> None:
    p = cohort("a", "a", "b", "b")
    assert Alphabet.fit(p.take([0, 1]), min_runs=2).names == (RARE, "a")


def test_codes_go_by_name_and_unseen_tokens_are_rare() -> None:
    alphabet = Alphabet.fit(cohort("a b", "a b"), min_runs=2)
    other = StepTable(np.array([2, 0, 1, 2], dtype=np.int32), ("b", "new", "a"))
    codes = alphabet.codes(other)
    assert codes.dtype == np.int32
    assert [alphabet.names[code] for code in codes] == ["a", "b", RARE, "a"]
    assert [alphabet.code_of(other.names[t]) for t in other.tokens] == codes.tolist()


def test_coarser_symbols_count_the_runs_of_the_rare_tokens_only() -> None:
    p = cohort(
        "edit|src|ok edit|test|ok",
        "edit|src|ok edit|test|error",
        "edit|src|ok edit|doc|ok",
        "edit|src|ok look|src|ok",
    )
    alphabet = Alphabet.fit(p, min_runs=2, coarser=True)
    # the frequent edit|src|ok keeps its runs: edit|src is no symbol, and edit counts edit|doc alone
    assert alphabet.names == (RARE, "edit|src|ok", "edit|test")
    assert alphabet.code_of("edit|test|timeout") == alphabet.code_of("edit|test|ok") == 2
    assert alphabet.code_of("look|src|ok") == 0
    assert alphabet.code_of("edit|doc|ok") == 0


def test_a_token_named_rare_does_not_double_the_symbol() -> None:
    alphabet = Alphabet.fit(cohort(f"{RARE} a", f"{RARE} a"), min_runs=1)
    assert alphabet.names == (RARE, "a")
    assert alphabet.code_of(RARE) == 0


def test_refusals() -> None:
    with pytest.raises(UsageError, match="min_runs=0"):
        Alphabet.fit(cohort("a"), min_runs=0)
    with pytest.raises(UsageError, match="each once"):
        Alphabet(["a", RARE])
    with pytest.raises(UsageError, match="each once"):
        Alphabet([RARE, "a", "a"])
