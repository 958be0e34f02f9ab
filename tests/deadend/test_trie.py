from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sag_research.deadend._hazard import shrunk_interval
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._step import SeenStep
from sag_research.deadend._trie import TrieRisk

FEWER = settings(max_examples=50)  # an example takes tens of milliseconds
RUNS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=8)


def cohort(runs: list[list[str]]) -> Prefixes:
    runs = [list("abz"), list("caz"), *runs]
    return Prefixes.from_tokens(runs, [("failure", "success")[i % 2] for i in range(len(runs))])


@FEWER
@given(RUNS, st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_the_formula_written_out(runs: list[list[str]], prefix: list[str]) -> None:
    train = cohort(runs)
    model = TrieRisk(kappa=3.0, min_runs=1).fit(train)
    one = Prefixes.from_tokens([prefix], ["unknown"])
    scores = model.predict(one)
    hazard = model.hazard_.predict(one)
    names = model.alphabet_.names
    prefix = [token if token in names else "RARE" for token in prefix]
    texts = [[train.table.names[code] for code in codes] for codes in train.sequences()]
    for seen in range(1, len(prefix) + 1):
        # a run that ends here is no run that went on
        goes_on = [t[:seen] == prefix[:seen] and len(t) > seen for t in texts]
        n = sum(goes_on)
        failed = sum(bad for g, bad in zip(goes_on, train.failed, strict=True) if g)
        expected = (failed + 3.0 * hazard[seen - 1]) / (n + 3.0)
        assert scores[seen - 1] == pytest.approx(expected, abs=1e-12)


@FEWER
@given(RUNS, RUNS)
def test_a_stream_gives_what_predict_gives(runs: list[list[str]], others: list[list[str]]) -> None:
    model = TrieRisk(min_runs=2).fit(cohort(runs))
    new = Prefixes.from_tokens([[*run, "new"] for run in others], ["unknown"] * len(others))
    streamed = []
    for run in others:
        stream = model.begin()
        streamed += [stream.observe(SeenStep(token)) for token in [*run, "new"]]
    assert streamed == model.predict(new).tolist()


def test_explanation_by_hand() -> None:
    runs = [list("abz")] * 6 + [list("acz")] * 4
    p = Prefixes.from_tokens(runs, ["failure"] * 6 + ["success"] * 4)
    model = TrieRisk(kappa=10.0, min_runs=1).fit(p)
    told = model.explain(p.take([0]), p.take([0]).looks())
    assert told[["seen", "n", "failed"]].to_numpy().tolist() == [[1, 10, 6], [2, 6, 6]]
    assert told["risk"].tolist() == pytest.approx([0.6, (6 + 6) / (6 + 10)])
    low, high = shrunk_interval(6, 6, 0.6, 10.0)
    assert (told["low"][1], told["high"][1]) == (pytest.approx(low), pytest.approx(high))


def test_table_is_in_the_order_of_the_trie() -> None:
    runs = [list("bcz")] * 3 + [list("abz")] * 2 + [list("acz")] * 2 + [list("c")]
    p = Prefixes.from_tokens(runs, ["failure"] * 4 + ["success"] * 4)
    table = TrieRisk(min_runs=2).fit(p).table_
    assert table["prefix"].tolist() == ["a", "a → b", "a → c", "b", "b → c"]
    assert table["n"].tolist() == [4, 2, 2, 3, 3]
    assert table["failed"].tolist() == [1, 1, 0, 3, 3]


def test_saved_state_restores_the_numbers() -> None:
    p = cohort([list("abcabc"), list("abcz"), list("bcaz")])
    model = TrieRisk(min_runs=1).fit(p)
    again = clone(model)
    again.fitted_runs_ = model.fitted_runs_
    again._restore(*model._state())
    assert again.predict(p).tolist() == model.predict(p).tolist()
    assert again.table_.equals(model.table_)


def test_plot_takes_and_returns_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    model = TrieRisk(min_runs=1).fit(cohort([list("abcabc")]))
    assert model.plot(ax, depth=2) is ax
    shallow = (model.table_["depth"] <= 2).sum()
    assert len(ax.collections[0].get_paths()) == shallow
