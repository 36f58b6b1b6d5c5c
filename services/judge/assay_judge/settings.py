"""The operator's settings, given by flag or environment variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.errors import Problem
from assay.http.egress import Egress, IPNetwork, own_networks, read_networks, read_proxy
from assay.process.secret_stores import folder_problem, read_secret_variables
from assay.process.settings import ServiceSettings, flag_of, number, path, setting
from assay_judge.batches.dispatcher import BatchRules
from assay_judge.calls.retry_policy import RetryPolicy
from assay_judge.judges import DEFAULT_MAX_TOKENS, DEFAULT_TEMPERATURE, JudgeChoice, Permissions, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from assay.parsing.secret_references import SecretReference

_HOUR_S = 3_600


def _base_url(text: str) -> str:
    return text.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Settings(ServiceSettings):
    """The settings of one judge process."""

    service = "judge"
    description = "Grades answers with a language model over gRPC."

    listen: str = setting("127.0.0.1:7072", "address to serve at: unix:/path or host:port")
    provider: str = setting("none", "the judge of requests that name none: anthropic, openai, replay or none")
    model: str = setting("", "model of that judge")
    base_url: str = setting(
        "", "a service that speaks the provider's protocol, in place of the provider's own", read=_base_url
    )
    key_variable: str = setting(
        "", "environment variable with its key, in place of the provider's usual one; or secret://TEAM/NAME"
    )
    secrets: Path | None = setting(
        None, "folder of the secrets that are keys of judges: a file TEAM/NAME for each", read=path
    )
    secret_variables: Mapping[SecretReference, str] = setting(
        {}, "variables that hold such secrets: TEAM/NAME=VARIABLE, comma-separated", read=read_secret_variables
    )
    temperature: float | None = setting(DEFAULT_TEMPERATURE, "temperature, for models that accept one")
    max_tokens: int = setting(DEFAULT_MAX_TOKENS, "maximum tokens of a reply, thoughts included")
    allow_judges: tuple[str, ...] = setting(
        (), "further judges that requests may name, as provider:model", metavar="PATTERN"
    )
    allow_base_urls: tuple[str, ...] = setting(
        (), "services that requests may name, as scheme://host[:port]", metavar="PATTERN"
    )
    allow_key_variables: tuple[str, ...] = setting(
        (),
        "environment variables with keys that requests may name, with the hosts that they may be sent to, as in "
        "MODELS_KEY@models.example.org",
        metavar="PATTERN",
    )
    egress_networks: tuple[IPNetwork, ...] | None = setting(
        (),
        "networks that the services of requests may be in beside the public internet: CIDR, comma-separated; * allows "
        "every address",
        read=read_networks,
    )
    egress_proxy: str = setting(
        "", "HTTP proxy for calls of judges, http://host:port; it resolves names", read=read_proxy
    )
    rubrics: tuple[str, ...] = setting((), "a further rubric, as YAML", flag="rubric", metavar="FILE")
    prices: Path | None = setting(None, "prices of models, as YAML or JSON, in place of those shipped", read=path)
    limits: Path | None = setting(None, "rate limits per judge, as YAML or JSON", read=path)
    replay: Path | None = setting(None, "recorded verdicts for the provider replay, as JSON lines", read=path)
    record: Path | None = setting(None, "file to which new verdicts are appended, for a later replay", read=path)
    state_dir: Path | None = setting(None, "folder of verdicts, spending and batches", read=path, home="judge")
    database_url: str = setting(
        "",
        "PostgreSQL for verdicts, spending and batches of replicas, in place of --state-dir; also "
        "ASSAY_DATABASE_URL, safer with a password",
        also="ASSAY_DATABASE_URL",
        is_secret=True,
    )
    database_patience_s: float = setting(60.0, "seconds to retry an unreachable PostgreSQL", least=0)
    cache: bool = setting(True, "answer repeated requests from the cache")
    cache_entries: int = setting(1_000_000, "maximum number of cached verdicts", least=1)
    timeout_s: float = setting(120.0, "deadline of one verdict, in seconds", above=0, most=_HOUR_S)
    attempts: int = setting(5, "maximum attempts at one call, throttled ones not counted", least=1, most=20)
    attempt_timeout_s: float = setting(60.0, "timeout of one attempt, in seconds", above=0, most=_HOUR_S)
    pause_s: float = setting(
        0.5, "maximum backoff before the second attempt, in seconds; doubles with each attempt", above=0, most=60
    )
    max_concurrency: int = setting(32, "maximum calls in flight per judge", least=1, most=1_000)
    queue_limit: int = setting(4_096, "maximum verdicts in flight; further requests are refused", least=1)
    stream_in_flight: int = setting(64, "maximum requests in flight per stream", least=1)
    spend_cap_usd: float | None = setting(None, "spend cap of every run, in US dollars", read=number, least=0)
    batch_base_urls: tuple[str, ...] = setting(
        (), "services with a batch API besides the providers' own, as scheme://host[:port]", metavar="PATTERN"
    )
    batch_wait_s: float = setting(
        10.0, "seconds to collect requests before a batch is submitted", least=0, most=_HOUR_S
    )
    batch_requests: int = setting(10_000, "maximum requests per batch", least=1, most=50_000)
    batch_poll_s: float = setting(
        30.0, "seconds before a batch is first polled; the interval grows", above=0, most=_HOUR_S
    )

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of values that do not fit together, with their flags."""
        if self.provider == "replay" and self.replay is None:
            yield Problem("is missing: name the recorded verdicts", "--replay")
        yield from folder_problem(self.secrets)
        for problem in self.judge.problems(""):
            yield Problem(problem.message, flag_of(problem.field))

    @property
    def judge(self) -> JudgeChoice:
        """The judge for requests that name none."""
        return JudgeChoice(
            self.provider, self.model, self.base_url, self.key_variable, self.temperature, self.max_tokens
        )

    @property
    def permissions(self) -> Permissions:
        """The other judges that requests may name."""
        return Permissions(self.allow_judges, self.allow_base_urls, self.allow_key_variables)

    def egress_of(self, choice: JudgeChoice) -> Egress:
        """Return the egress rules of a judge's calls; only services chosen by a request are limited to the networks."""
        networks = self.egress_networks
        if networks is None or not choice.base_url or choice.base_url == self.base_url:
            return Egress(None, self.egress_proxy)
        host = urlsplit(choice.base_url).hostname or ""
        listed_hosts = [host] if origin_of(choice.base_url) in self.allow_base_urls else []
        return Egress(networks + own_networks(listed_hosts), self.egress_proxy)

    @property
    def retry_policy(self) -> RetryPolicy:
        """Attempts, timeouts and backoff."""
        return RetryPolicy(self.attempts, self.attempt_timeout_s, self.pause_s)

    @property
    def batch_rules(self) -> BatchRules:
        """How batches are formed."""
        return BatchRules(self.batch_wait_s, self.batch_requests, self.batch_poll_s)
