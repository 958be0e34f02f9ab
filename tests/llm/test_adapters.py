"""Adapters, run through the real client libraries against a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sag_research.errors import MissingDataError, UsageError
from sag_research.llm import (
    Anthropic,
    CutStream,
    Gemini,
    MalformedReply,
    Message,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    OpenAICompatible,
    RateLimited,
    Request,
    Retry,
    ServerFailed,
    Tool,
    ToolCall,
    as_request,
    join_chunks,
)
from sag_research.model import Usage
from tests.llm.wire import TEXT, Provider, serving

KEY = "sk-very-secret-0123456789"
ADAPTERS = {"openai": OpenAICompatible, "anthropic": Anthropic, "gemini": Gemini}
PACKAGES = {"openai": "openai", "anthropic": "anthropic", "gemini": "google.genai"}
ASKED = as_request("2 + 2?")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
Maker = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture
def provider(server: Provider) -> Provider:
    fresh = Provider()
    for name in ("script", "sent", "answer", "call", "arguments"):
        setattr(server, name, getattr(fresh, name))
    return server


@pytest.fixture(params=list(ADAPTERS))
def make(request: pytest.FixtureRequest, provider: Provider) -> Iterator[Maker]:
    """A function that makes an adapter pointed at the server."""
    pytest.importorskip(PACKAGES[request.param])
    made = []

    def maker(**options: Any) -> Any:
        path = "/v1" if request.param == "openai" else ""
        options = {"retry": Retry(attempts=1), "timeout": 5.0, "api_key": KEY} | options
        made.append(ADAPTERS[request.param]("m", base_url=provider.url + path, **options))
        return made[-1]

    yield maker
    for adapter in made:
        adapter.close()


def test_whole_answer(make: Maker) -> None:
    reply = make(prices={"m": (2.0, 10.0)}).complete(ASKED)
    assert reply.text == TEXT
    assert reply.model == "served-model"
    assert reply.finish in {"stop", "end_turn", "STOP"}
    assert reply.usage == Usage(tokens_in=11, tokens_out=7, cost_usd=pytest.approx(92e-6))


def test_cost_is_unknown_without_a_price(make: Maker) -> None:
    assert make().complete(ASKED).usage == Usage(tokens_in=11, tokens_out=7, cost_usd=None)
    assert make(prices={"other": (1.0, 1.0)}).complete(ASKED).usage.cost_usd is None


def test_streamed_answer_is_the_whole_one(make: Maker, provider: Provider) -> None:
    provider.call = True
    chunks = list(make().stream(ASKED))
    assert [chunk.text for chunk in chunks if chunk.text] == ["The ", "answer ", "is ", "4."]
    assert join_chunks(chunks) == make().complete(ASKED)


def test_tool_calls_are_read(make: Maker, provider: Provider) -> None:
    provider.call = True
    (call,) = make().complete(ASKED).calls
    assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
    assert call.id


def test_arguments_that_are_no_json_stay_text(provider: Provider) -> None:
    pytest.importorskip("openai")
    provider.call, provider.arguments = True, '{"city": "Os'
    model = OpenAICompatible("m", base_url=provider.url + "/v1", api_key=KEY)
    (call,) = model.complete(ASKED).calls
    assert call.arguments == '{"city": "Os'
    assert join_chunks(model.stream(ASKED)).calls == (call,)
    model.close()


def conversation() -> Request:
    weather = Tool(name="weather", description="look", parameters={"type": "object"}, version="2")
    calls = tuple(
        ToolCall(id=f"c{n}", name="weather", arguments={"city": city}, signature="c2ln")
        for n, city in enumerate(["Oslo", "Rome"])
    )
    return Request(
        system="be brief",
        messages=(
            Message(role="user", content="weather?"),
            Message(role="assistant", content="looking", calls=calls),
            Message(role="tool", content="rain", call_id="c0"),
            Message(role="tool", content="sun", call_id="c1"),
        ),
        tools=(weather,),
        parameters={"temperature": 0.5, "max_tokens": 9, "stop": ["END"], "seed": 3},
    )


def test_openai_gets_the_conversation(provider: Provider) -> None:
    pytest.importorskip("openai")
    model = OpenAICompatible("m", base_url=provider.url + "/v1", api_key=KEY)
    model.complete(conversation())
    model.close()
    sent = provider.sent[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    body = sent.body
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert body["messages"][2]["tool_calls"][1]["function"]["arguments"] == '{"city": "Rome"}'
    assert body["messages"][3] == {"role": "tool", "content": "rain", "tool_call_id": "c0"}
    assert body["tools"][0]["function"]["name"] == "weather"
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.5, 9, 3)
    assert body["stop"] == ["END"]


def test_anthropic_gets_the_conversation(provider: Provider) -> None:
    pytest.importorskip("anthropic")
    model = Anthropic("m", base_url=provider.url, api_key=KEY)
    model.complete(conversation())
    model.close()
    body = provider.sent[0].body
    assert KEY in str(provider.sent[0].headers)
    assert body["system"] == "be brief"
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][1]["content"]] == [
        "text",
        "tool_use",
        "tool_use",
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c0", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "sun"},
    ]
    assert body["tools"][0]["input_schema"] == {"type": "object"}
    assert (body["max_tokens"], body["stop_sequences"], body["seed"]) == (9, ["END"], 3)


def test_anthropic_is_always_given_a_limit(provider: Provider) -> None:
    pytest.importorskip("anthropic")
    model = Anthropic("m", base_url=provider.url, api_key=KEY)
    model.complete(ASKED)
    model.close()
    assert provider.sent[0].body["max_tokens"] == 4_096


def test_gemini_gets_the_conversation(provider: Provider) -> None:
    pytest.importorskip("google.genai")
    model = Gemini("m", base_url=provider.url, api_key=KEY)
    model.complete(conversation())
    model.close()
    body = provider.sent[0].body
    assert body["systemInstruction"]["parts"][0]["text"] == "be brief"
    assert [turn["role"] for turn in body["contents"]] == ["user", "model", "user"]
    call = body["contents"][1]["parts"][1]
    assert call["functionCall"] == {"name": "weather", "args": {"city": "Oslo"}}
    assert call["thoughtSignature"] == "c2ln"
    answers = [part["functionResponse"] for part in body["contents"][2]["parts"]]
    assert [(a["name"], a["response"]["result"]) for a in answers] == [
        ("weather", "rain"),
        ("weather", "sun"),
    ]
    settings = body["generationConfig"]
    assert (settings["maxOutputTokens"], settings["stopSequences"]) == (9, ["END"])
    assert settings["seed"] == 3


def test_gemini_names_a_parameter_it_does_not_take(provider: Provider) -> None:
    pytest.importorskip("google.genai")
    model = Gemini("m", base_url=provider.url, api_key=KEY)
    with pytest.raises(UsageError, match="wings"):
        model.complete(as_request({"messages": [], "parameters": {"wings": 2}}))
    model.close()


def test_structured_answers_are_asked_for_and_read(make: Maker, provider: Provider) -> None:
    provider.answer = '{"n": 4}'
    asked = as_request({"messages": [{"role": "user", "content": "?"}], "output_schema": SCHEMA})
    assert make().complete(asked).data() == {"n": 4}
    assert join_chunks(make().stream(asked)).data() == {"n": 4}
    assert '"n"' in str(provider.sent[0].body).replace("'", '"')
    provider.answer = "four"
    with pytest.raises(MalformedReply, match=r"no JSON.*four"):
        make().complete(asked)
    with pytest.raises(MalformedReply, match="no JSON"):
        list(make().stream(asked))


FAULTS = [
    ("429", RateLimited, "slow down"),
    ("500", ServerFailed, "HTTP 500"),
    ("503", ServerFailed, "HTTP 503"),
    ("401", ModelRefused, "HTTP 401"),
    ("400", ModelRefused, "HTTP 400"),
    ("hang-up", ModelUnreachable, "no answer"),
]


@pytest.mark.parametrize(("fault", "kind", "message"), FAULTS)
def test_a_failed_call_says_why(
    make: Maker, provider: Provider, fault: str, kind: type[ModelError], message: str
) -> None:
    for ask in (make().complete, lambda asked: list(make().stream(asked))):
        provider.then(fault)
        with pytest.raises(kind, match=message) as caught:
            ask(ASKED)
        assert KEY not in f"{caught.value!r} {caught.value.text}"
        assert caught.value.status == (int(fault) if fault.isdigit() else None)


@pytest.mark.parametrize("fault", ["malformed", "wrong-shape", "empty-object", "html"])
def test_an_unreadable_answer_is_refused(make: Maker, provider: Provider, fault: str) -> None:
    provider.then(fault)
    with pytest.raises(MalformedReply):
        make().complete(ASKED)
    provider.then(fault)
    with pytest.raises((MalformedReply, CutStream)):
        list(make().stream(ASKED))


def test_a_body_that_breaks_off(make: Maker, provider: Provider) -> None:
    provider.then("cut-body")
    with pytest.raises(ModelUnreachable, match="complete message body"):
        make().complete(ASKED)


@pytest.mark.parametrize("fault", ["cut", "end-early", "error-event", "bad-event"])
def test_a_cut_stream_gives_what_came_and_then_says_so(
    make: Maker, provider: Provider, fault: str
) -> None:
    provider.then(fault)
    came: list[str] = []
    with pytest.raises((CutStream, MalformedReply)) as caught:
        came.extend(chunk.text for chunk in make().stream(ASKED))
    assert came[:2] == ["The ", "answer "]
    assert isinstance(caught.value, CutStream) or fault == "bad-event"


def test_silence_ends_in_a_timeout(make: Maker, provider: Provider) -> None:
    provider.then("silent", "stall")
    model = make(timeout=0.3)
    with pytest.raises(ModelTimeout, match="in time"):
        model.complete(ASKED)
    with pytest.raises(CutStream, match="in time"):
        list(model.stream(ASKED))


def test_a_refused_connection(make: Maker, provider: Provider) -> None:
    model = make()
    model._url = "http://127.0.0.1:9"
    with pytest.raises(ModelUnreachable):
        model.complete(ASKED)


# ---- retries


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_busy_and_failing_providers_are_asked_again(make: Maker, provider: Provider) -> None:
    waits = Waits()
    provider.then("429", "500", "hang-up")
    reply = make(retry=Retry(base=1.0, sleep=waits)).complete(ASKED)
    assert (reply.text, reply.attempts) == (TEXT, 4)
    assert waits.seconds == [1.0, 2.0, 4.0]
    assert len(provider.sent) == 4, "the client library must not ask again by itself"


def test_attempts_are_bounded(make: Maker, provider: Provider) -> None:
    waits = Waits()
    provider.then(*["500"] * 9)
    with pytest.raises(ServerFailed):
        make(retry=Retry(attempts=3, sleep=waits)).complete(ASKED)
    assert len(provider.sent) == 3
    assert waits.seconds == [1.0, 2.0]


def test_the_provider_may_ask_for_a_longer_wait(make: Maker, provider: Provider) -> None:
    waits = Waits()
    provider.then("429 7")
    assert make(retry=Retry(sleep=waits)).complete(ASKED).attempts == 2
    assert waits.seconds == [7.0]
    provider.then("429 3600")
    with pytest.raises(RateLimited) as caught:
        make(retry=Retry(sleep=waits)).complete(ASKED)
    assert caught.value.retry_after == 3600
    assert waits.seconds == [7.0], "an hour is longer than the cap: nobody waits"


def test_refusals_and_unreadable_answers_are_not_asked_again(
    make: Maker, provider: Provider
) -> None:
    for fault in ("401", "malformed"):
        provider.then(fault)
        with pytest.raises((ModelRefused, MalformedReply)):
            make(retry=Retry(sleep=Waits())).complete(ASKED)
    assert len(provider.sent) == 2


def test_a_stream_is_asked_again_only_before_it_begins(make: Maker, provider: Provider) -> None:
    waits = Waits()
    model = make()
    # Gemini's library passes over an error that comes inside a stream: the stream counts as cut
    provider.then("503", "503" if isinstance(model, Gemini) else "error-first")
    reply = join_chunks(make(retry=Retry(sleep=waits)).stream(ASKED))
    assert (reply.text, reply.attempts) == (TEXT, 3)
    provider.then("cut")
    with pytest.raises(CutStream):
        list(make(retry=Retry(sleep=waits)).stream(ASKED))
    assert waits.seconds == [1.0, 2.0]


def test_no_attempt_is_no_policy(make: Maker) -> None:
    with pytest.raises(UsageError, match="attempts"):
        make(retry=Retry(attempts=0)).complete(ASKED)


# ---- keys, packages, choices


def test_key_comes_from_the_environment(
    make: Maker, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="no API key"):
        make(api_key=None).complete(ASKED)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "from-the-environment")
    make(api_key=None).complete(ASKED)
    assert "from-the-environment" in str(provider.sent[0].headers)


def test_identity_and_repr_hold_no_secret(make: Maker) -> None:
    model = make(headers={"X-Token": "header-secret"})
    model._url = model._url.replace("//", f"//user:{KEY}@") + f"?key={KEY}"
    assert KEY not in f"{model!r} {model.identity()!r}"
    assert "header-secret" not in f"{model!r}"


def test_a_missing_package_says_how_to_install_it(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    package = {"OpenAICompatible": "openai", "Anthropic": "anthropic", "Gemini": "google.genai"}
    monkeypatch.setitem(__import__("sys").modules, package[type(model).__name__], None)
    with pytest.raises(MissingDataError, match=r"pip install 'sag-research\[llm\]'"):
        model.complete(ASKED)
    assert model.identity().model == "m", "a replay needs no package"


def test_choices_are_refused_where_nothing_holds_the_model_to_them(make: Maker) -> None:
    with pytest.raises(UsageError, match="choices"):
        make().complete(as_request({"messages": [], "choices": ["a", "b"]}))
