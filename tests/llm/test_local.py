"""A real model on this machine."""

from __future__ import annotations

import gc
import math
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sag_research.errors import MissingDataError, UsageError
from sag_research.llm import (
    Context,
    Local,
    as_request,
    grammar_of_choices,
    installed_weights,
    join_chunks,
    sample,
)
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from tests.support import require_module, skip_or_fail

GREETING = {
    "messages": [{"role": "user", "content": "Say hello."}],
    "parameters": {"max_tokens": 8, "temperature": 0, "seed": 1},
}
CHOICE = {
    "messages": [{"role": "user", "content": "Is water wet? Answer yes, no or maybe."}],
    "choices": ["yes", "no", "maybe"],
}


def need(weights: str) -> None:
    require_module("model", "xllamacpp")
    require_module("model", "openai")
    if weights not in installed_weights():
        skip_or_fail("model", f"the weights {weights} are not installed")


@pytest.fixture(scope="module")
def model() -> Iterator[Local]:
    need("smollm2")
    with Local("smollm2", context=1_024) as local:
        yield local


def test_it_answers_and_counts(model: Local) -> None:
    reply = model.complete(as_request(GREETING))
    assert reply.text
    assert reply.usage is not None
    assert (reply.usage.tokens_out, reply.usage.cost_usd) == (8, None)
    assert model.complete(as_request(GREETING)) == reply, "the same question, the same answer"
    assert join_chunks(model.stream(as_request(GREETING))) == reply


def test_identity_names_the_weights_and_no_address(model: Local) -> None:
    identity = model.identity()
    assert identity.provider == "local"
    assert identity.model.startswith("smollm2@")
    assert len(identity.model.partition("@")[2]) == 16
    assert identity.base_url == ""


def test_a_choice_is_scored(model: Local) -> None:
    reply = model.complete(as_request(CHOICE))
    assert list(reply.scores) == ["yes", "no", "maybe"]
    assert sum(reply.scores.values()) == pytest.approx(1)
    assert reply.text == max(reply.scores, key=lambda option: reply.scores[option])
    assert len(set(reply.scores.values())) == 3
    assert model.complete(as_request(CHOICE)) == reply


def test_scores_are_the_models_own_probabilities(model: Local) -> None:
    """Against the whole distribution over the vocabulary, which is asked for at great length."""
    scores = model.complete(as_request(CHOICE)).scores
    client = model._connected()._client()[1]
    answer = client.chat.completions.create(
        model="m",
        messages=CHOICE["messages"],
        max_tokens=1,
        logprobs=True,
        extra_body={"top_logprobs": 5_000, "cache_prompt": False},
    )
    top = {t.token: t.logprob for t in answer.choices[0].logprobs.content[0].top_logprobs}
    weights = {option: math.exp(top[option]) for option in scores if option in top}
    assert set(weights) >= {"yes", "no"}
    assert scores["yes"] / scores["no"] == pytest.approx(weights["yes"] / weights["no"], rel=0.01)


def test_choices_that_begin_alike_are_refused(model: Local) -> None:
    with pytest.raises(UsageError, match=r"'stop' and 'stop now' begin with the same token"):
        model.complete(as_request({**CHOICE, "choices": ["stop", "go", "stop now"]}))


def test_tools_are_refused(model: Local) -> None:
    with pytest.raises(UsageError, match="choose among"):
        model.complete(as_request({**GREETING, "tools": [{"name": "t"}]}))


def test_answers_are_held_to_a_schema(model: Local) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
    }
    asked = as_request({**GREETING, "output_schema": schema, "parameters": {"max_tokens": 40}})
    reply = model.complete(asked)
    assert set(reply.data()) == {"colour", "sure"}
    assert reply.data()["colour"] in {"red", "blue"}
    assert " " not in (reply.text or "")


def test_answers_are_held_to_a_grammar(model: Local) -> None:
    parameters = {"grammar": grammar_of_choices(["apple", "pear"]), "max_tokens": 10}
    asked = as_request({**GREETING, "parameters": parameters})
    assert model.complete(asked).text in {"apple", "pear"}


def test_recorded_and_replayed_without_the_model(model: Local) -> None:
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))

        def agent(ctx: Context) -> list[str]:
            rng = ctx.rng()
            scores = ctx.llm(None, CHOICE).scores
            drawn = [sample(scores, rng) for _ in range(8)]
            return [*drawn, *(chunk.text for chunk in ctx.stream(None, GREETING))]

        live = agent(Context(store, "r1", model=model, rng=random.Random(3)))
        again = agent(Context(store, "r1", model=model.identity(), mode="replay"))
        assert again == live
        assert len(live) > 10


def test_strangers_are_turned_away(model: Local) -> None:
    model.complete(as_request(GREETING))
    address = model._connected()._address
    assert address.startswith("http://127.0.0.1:")
    for path in ("/v1/chat/completions", "/tokenize"):
        request = urllib.request.Request(
            address + path, b"{}", {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=5)


def test_closing_frees_the_port_and_asking_starts_again() -> None:
    need("smollm2")
    local = Local("smollm2", context=512)
    local.complete(as_request(GREETING))
    address = local._connected()._address
    local.close()
    local.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address + "/health", timeout=2)
    assert local.complete(as_request(GREETING)).text
    second = local._connected()._address
    del local
    gc.collect()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(second + "/health", timeout=2)


def test_base_model_takes_the_prompt_as_it_is() -> None:
    need("gemma3-270m")
    with Local("gemma3-270m", context=512) as local:
        assert local.raw
        assert local.identity().model.startswith("gemma3-270m@a5fd3b62230aa5ec+raw")
        asked = as_request({**GREETING, "messages": [{"role": "user", "content": "One, two,"}]})
        assert "three" in (local.complete(asked).text or "")
        days = "Monday, Tuesday, Wednesday,"
        choice = {"messages": [{"role": "user", "content": days}], "choices": [" Thursday", " cat"]}
        assert local.complete(as_request(choice)).scores[" Thursday"] > 0.9
        assert [chunk.text for chunk in local.stream(as_request(choice))] == [" Thursday", ""]
        folder = local._stop.peek()[2][0]["folder"].name  # type: ignore[index, union-attr]
        assert Path(folder).exists()
    assert not Path(folder).exists(), "assembled weights are taken away again"


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no weights at"):
        Local(tmp_path / "none.gguf").identity()
    need("smollm2")
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF but no weights")
    with pytest.raises(MissingDataError, match="cannot be loaded"):
        Local(junk).complete(as_request("q"))
