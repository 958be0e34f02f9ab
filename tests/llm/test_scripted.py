"""The scripted model, the shape of questions, and errors as data."""

from __future__ import annotations

import pytest

from sag_research.llm import (
    Message,
    Model,
    ModelError,
    RateLimited,
    Reply,
    Request,
    Scripted,
    as_request,
    join_chunks,
)


def test_answers_of_every_kind() -> None:
    reply = Reply(text="r", finish="length")
    model = Scripted(["a", None, reply, RateLimited("busy")])
    assert isinstance(model, Model)
    asked = as_request("q")
    assert [model.complete(asked).text, model.complete(asked).text] == ["a", None]
    assert model.complete(asked) is reply
    with pytest.raises(RateLimited):
        model.complete(asked)
    with pytest.raises(ModelError, match="ask number 5"):
        model.complete(asked)
    assert len(model.requests) == 5


def test_a_function_of_the_request() -> None:
    model = Scripted(lambda request: request.messages[-1].content.upper(), name="shout")
    assert model.complete(as_request("hi")).text == "HI"
    assert model.identity().model == "shout"


@pytest.mark.parametrize("text", ["", " ", "one", " a  b\n c ", None])
def test_streams_add_up(text: str | None) -> None:
    reply = join_chunks(Scripted([text]).stream(as_request("q")))
    assert reply.text == (text or "")


@pytest.mark.parametrize(
    "asked",
    [
        "q",
        [{"role": "user", "content": "q"}],
        [Message(role="user", content="q")],
        {"messages": [{"role": "user", "content": "q"}]},
        Request(messages=(Message(role="user", content="q"),)),
    ],
)
def test_one_question_in_many_shapes(asked: object) -> None:
    assert as_request(asked) == Request(messages=(Message(role="user", content="q"),))  # type: ignore[arg-type]
