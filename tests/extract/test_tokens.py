"""Tokens: what each kind of step becomes, and that nothing of a text gets into a token."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sag_research as sag
from sag_research.errors import SagError, UsageError
from sag_research.extract import Vocabulary
from sag_research.extract._actions import _nothing, _Splitter
from sag_research.extract._token_actions import _PLAIN
from sag_research.model import Call, Step
from tests.extract.token_gold import GOLD

VOCABULARY = Vocabulary()
SHIPPED = Path(sag.__file__).parent / "extract" / "tokens.toml"
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("thought", "action", "observation", "tool")]
    + [("n_calls", pa.int32()), ("exit_code", pa.int32()), ("flags", pa.list_(pa.string()))]
)


def table(steps: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(steps, schema=SCHEMA)


def in_alphabet(token: str) -> bool:
    verb, about, result = token.split("|")
    known = VOCABULARY.alphabet
    return verb in known["verb"] and about in known["object"] and result in known["result"]


@pytest.mark.parametrize(("step", "token"), GOLD, ids=[f"{i}-{t}" for i, (_, t) in enumerate(GOLD)])
def test_gold(step: dict[str, Any], token: str) -> None:
    assert VOCABULARY.token(step) == token


def test_batch_gives_what_single_steps_give() -> None:
    steps = [step for step, _ in GOLD]
    codes, names = VOCABULARY.tokens(table(steps))
    assert codes.dtype == np.int32
    assert [names[code] for code in codes] == [token for _, token in GOLD]
    assert list(names) == sorted({token for _, token in GOLD})


def test_a_step_a_row_and_a_payload_give_the_same() -> None:
    text, out = "pytest tests/test_a.py", "== 2 failed in 0.1s =="
    step = Step(action=text, observation=out, calls=(Call(name="bash", text=text, exit_code=1),))
    row = {"action": text, "observation": out, "tool": "bash", "n_calls": 1, "exit_code": 1.0}
    payload = {"action": text, "observation": out, "calls": [{"name": "bash", "exit_code": 1}]}
    found = {VOCABULARY.token(one) for one in (step, row, payload)}
    assert found == {"test|test|test-fail"}


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf"), "x", True, 10**400])
def test_an_unknown_exit_code_is_no_failure(unknown: Any) -> None:
    step = {"action": "python a_tool.py", "observation": "3", "exit_code": unknown}
    assert VOCABULARY.token(step) == "run|src|ok"


def test_words_of_failure_in_a_file_that_is_read_mean_nothing() -> None:
    body = "def f():\n    raise OSError('Error: timed out')\n# Traceback (most recent call last):\n"
    assert VOCABULARY.token({"action": "cat a/b.py", "observation": body}) == "look|src|ok"
    assert VOCABULARY.token({"action": "python a/b.py", "observation": body}).endswith("traceback")


def test_the_most_consequential_verb_wins_wherever_it_stands() -> None:
    parts = ["ls", "sed -i s/a/b/ pkg/x.py", "python check.py", "grep a pkg/y.py"]
    for turn in range(len(parts)):
        action = " && ".join(parts[turn:] + parts[:turn])
        assert VOCABULARY.token({"action": action, "observation": ""}) == "edit|src|ok"


text = st.text(max_size=300) | st.text(
    alphabet="""abc.py/-_'"\\$`(){}[]<>|&;#=:, \n\t019""", max_size=300
)
pieces = st.lists(
    st.sampled_from([
        "cat", "python", "pytest", "<<EOF", "EOF", "\n", ">", "f({\"a\": 1})", "bash -c", "'", '"',
        "&&", "|", "sed -i", "x.py", "tests/", "<returncode>1</returncode>", "Traceback", "git",
        "edit 1:2", "\x1b[1m", "\ud800", "\x00", "-m", "$(", "str_replace_editor", "{\"command\":",
    ]),
    max_size=20,
).map(" ".join)  # fmt: skip
any_step = st.fixed_dictionaries({
    "thought": text, "action": text | pieces, "observation": text | pieces,
    "tool": st.none() | st.sampled_from(["bash", "edit", "str_replace_editor", "f"]) | text,
    "n_calls": st.none() | st.integers(0, 3), "exit_code": st.none() | st.integers(-300, 300),
    "flags": st.lists(st.sampled_from(["rejected", "repaired"]), max_size=2),
})  # fmt: skip


@given(any_step)
def test_any_text_gives_a_token_of_the_alphabet(step: dict[str, Any]) -> None:
    assert in_alphabet(VOCABULARY.token(step))


@given(st.lists(any_step, max_size=5))
@settings(max_examples=50)
def test_any_batch_gives_what_single_steps_give(steps: list[dict[str, Any]]) -> None:
    clean = [
        {
            k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v
            for k, v in s.items()
        }
        for s in steps
    ]
    codes, names = VOCABULARY.tokens(table(clean))
    assert [names[code] for code in codes] == [VOCABULARY.token(step) for step in clean]


@given(st.text(alphabet="ab./-='\"$\\ |&;!*\t\n:,", max_size=60))
@settings(max_examples=500)
def test_the_short_way_splits_like_the_splitter(line: str) -> None:
    reader = VOCABULARY._symbols._commands
    action = _nothing(carries=False)
    _Splitter(line, reader, action).run()
    expected = [(c.program, c.words) for c in action.carriers]
    found = [(c.program, c.words) for c in reader.split(line)]
    assert found == expected


def test_the_short_way_is_taken() -> None:
    assert _PLAIN.fullmatch("cd /a/b && nl -ba x.py | sed -n '1,5p' ; ls\n")
    for shell in ("a > b", "a $(b)", "a <<E", "a `b`", 'a "$b"', "a\nb", "a & b", "a \\b", "(a)"):
        assert not _PLAIN.fullmatch(shell)


@pytest.mark.parametrize("name", ["zzqfile", "quxmodule", "tests_of_alice", "reproduce_wombat"])
def test_no_name_of_a_text_gets_into_a_token(name: str) -> None:
    actions = [
        f"cat {name}.py", f"{name} --all", f"python -m {name}", f"pytest tests/{name}.py::{name}",
        f"{name}({{\"{name}\": 1}})", f"get_{name}({{}})", f"edit {name}", f"./{name}",
        f"cd {name}", f"sed -i s/{name}/x/ a/{name}.{name}", f"git {name}",
        f"cat > {name} <<E\n{name}\nE",
    ]  # fmt: skip
    for action in actions:
        step = {"action": action, "observation": f"{name}: Error {name}", "tool": name}
        token = VOCABULARY.token(step)
        assert in_alphabet(token)
        assert name not in token


def test_the_alphabet_is_plain_words() -> None:
    symbols = [symbol for part in VOCABULARY.alphabet.values() for symbol in part]
    assert all(re.fullmatch("[a-z][a-z-]*", symbol) for symbol in symbols)
    seen = [Counter(VOCABULARY.parts(token)[i] for _, token in GOLD) for i in range(3)]
    # the gold steps show every verb and most of the rest
    assert set(seen[0]) == set(VOCABULARY.alphabet["verb"])


def test_the_docstring_names_every_symbol() -> None:
    words = set(re.findall(r"[a-z][a-z-]*", Vocabulary.__doc__ or ""))
    for part in VOCABULARY.alphabet.values():
        assert set(part) <= words


def test_only_a_bounded_part_is_read() -> None:
    middle = "x\n" * 50_000
    observation = middle + "Traceback (most recent call last)\n" + middle
    step = {"action": "python tool.py", "observation": observation, "exit_code": 1}
    assert VOCABULARY.token(step) == "run|src|error"
    step["action"] = "ls\n" * 100_000 + "rm x.py"
    assert VOCABULARY.token(step).startswith("look|none|")


def test_table_shows_what_each_token_covers() -> None:
    steps = [
        {"action": "cat a/x.py", "observation": "one\n\x1b[31mtwo" * 300},
        {"action": "cat a/y.py", "observation": "one"},
        {"action": "frob", "observation": ""},
        {"action": "", "observation": "", "thought": ""},
    ]
    vocabulary = Vocabulary()
    with pytest.raises(UsageError, match="no batch yet"):
        _ = vocabulary.table_
    columns = table(steps).append_column("run_id", [["r1", "r2", "r2", "r2"]])
    vocabulary.tokens(columns)
    found = vocabulary.table_
    assert found["token"].tolist() == ["look|src|ok", "none|none|none", "other|none|empty"]
    assert found["n_steps"].tolist() == [2, 1, 1]
    assert found["n_runs"].tolist() == [2, 1, 1]
    assert found["share"].tolist() == [0.5, 0.25, 0.25]
    assert found["example_action"][0] == "cat a/x.py"
    assert len(found["example_observation"][0]) <= 80
    assert "\x1b" not in found["example_observation"][0]
    assert vocabulary.coverage_ == (4, 3, 0.25, 0.25)
    vocabulary.tokens(table(steps))
    assert vocabulary.table_["n_runs"].isna().all()


def test_no_steps() -> None:
    vocabulary = Vocabulary()
    codes, names = vocabulary.tokens(table([]))
    assert (len(codes), names, len(vocabulary.table_)) == (0, (), 0)
    assert np.isnan(vocabulary.coverage_.other)


def test_a_text_column_is_needed() -> None:
    with pytest.raises(UsageError, match="no column 'action'"):
        VOCABULARY.tokens(pa.table({"observation": ["x"]}))


def test_levels() -> None:
    assert VOCABULARY.parts("edit|src|ok") == ("edit", "src", "ok")
    assert VOCABULARY.parts("RARE") == ("RARE", "none", "none")
    names = [VOCABULARY.coarser("edit|src|ok", level) for level in (2, 1, 0)]
    assert names == ["edit|src|ok", "edit|src", "edit"]
    assert VOCABULARY.coarser("RARE", 0) == "RARE"
    with pytest.raises(UsageError, match="no level 3"):
        VOCABULARY.coarser("edit|src|ok", 3)


def test_version_follows_the_data_and_not_the_comments(tmp_path: Path) -> None:
    text_ = SHIPPED.read_text(encoding="utf-8")
    assert re.fullmatch(r"tokens-\d+-[0-9a-f]{8}", VOCABULARY.version)
    own = tmp_path / "own.toml"
    own.write_text("# mine\r\n" + text_, encoding="utf-8", newline="")
    assert Vocabulary(own).version == VOCABULARY.version
    own.write_text(text_.replace('"curl", "wget"', '"curl"'), encoding="utf-8")
    changed = Vocabulary(own)
    assert changed.version != VOCABULARY.version
    step = {"action": "wget x", "observation": ""}
    assert (VOCABULARY.token(step), changed.token(step)) == (
        "browse|page|empty",
        "other|none|empty",
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1", "version = 'x'"),
        ('"submit", "ask", "respond"', '"submit", "ask", "Re|spond"'),
        ("[modules]\ntest", "[modules]\nfly"),
        ("around = '''", "around = '''("),
        ("[limits]", "[limits"),
    ],
)
def test_rules_that_make_no_sense_are_refused(tmp_path: Path, old: str, new: str) -> None:
    text_ = SHIPPED.read_text(encoding="utf-8")
    assert old in text_
    own = tmp_path / "own.toml"
    own.write_text(text_.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SagError):
        Vocabulary(own)


def test_a_missing_rules_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SagError, match="cannot read the token rules"):
        Vocabulary(tmp_path / "none.toml")


def first_word(step: dict[str, Any]) -> str:
    return str(step["action"]).split(maxsplit=1)[0]


def test_a_function_of_ones_own() -> None:
    own = Vocabulary(function=first_word)
    assert own.version.startswith("custom-")
    assert own.version == Vocabulary(function=first_word).version
    assert own.version != Vocabulary(function=lambda step: "x").version
    assert own.token(Step(action="ls a")) == "ls"
    codes, names = own.tokens(table([{"action": "ls a"}, {"action": "cat"}, {"action": "ls b"}]))
    assert (codes.tolist(), names) == ([1, 0, 1], ("cat", "ls"))
    assert own.parts("ls") == ("ls", "none", "none")
    assert own.alphabet == {}
    with pytest.raises(UsageError, match="returned"):
        Vocabulary(function=lambda step: None).token({"action": ""})  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="one of the two"):
        Vocabulary(rules=SHIPPED, function=first_word)


REAL = os.environ.get("SAG_REAL_DATA")
SETS = {
    "taubench": (40, 200),
    "mini_swe_agent_v1_gemini3pro_verified": (40, 200),
    "sweagent_demos": (10, 200),  # a dozen runs
}


@pytest.mark.skipif(not REAL, reason="SAG_REAL_DATA is not set")
@pytest.mark.parametrize("folder", SETS)
def test_real_steps_are_named(folder: str) -> None:
    vocabulary = Vocabulary()
    with sag.open(":memory:") as ws:
        ws.ingest(str(Path(str(REAL)) / folder))
        frame = ws.sql(
            "SELECT run_id, thought, action, observation, n_calls, tool, exit_code, flags "
            "FROM steps"
        ).df()
    columns = pa.Table.from_pandas(frame, preserve_index=False)
    codes, names = vocabulary.tokens(columns)
    coverage = vocabulary.coverage_
    print(folder, coverage)
    low, high = SETS[folder]
    assert coverage.n_steps == len(frame) > 0
    assert coverage.other < 0.05
    assert low <= coverage.n_tokens <= high
    assert all(map(in_alphabet, names))
    some = frame.iloc[:: max(1, len(frame) // 300)]
    single = [vocabulary.token(row) for row in some.to_dict("records")]
    assert single == [names[codes[i]] for i in some.index]
