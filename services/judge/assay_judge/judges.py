"""Judges: the choice of a request, and the permission to name it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import InvalidInputError, Problem
from assay.http.addresses import dial_problem
from assay.parsing.names import unknown_name
from assay.parsing.secret_references import SCHEME, form_problem
from assay.providers.own_services import KEY_VARIABLES, OWN_URLS
from assay.providers.prices import price_number_problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.model_price import ModelPrice

PROVIDERS = ("anthropic", "openai", "replay", "none")
DEFAULT_TEMPERATURE = 0.1
DEFAULT_MAX_TOKENS = 2_048
_MAX_TOKENS = 100_000
_MAX_NAME_CHARS = 300


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """One judge with its parameters.

    Args:
        provider: "anthropic", "openai", "replay" or "none".
        model: The model's id.
        base_url: The service; empty for the provider's own.
        key_variable: Environment variable with the key, or secret://TEAM/NAME. Empty for the provider's usual variable
            at its own service, and for no key at any other.
        temperature: Requested sampling temperature; None for none.
        max_tokens: Most tokens of a verdict.
        prices: Prices from the request, which are not part of the judge's identity; None for none.
    """

    provider: str = "none"
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    temperature: float | None = DEFAULT_TEMPERATURE
    max_tokens: int = DEFAULT_MAX_TOKENS
    prices: ModelPrice | None = None

    @property
    def identity(self) -> str:
        """The judge's name in keys and records, e.g. "openai:gpt-4o-mini" or "openai:llama3@http://host/v1"."""
        if self.provider == "replay":
            return self.model
        return f"{self.provider}:{self.model}" + (f"@{self.base_url}" if self.base_url else "")

    @property
    def url(self) -> str:
        """The URL of the service; empty for a provider without a service."""
        return self.base_url or OWN_URLS.get(self.provider, "")

    @property
    def key_name(self) -> str:
        """The environment variable or the secret with the key; empty if no key is sent."""
        return self.key_variable or ("" if self.base_url else KEY_VARIABLES.get(self.provider, ""))

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that affect verdicts, besides the model."""
        return {"temperature": self.temperature, "max_tokens": self.max_tokens}

    def problems(self, where: str) -> list[Problem]:
        """Return the problems of the choice, with their fields below `where`."""
        asks = self.provider in OWN_URLS
        checks = [
            (self.provider not in PROVIDERS, "provider", unknown_name("provider", self.provider, PROVIDERS)),
            (asks and not self.model.strip(), "model", "is empty: name the model that judges"),
            (len(self.model) > _MAX_NAME_CHARS, "model", f"is longer than {_MAX_NAME_CHARS} characters"),
            (not asks and bool(self.base_url), "base_url", f"has no meaning for {self.provider}: remove it"),
            (bool(self.base_url) and not _is_plain_url(self.base_url), "base_url",
             "must be http(s)://host[:port][/path] in plain lower-case ASCII, without a user, a query or a fragment"),
            (bool(problem := self.base_url and _is_plain_url(self.base_url) and dial_problem(self.base_url)),
             "base_url", str(problem)),
            (self.key_variable.startswith(SCHEME) and bool(form_problem(self.key_variable.removeprefix(SCHEME))),
             "key_variable", form_problem(self.key_variable.removeprefix(SCHEME))),
            (self.temperature is not None and not 0 <= self.temperature <= 2, "temperature", "must be from 0 to 2"),
            (not 1 <= self.max_tokens <= _MAX_TOKENS, "max_tokens", f"must be from 1 to {_MAX_TOKENS:,}"),
        ]  # fmt: skip
        problems = [Problem(message, f"{where}{field}") for wrong, field, message in checks if wrong]
        if self.prices is None:
            return problems
        price_problems = price_number_problems(asdict(self.prices))
        return problems + [Problem(message, f"{where}prices.{name}") for name, message in price_problems]

    def remedy(self, status: int) -> str:
        """Return advice for the user of a judge that refuses every request with an HTTP status.

        The advice is in full sentences; empty if the status gives no hint.
        """
        host = urlsplit(self.url).netloc
        if status in (401, 403):
            if self.key_name:
                verb = "Renew" if self.key_name.startswith(SCHEME) else "Set"
                return (
                    f"The judge's key was refused ({status} from {host}). {verb} {self.key_name} where the judge runs."
                )
            return f"The judge needs a key ({status} from {host}). Name the variable that holds it with key_variable."
        if status in (402, 429):
            return f"The judge's account may spend no more ({status} from {host}). Check its plan and billing."
        if status == 404:
            return f"The judge's model {self.model!r} was not found (404 from {host}). Check the model and {self.url}."
        return ""

    def batch_problems(self, services: Sequence[str], where: str) -> list[Problem]:
        """Return why the judge cannot be called in batches.

        Args:
            services: Patterns of scheme://host[:port] of services with a batch API, besides the providers' own.
            where: The field that requests batches.
        """
        if self.provider == "replay":
            return [Problem("is not for recorded verdicts, which cost nothing: leave it out", where)]
        if self.base_url and not _listed(origin_of(self.base_url), services):
            return [
                Problem(
                    f"needs a batch API, and {origin_of(self.base_url)} is not known to have one: leave it out, or "
                    "let the operator list the service with --batch-base-urls",
                    where,
                )
            ]
        return []


@dataclass(frozen=True, slots=True)
class Permissions:
    """The judges, services and keys that requests may name besides the server's own judge.

    Args:
        judges: Patterns of "provider:model".
        base_urls: Patterns of scheme://host[:port].
        key_variables: Patterns of environment variables, optionally with `@` and a pattern of the hosts that may
            receive the key. Secrets need no entry: the orchestrator knows where a team may send them.
    """

    judges: tuple[str, ...] = ()
    base_urls: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()

    def problems(self, choice: JudgeChoice, where: str) -> list[Problem]:
        """Return why a request may not name a judge."""
        problems = []
        name = f"{choice.provider}:{choice.model}"
        if choice.provider not in ("none", "replay") and not _listed(name, self.judges):
            message = f"{name} is not allowed here: the operator can allow it with --allow-judges"
            problems.append(Problem(message, where))
        if choice.base_url and not _listed(origin_of(choice.base_url), self.base_urls):
            message = (
                f"{origin_of(choice.base_url)} is not allowed here: the operator can allow it with --allow-base-urls"
            )
            problems.append(Problem(message, f"{where}.base_url"))
        if choice.key_variable and not choice.key_variable.startswith(SCHEME) and not self._allows_key(choice):
            where_to = choice.url or choice.provider
            message = (
                f"{choice.key_variable} is not allowed here for {where_to}: the operator can allow it with "
                "--allow-key-variables"
            )
            problems.append(Problem(message, f"{where}.key_variable"))
        return problems

    def _allows_key(self, choice: JudgeChoice) -> bool:
        host = urlsplit(choice.url).hostname or ""
        bound = [entry.partition("@") for entry in self.key_variables]
        return any(
            fnmatchcase(choice.key_variable, name) and (not hosts or fnmatchcase(host, hosts))
            for name, _, hosts in bound
        )


def choose_judge(asked: JudgeChoice | None, own: JudgeChoice, permissions: Permissions) -> JudgeChoice:
    """Return the judge for a request.

    Args:
        asked: The judge that the request names; None for the server's own.
        own: The server's own judge.
        permissions: The judges that requests may name.

    Raises:
        InvalidInputError: The choice is invalid or not allowed; lists all problems.
    """
    if asked is None:
        return own
    problems = asked.problems("judge.")
    if not problems and (asked.provider, asked.model, asked.base_url, asked.key_variable) != (
        own.provider, own.model, own.base_url, own.key_variable
    ):  # fmt: skip
        problems = permissions.problems(asked, "judge")
    if problems:
        raise InvalidInputError(problems)
    return asked


def _listed(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def origin_of(url: str) -> str:
    """Return the scheme://host[:port] of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_plain_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        url.isascii()
        and url.isprintable()
        and " " not in url
        and "\\" not in url
        and parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and parts.netloc == parts.netloc.lower()
        and "@" not in parts.netloc
        and not parts.query
        and not parts.fragment
    )
