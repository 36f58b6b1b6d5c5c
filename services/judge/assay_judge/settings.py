"""What an operator may set, by flag or by environment variable."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.runtime.logs import LogSettings
from assay.runtime.settings_flags import SettingsFlags, flag
from assay_judge.batches.dispatcher import BatchRules
from assay_judge.calls.retry_policy import RetryPolicy
from assay_judge.judges import JudgeChoice, Permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DEFAULT_STATE = "~/.assay"


@dataclass(frozen=True, slots=True)
class Settings:
    """How one judge process runs.

    Args:
        listen: Where to listen: "unix:/path" or "host:port".
        judge: The judge of requests that name none.
        permissions: Which other judges requests may name.
        rubrics: Files of further rubrics.
        prices: A file of prices; None for the one that comes with Assay.
        limits: A file of rates that the operator allows; None for none.
        replay: A file of recorded verdicts for the provider "replay".
        record: A file that takes every new verdict.
        state_dir: The folder of verdicts, spending and batches; None: in memory.
        database_url: The PostgreSQL database that all replicas share for them; empty for state_dir.
        database_patience_s: How long an unreachable PostgreSQL is retried, in seconds.
        cache: Whether verdicts are used again.
        cache_entries: Most verdicts that are kept.
        timeout_s: How long one verdict may take, where the request does not say less.
        attempts: Most attempts at one call, besides those that the provider throttled.
        attempt_timeout_s: How long one attempt may take.
        pause_s: Longest pause before the second attempt; doubled before each further one.
        max_concurrency: Most calls at once of one judge.
        queue_limit: Most verdicts in flight; more are refused.
        stream_in_flight: Requests of one stream that are worked on at once.
        spend_cap_usd: Most that any run may spend, in US dollars; None for no cap.
        batch_base_urls: Services with a batch API besides the providers' own, as patterns of scheme://host[:port].
        batch_wait_s: How long requests are collected before they are submitted as a batch.
        batch_requests: Most requests of one batch.
        batch_poll_s: Pause before a batch is first polled, in seconds; grows with each poll.
        grace_s: Grace period of running calls after SIGTERM, in seconds.
        reflection: Whether tools may ask for the contract.
        exit_with_lock: The process ends when no other process holds this file's lock; None: it stays.
        log: What this process logs.
    """

    listen: str = "127.0.0.1:7072"
    judge: JudgeChoice = field(default_factory=JudgeChoice)
    permissions: Permissions = field(default_factory=Permissions)
    rubrics: tuple[Path, ...] = ()
    prices: Path | None = None
    limits: Path | None = None
    replay: Path | None = None
    record: Path | None = None
    state_dir: Path | None = None
    database_url: str = field(default="", repr=False)
    database_patience_s: float = 60.0
    cache: bool = True
    cache_entries: int = 1_000_000
    timeout_s: float = 120.0
    attempts: int = 5
    attempt_timeout_s: float = 60.0
    pause_s: float = 0.5
    max_concurrency: int = 32
    queue_limit: int = 4_096
    stream_in_flight: int = 64
    spend_cap_usd: float | None = None
    batch_base_urls: tuple[str, ...] = ()
    batch_wait_s: float = 10.0
    batch_requests: int = 10_000
    batch_poll_s: float = 30.0
    grace_s: float = 10.0
    reflection: bool = True
    exit_with_lock: Path | None = None
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        cap = self.spend_cap_usd
        checks = [
            (not self.listen, "listen", "is empty; give unix:/path or host:port"),
            (
                self.judge.provider == "replay" and self.replay is None,
                "replay",
                "is missing: name the recorded verdicts",
            ),
            (self.cache_entries < 1, "cache_entries", "is below 1; use --no-cache to keep no verdicts"),
            (self.database_patience_s < 0, "database_patience_s", "is negative"),
            (not 0 < self.timeout_s <= 3_600, "timeout_s", "must be above 0 and at most 3600"),
            (not 1 <= self.attempts <= 20, "attempts", "must be from 1 to 20"),
            (not 0 < self.attempt_timeout_s <= 3_600, "attempt_timeout_s", "must be above 0 and at most 3600"),
            (not 0 < self.pause_s <= 60, "pause_s", "must be above 0 and at most 60"),
            (not 1 <= self.max_concurrency <= 1_000, "max_concurrency", "must be from 1 to 1000"),
            (self.queue_limit < 1, "queue_limit", "is below 1"),
            (self.stream_in_flight < 1, "stream_in_flight", "is below 1"),
            (cap is not None and not (math.isfinite(cap) and cap >= 0), "spend_cap_usd", "must be at least 0"),
            (not 0 <= self.batch_wait_s <= 3_600, "batch_wait_s", "must be from 0 to 3600"),
            (not 1 <= self.batch_requests <= 50_000, "batch_requests", "must be from 1 to 50000"),
            (not 0 < self.batch_poll_s <= 3_600, "batch_poll_s", "must be above 0 and at most 3600"),
            (self.grace_s < 0, "grace_s", "is negative"),
        ]
        problems = [Problem(message, field=flag(name)) for wrong, name, message in checks if wrong]
        problems += [Problem(p.message, field=flag(p.field)) for p in self.judge.problems("")]
        if problems:
            raise InvalidInputError(problems, reason="INVALID_SETTINGS")

    @property
    def retry_policy(self) -> RetryPolicy:
        """Attempts, timeouts and backoff."""
        return RetryPolicy(self.attempts, self.attempt_timeout_s, self.pause_s)

    @property
    def batch_rules(self) -> BatchRules:
        """How batches are made up."""
        return BatchRules(self.batch_wait_s, self.batch_requests, self.batch_poll_s)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings from command line flags, else environment variables, else defaults.

    Args:
        arguments: The command line without the program's name.
        environment: `--max-concurrency` is also ASSAY_JUDGE_MAX_CONCURRENCY, and so on; lists are comma-separated.

    Raises:
        InvalidInputError: All problems, each with its flag.
        SystemExit: Help or the version was asked for.
    """
    return _flags(environment).read(arguments, _settings)


def _settings(given: dict[str, Any]) -> Settings:
    given["rubrics"] = tuple(map(Path, given.pop("rubric")))
    judge = JudgeChoice(
        given.pop("provider"),
        given.pop("model"),
        given.pop("base_url").rstrip("/"),
        given.pop("key_variable"),
        given.pop("temperature"),
        given.pop("max_tokens"),
    )
    permissions = Permissions(given.pop("allow_judges"), given.pop("allow_base_urls"), given.pop("allow_key_variables"))
    return Settings(judge=judge, permissions=permissions, **given)


def _flags(environment: Mapping[str, str]) -> SettingsFlags:
    flags = SettingsFlags("judge", "Grades answers with a language model over gRPC.", "max_concurrency", environment)
    defaults, judge = Settings(), JudgeChoice()

    def add(name: str, text: str, kind: Callable[[str], Any] = str, default: object = None) -> None:
        flags.add(name, text, kind, getattr(defaults, name, None) if default is None else default)

    add("listen", "unix:/path or host:port")
    add("provider", "the judge of requests that name none: anthropic, openai, replay or none", default=judge.provider)
    add("model", "model of that judge", default="")
    add("base_url", "a service that speaks the provider's protocol, in place of its own", default="")
    add("key_variable", "environment variable with its key, in place of the provider's usual one", default="")
    add("temperature", "temperature, for models that accept one", float, judge.temperature)
    add("max_tokens", "maximum tokens of a reply, thoughts included", int, judge.max_tokens)
    flags.several("allow_judges", "PATTERN", "further judges that requests may name, as provider:model")
    flags.several("allow_base_urls", "PATTERN", "services that requests may name, as scheme://host[:port]")
    flags.several("allow_key_variables", "PATTERN", "environment variables with keys that requests may name")
    flags.several("rubric", "FILE", "a further rubric, as YAML")
    add("prices", "prices of models, as YAML or JSON", Path)
    add("limits", "rate limits per judge, as YAML or JSON", Path)
    add("replay", "recorded verdicts for the provider replay, as JSON lines", Path)
    add("record", "file to which new verdicts are appended, for a later replay", Path)
    home = environment.get("ASSAY_HOME") or _DEFAULT_STATE
    add("state_dir", "folder of verdicts, spending and batches", _folder, _folder(f"{home}/judge"))
    url = "PostgreSQL for verdicts, spending and batches of replicas; also ASSAY_DATABASE_URL, safer with a password"
    flags.add("database_url", url, str, "", shown="none", also="ASSAY_DATABASE_URL")
    add("database_patience_s", "seconds to retry an unreachable PostgreSQL", float)
    flags.switch("cache", "answer repeated requests from the cache")
    add("cache_entries", "maximum number of cached verdicts", int)
    add("timeout_s", "deadline of one verdict, in seconds", float)
    add("attempts", "maximum attempts at one call", int)
    add("attempt_timeout_s", "timeout of one attempt, in seconds", float)
    add("pause_s", "maximum backoff before the second attempt, in seconds; doubles with each attempt", float)
    add("max_concurrency", "maximum calls in flight per judge", int)
    add("queue_limit", "maximum verdicts in flight; further requests are refused", int)
    add("stream_in_flight", "maximum requests in flight per stream", int)
    add("spend_cap_usd", "spend cap of every run, in US dollars", float)
    flags.several(
        "batch_base_urls", "PATTERN", "services with a batch API besides the providers' own, as scheme://host[:port]"
    )
    add("batch_wait_s", "seconds to collect requests before a batch is submitted", float)
    add("batch_requests", "maximum requests per batch", int)
    add("batch_poll_s", "seconds before a batch is first polled; the interval grows", float)
    add("grace_s", "grace period of running calls after SIGTERM, in seconds", float)
    flags.switch("reflection", "serve gRPC reflection")
    add("exit_with_lock", "stop when no other process holds this file's shared lock", Path)
    return flags


def _folder(text: str) -> Path:
    return Path(text).expanduser()
