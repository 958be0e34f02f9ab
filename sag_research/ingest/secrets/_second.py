"""A second opinion: the detectors of detect-secrets, where that package is installed.

Its detectors are used on texts, one by one; its scanning of files, its filters and its asking of
services whether a key is alive are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

__all__ = ["second_opinion", "second_version"]

_LONGEST_LINE: Final = 4_096
"""Characters: some of its patterns take the square of a line's length."""
_SHORTEST: Final = 8
"""Characters of what is taken for a secret: a shorter one stands anywhere."""
_DETECTORS: Final = {
    "artifactory": "ArtifactoryDetector",
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "cloudant": "CloudantDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "ibm_cloud_iam": "IbmCloudIamDetector",
    "ibm_cos_hmac": "IbmCosHmacDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "softlayer": "SoftlayerDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Left out: those that go by entropy, which flag every digest, by keywords or IP numbers, and the
one for private keys, which sees only their first line."""


@lru_cache(1)
def second_version() -> str | None:
    """Return the version of detect-secrets, where it is installed."""
    try:
        return version("detect-secrets")
    except PackageNotFoundError:
        return None


@lru_cache(1)
def _detectors() -> tuple[tuple[str, Any], ...]:
    if second_version() is None:
        return ()
    return tuple(
        (f"ds-{module.replace('_', '-')}", getattr(_module(module), name)())
        for module, name in _DETECTORS.items()
    )


def _module(name: str) -> Any:
    return import_module(f"detect_secrets.plugins.{name}")


def second_opinion(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind and span of what the detectors find in a text."""
    detectors = _detectors()
    if not detectors or len(text) < _SHORTEST:
        return
    read = text
    if len(text) > _LONGEST_LINE:
        lines = text.splitlines()
        read = "\n".join(line for line in lines if len(line) <= _LONGEST_LINE)
    for kind, detector in detectors:
        for secret in set(detector.analyze_string(read)):
            yield from _spans(kind, text, secret)


def _spans(kind: str, text: str, secret: str) -> Iterator[tuple[str, int, int]]:
    start = text.find(secret) if len(secret) >= _SHORTEST else -1
    while start >= 0:
        yield kind, start, start + len(secret)
        start = text.find(secret, start + len(secret))
