"""Made-up secrets of many kinds, and what looks like one and is none.

Everything is drawn when asked for, from shapes: no text in this file is like a key.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

LETTERS = string.ascii_letters
ALPHABETS = {
    "A": LETTERS + string.digits,
    "U": LETTERS + string.digits + "_-",
    "x": "0123456789abcdef",
    "L": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "B": LETTERS + string.digits + "+/",
    "D": string.digits,
    "E": LETTERS,
}
SHAPE = re.compile(r"<([AUxLlBDE])(\d+)>")
UUID = "<x8>-<x4>-<x4>-<x4>-<x12>"

# kind, shape of the secret, and the text around it
SHAPES: list[tuple[str, str, str]] = [
    ("aws-access-key-id", "AKIA<L16>", "{}"),
    ("aws-secret-access-key", "<B40>", "aws_secret_access_key = {}"),
    ("aws-session-token", "<B300>", "AWS_SESSION_TOKEN={}"),
    ("github-token", "ghp_<A36>", "{}"),
    ("github-oauth-token", "gho_<A36>", "{}"),
    ("github-fine-grained-token", "github_pat_<A22>_<A59>", "{}"),
    ("gitlab-token", "glpat-<U20>", "{}"),
    ("bitbucket-token", "ATBB<A32>", "{}"),
    ("atlassian-token", "ATATT3xFfGF0<U180>=<L8>", "{}"),
    ("openai-key-old", "sk-<A20>T3BlbkFJ<A20>", "{}"),
    ("openai-project-key", "sk-proj-<U100>", "{}"),
    ("anthropic-key", "sk-ant-api03-<U93>AA", "{}"),
    ("openrouter-key", "sk-or-v1-<x64>", "{}"),
    ("google-api-key", "AIza<U35>", "{}"),
    ("google-oauth-client-secret", "GOCSPX-<U28>", "{}"),
    ("google-oauth-token", "ya29.<U120>", "{}"),
    ("huggingface-token", "hf_<E34>", "{}"),
    ("replicate-token", "r8_<A37>", "{}"),
    ("groq-key", "gsk_<A52>", "{}"),
    ("xai-key", "xai-<A80>", "{}"),
    ("perplexity-key", "pplx-<A48>", "{}"),
    ("nvidia-key", "nvapi-<U64>", "{}"),
    ("langsmith-key", "lsv2_pt_<x32>_<x10>", "{}"),
    ("slack-bot-token", "xoxb-<D12>-<D12>-<A24>", "{}"),
    ("slack-app-token", "xapp-1-<L11>-<D13>-<x64>", "{}"),
    ("slack-webhook", "T<L8>/B<L10>/<A24>", "https://hooks.slack.com/services/{}"),
    ("discord-token", "MT<A24>.G<A5>.<U38>", "{}"),
    ("telegram-token", "<D10>:AA<U33>", "{}"),
    ("stripe-live-key", "sk_live_<A24>", "{}"),
    ("stripe-test-key", "rk_test_<A99>", "{}"),
    ("stripe-webhook-secret", "whsec_<A32>", "{}"),
    ("square-token", "sq0atp-<U22>", "{}"),
    ("shopify-token", "shpat_<x32>", "{}"),
    ("plaid-token", f"access-sandbox-{UUID}", "{}"),
    ("azure-storage-key", "<B86>==", "DefaultEndpointsProtocol=https;AccountKey={};"),
    ("azure-client-secret", "<A3>8Q~<A34>", "{}"),
    ("npm-token", "npm_<A36>", "{}"),
    ("npmrc-auth", UUID, "//registry.npmjs.org/:_authToken={}"),
    ("pypi-token", "pypi-AgEIcHlwaS5vcmc<U150>", "{}"),
    ("rubygems-key", "rubygems_<x48>", "{}"),
    ("docker-hub-token", "dckr_pat_<U27>", "{}"),
    ("circleci-token", "CCIPAT_<A22>_<x40>", "{}"),
    ("sentry-token", "sntryu_<x64>", "{}"),
    ("digitalocean-token", "dop_v1_<x64>", "{}"),
    ("databricks-token", "dapi<x32>", "{}"),
    ("vault-token", "hvs.<U96>", "{}"),
    ("terraform-token", "<A14>.atlasv1.<U67>", "{}"),
    ("doppler-token", "dp.pt.<A43>", "{}"),
    ("fly-token", "fo1_<U43>", "{}"),
    ("supabase-token", "sbp_<x40>", "{}"),
    ("tailscale-key", "tskey-auth-<A17>-<A32>", "{}"),
    ("sendgrid-key", "SG.<U22>.<U43>", "{}"),
    ("mailchimp-key", "<x32>-us12", "{}"),
    ("mailgun-key", "key-<x32>", "{}"),
    ("twilio-key", "SK<x32>", "{}"),
    ("postman-key", "PMAK-<x24>-<x34>", "{}"),
    ("linear-key", "lin_api_<A40>", "{}"),
    ("notion-token", "ntn_<A46>", "{}"),
    ("airtable-token", "pat<A14>.<x64>", "{}"),
    ("figma-token", "figd_<U40>", "{}"),
    ("newrelic-key", "NRAK-<L27>", "{}"),
    ("grafana-token", "glsa_<A32>_<x8>", "{}"),
    ("dynatrace-token", "dt0c01.<L24>.<L64>", "{}"),
    ("jwt", "", "{}"),
    ("private-key-rsa", "", "{}"),
    ("private-key-openssh", "", "{}"),
    ("age-secret-key", "AGE-SECRET-KEY-1<L58>", "{}"),
    ("authorization-bearer", "<A40>", "Authorization: Bearer {}"),
    ("authorization-basic", "", "Authorization: Basic {}"),
    ("api-key-header", "<x40>", "X-Api-Key: {}"),
    ("session-cookie", "<A32>", "Set-Cookie: sessionid={}; Path=/"),
    ("postgres-url", "<A14>7q", "postgresql://svc:{}@db.internal:5432/app"),
    ("mongodb-url", "<A14>3z", "mongodb+srv://svc:{}@cluster0.internal/app"),
    ("redis-url", "<A14>5k", "redis://:{}@cache.internal:6379/0"),
    ("password-env", "<A12>9!x", "export DB_PASSWORD={}"),
    ("password-quoted", "<A8>4$<A4>", "password = '{}'"),
    ("netrc", "<A14>2", "machine git.internal login bot password {}"),
    ("generic-api-key", "<A32>7", "api_key: {}"),
    ("generic-secret", "<x32>", 'client_secret="{}"'),
    ("sshpass", "<A10>6w", "sshpass -p '{}' ssh bot@host"),
    ("curl-user", "<A12>8r", "curl -u bot:{} https://api.internal/"),
]
LOW = {
    "postgres-url", "mongodb-url", "redis-url", "password-env", "password-quoted", "netrc",
    "sshpass", "curl-user", "authorization-basic", "generic-api-key", "generic-secret",
}  # fmt: skip
"""Kinds of which no digest is to be published."""


class Seed(NamedTuple):
    kind: str
    variant: str
    secret: str
    text: str


def drawn(rng: random.Random, shape: str) -> str:
    """Fill a shape."""
    return SHAPE.sub(
        lambda found: "".join(rng.choices(ALPHABETS[found[1]], k=int(found[2]))), shape
    )


def secret_of(rng: random.Random, kind: str, shape: str) -> str:
    if kind == "jwt":
        head, body = (
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": drawn(rng, "<D10>"), "iat": 15})
        )
        return f"{head}.{body}.{drawn(rng, '<U43>')}"
    if kind.startswith("private-key"):
        name = {"private-key-rsa": "RSA", "private-key-openssh": "OPENSSH"}[kind]
        lines = "\n".join(drawn(rng, "<B64>") for _ in range(12))
        begin, end = (f"{'-' * 5}{word} {name} PRIVATE KEY{'-' * 5}" for word in ("BEGIN", "END"))
        return f"{begin}\n{lines}\n{end}"
    if kind == "authorization-basic":
        return base64.b64encode(f"bot:{drawn(rng, '<A16>')}".encode()).decode()
    secret = drawn(rng, shape)
    # a draw without a digit is not like a key of these services
    return secret if any(map(str.isdigit, secret)) or "<E" in shape else drawn(rng, shape)


def pieces(rng: random.Random, text: str, n: int) -> list[str]:
    """Part a text at random places, none near its ends."""
    cuts = sorted(rng.sample(range(3, max(len(text) - 3, 3 + n)), n - 1))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def plain(rng: random.Random, text: str, secret: str) -> str:
    return f"$ cat settings\n{text.format(secret)}\n$ ls\nsrc tests"


def ansi(rng: random.Random, text: str, secret: str) -> str:
    codes = ["\x1b[31m", "\x1b[0m", "\x1b[1;38;5;12m", "\x1b[K", "\x1b[m"]
    parts = pieces(rng, secret, 4)
    coloured = "".join(rng.choice(codes) + part for part in parts)
    return f"out: {text.format(coloured)}\x1b[0m\r\nnext line"


def breaks(rng: random.Random, text: str, secret: str) -> str:
    parts = pieces(rng, secret, rng.choice([2, 2, 3]))
    return (
        f"result\n{text.format(rng.choice([chr(10), chr(13) + chr(10)]).join(parts))}\nDone in 3 s"
    )


def encoded(rng: random.Random, text: str, secret: str) -> str:
    data = base64.b64encode(f"env: {text.format(secret)}\nlog: on\n".encode()).decode()
    return f"data: {data} (base64)"


def encoded_lines(rng: random.Random, text: str, secret: str) -> str:
    data = base64.b64encode(f"env: {text.format(secret)}\nlog: on\n".encode()).decode()
    lines = "\n".join(data[at : at + 76] for at in range(0, len(data), 76))
    return f"$ base64 settings\n{lines}\n$ ls"


def traceback(rng: random.Random, text: str, secret: str) -> str:
    told = text.format(secret)
    return (
        'Traceback (most recent call last):\n  File "/app/main.py", line 7, in run\n'
        "    client.call(settings)\n    locals:\n"
        f"        settings = {told!r}\n        n = 3\nTimeoutError: no answer"
    )


def in_json(rng: random.Random, text: str, secret: str) -> str:
    inner = json.dumps({"out": f"line\n\t{text.format(secret)}\n", "ok": True}).replace("/", "\\/")
    return json.dumps({"role": "tool", "content": inner})


def in_url(rng: random.Random, text: str, secret: str) -> str:
    if text != "{}" or "\n" in secret:
        return ""
    return f"GET https://api.internal/v1/items?page=2&k={quote(secret, safe='')}&n=3 HTTP/1.1"


VARIANTS: dict[str, Callable[[random.Random, str, str], str]] = {
    "plain": plain,
    "ansi": ansi,
    "line breaks": breaks,
    "base64": encoded,
    "base64 in lines": encoded_lines,
    "traceback": traceback,
    "json": in_json,
    "url": in_url,
}


def seeds(seed: int = 0, rounds: int = 1) -> Iterator[Seed]:
    """Yield every kind in every variant that makes sense for it."""
    rng = random.Random(seed)
    for _ in range(rounds):
        for kind, shape, text in SHAPES:
            for name, variant in VARIANTS.items():
                secret = secret_of(rng, kind, shape)
                if name == "line breaks" and kind.startswith("private-key"):
                    made = plain(rng, text, secret.replace("\n", "\r\n"))
                else:
                    made = variant(rng, text, secret)
                if made:
                    yield Seed(kind, name, secret, made)


def remains(text: str, secret: str) -> bool:
    """Tell whether a text still gives a secret away: any eight characters of it in a row.

    This looks on its own: it takes out colours, breaks and escapes, and opens base64.
    """
    sought = secret.replace("\r", "").replace("\n", "")
    if "PRIVATE KEY" in sought:
        sought = sought.split("-----")[2]
    size = min(8, len(sought))
    # what is the same in all keys of a kind gives nothing away
    windows = {
        sought[at : at + size] for at in range(min(12, len(sought) - size), len(sought) - size + 1)
    }
    return any(_holds(one, windows) for one in _open(text))


def _holds(text: str, windows: set[str]) -> bool:
    return any(window in text for window in windows)


def _open(text: str) -> Iterator[str]:
    flat = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    for _ in range(3):
        yield flat
        joined = re.sub(r"\s", "", flat)
        yield joined
        for run in re.findall(r"[A-Za-z0-9+/]{16,}", joined):
            for skip in range(4):
                part = run[skip:]
                part = part[: len(part) // 4 * 4]
                yield base64.b64decode(part).decode("latin-1")
        flat = re.sub(r"\\(?:n|r|t)", "\n", flat).replace("\\", "")


# ---- what is no secret


def harmless(seed: int = 0, each: int = 10) -> Iterator[tuple[str, str]]:
    """Yield kind and text of what must stay as it is."""
    rng = random.Random(f"harmless {seed}")  # else it would draw what the secrets are made of
    for _ in range(each):
        for kind, text in HARMLESS:
            yield kind, drawn(rng, text)
        image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + rng.randbytes(3_000)).decode()
        yield "image in base64", f'<img src="data:image/png;base64,{image}">'
        lines = "\n".join(image[at : at + 76] for at in range(0, len(image), 76))
        yield "image in lines of base64", f"Content-Transfer-Encoding: base64\n\n{lines}\n"


HARMLESS: list[tuple[str, str]] = [
    ("git log", "commit <x40>\nAuthor: A <a@b.c>\n\n    fix the parser\n\ncommit <x40>"),
    ("git log, short", "<x7> (HEAD -> main) token: refresh it\n<x9> add password reset"),
    ("git diff", "diff --git a/x.py b/x.py\nindex <x7>..<x7> 100644\n--- a/x.py\n+++ b/x.py"),
    ("git objects", "100644 blob <x40>\tREADME.md\n040000 tree <x40>\tsrc"),
    ("md5", "<x32>  dist/app.tar.gz\nMD5 (a.txt) = <x32>"),
    ("sha256", "<x64>  app.whl\nsha256:<x64>"),
    ("sha512", "<x128>  image.iso"),
    ("docker digest", "Digest: sha256:<x64>\nimage@sha256:<x64>\n<x12> Pull complete"),
    ("uuid", f"request {UUID} done, trace_id={UUID}"),
    ("trace id", "traceparent: 00-<x32>-<x16>-01"),
    ("npm integrity", '"integrity": "sha512-<B86>=="'),
    ("pip hash", "flask==3.0.0 \\\n    --hash=sha256:<x64> \\\n    --hash=sha256:<x64>"),
    ("poetry lock", '{file = "x.whl", hash = "sha256:<x64>"}'),
    ("go sum", "golang.org/x/text v0.3.7 h1:<B43>="),
    ("cargo lock", 'checksum = "<x64>"'),
    ("subresource", '<script integrity="sha384-<B64>" src="a.js">'),
    ("etag", 'ETag: W/"<x32>"\nX-Request-Id: <x32>'),
    ("cache key", "cache_key=<x32>\ncache key: <x40>\ncontent_hash: <x64>"),
    ("public key", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<B43> me@host"),
    ("certificate", "-----BEGIN CERTIFICATE-----\n<B64>\n<B64>\n<B64>\n-----END CERTIFICATE-----"),
    ("address", "<object at 0x<x12>> at 0x<x16>"),
    ("test names", "tests/test_auth.py::TestToken::test_password_reset_token[case-<D2>] PASSED"),
    ("test name, long", "test_secret_key_fallbacks_are_used_for_password_reset_tokens_<D3> ... ok"),
    ("pytest summary", "FAILED tests/test_api_key.py::test_access_token_expired_<D2> - KeyError"),
    ("code, call", "token = get_token(request)\npassword = form.cleaned_data['password<D1>']"),
    ("code, env", "api_key=os.environ['API_KEY']\nSECRET_KEY = config.SECRET_KEY"),
    ("code, types", "def login(user: str, password: str, token: str | None = None) -> Token:"),
    ("code, names", "password=password, token=token, secret_key=settings.secret_key_<D1>"),
    ("code, forms", "password = forms.CharField(widget=forms.PasswordInput, max_length=<D3>)"),
    ("prose", "Enter your password: \nThe token: a string of <D2> characters. Secret is required."),
    ("prompt", "Password for 'https://example.com': \nAuthorization: Bearer token is missing"),
    ("placeholders", "API_KEY=your-api-key-here\npassword: <your password>\ntoken: ${TOKEN}"),
    ("placeholders, x", "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx\ntoken=xxxxxxxxxxxxxxxxxxxx"),
    ("usage", "tokens_in: <D5>, tokens_out: <D4>, total_tokens=<D6>, max_tokens: <D4>"),
    ("packages", "scikit-learn-1.<D1>.0 task-sk-learn-extensions-for-intel disk-utils-<D2>"),
    ("branches", "feature/add-token-refresh-<D3> risk-assessment-for-the-quarterly-report-<D4>"),
    ("paths", "/usr/lib/python3.11/site-packages/django/contrib/auth/password_validation.py:<D3>"),
    ("urls", "https://example.com:8080/a?id=<x24>&page=2 git+https://github.com/a/b.git@<x40>"),
    ("emails", "mailto:someone<D3>@example.com, http://localhost:8000\nsomeone@example.com"),
    ("versions", "Python 3.11.<D1> (main, Dec  4 2023, 18:10:11) [GCC 12.<D1>.0] on linux"),
    ("times", "2024-05-<D2>T10:11:12.<D6>Z 1717171<D6> 0:00:<D2>"),
    ("numbers", "[0.<D16>, -1.<D16>, 3.<D15>e-05] 0x<x8> <D19>"),
    ("minified", 'var a="<A12>";function b(c){return c.d("<A8>")}e.exports={f:"<x20>",g:!0}'),
    ("base64 of bytes", "payload: <B400>=="),
    ("session log", "session <x32> opened for user root, id=<x24>"),
    ("conda", "numpy-1.26.<D1>-py311h<x7>_0.conda sha256=<x64>"),
    ("arn", "arn:aws:iam::<D12>:role/deploy-role-<l8>"),
    ("id", '{"id": "chatcmpl-<A29>", "call_id": "call_<A24>", "tool": "toolu_<A22>"}'),
]
