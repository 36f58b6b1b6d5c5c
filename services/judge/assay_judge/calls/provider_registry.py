"""The provider clients of a process: one per judge, connected on first use."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, OverloadedError, Problem, SetupError
from assay.local_stack.install_hint import install_hint
from assay.parsing.model_tables import matches, read_table
from assay.parsing.secret_references import SCHEME, parse_path
from assay.process.logs import keep_out_of_logs
from assay.process.redaction import Redactor
from assay.process.secret_stores import REREAD_S, value_problem
from assay.providers.client import missing_package
from assay_judge.calls.provider_client import ProviderClient
from assay_judge.calls.rate_limiter import Limits
from assay_judge.providers.provider import ConnectedProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.http.egress import Egress
    from assay.process.secret_stores import SecretStore
    from assay_judge.calls.prices import PriceTable
    from assay_judge.calls.retry_policy import RetryPolicy
    from assay_judge.judges import JudgeChoice
    from assay_judge.providers.provider import Provider

_MAX_CLIENTS = 1_000
_MODELS_AT_ONCE = 8  # models of one service share its connections
_WHERE = "of the judge service, or a variable with --secret-variables"


class ProviderRegistry:
    """Connects provider clients.

    Args:
        environment: The environment variables that hold keys.
        secrets: The store of keys that are secrets.
        prices: The prices of judges.
        limits: Rate limits by pattern.
        retry_policy: Attempts, timeouts and backoff.
        max_concurrency: Most calls in flight per judge.
        egress_of: Returns the egress rules of a judge's calls.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        prices: PriceTable,
        *,
        secrets: SecretStore,
        limits: Sequence[dict[str, Any]] = (),
        retry_policy: RetryPolicy,
        max_concurrency: int,
        egress_of: Callable[[JudgeChoice], Egress],
    ) -> None:
        self._environment = environment
        self._secrets = secrets
        self._prices = prices
        self._limits = limits
        self._retry_policy = retry_policy
        self._egress_of = egress_of
        self._max_concurrency = max_concurrency
        self._providers: dict[tuple[str, str, str], Provider] = {}
        self._clients: dict[tuple[str, str, str, str], ProviderClient] = {}
        self._connecting = asyncio.Lock()
        self._keys: frozenset[str] = frozenset()
        self._redactor = Redactor()
        self._used: dict[tuple[str, str, str], str] = {}
        """The key in use, by service."""
        self._read_s: dict[str, float] = {}
        """When each secret was last read."""
        self._earlier: list[Provider] = []
        """Connections with a rotated key, on which calls may still be in flight."""

    async def client(self, choice: JudgeChoice) -> ProviderClient:
        """Return the provider client of a judge.

        Raises:
            SetupError: The provider's package or the key is missing.
            OverloadedError: Too many judges are connected.
        """
        name = (choice.provider, choice.base_url, choice.key_name, choice.model)
        client = self._clients.get(name)
        if client is None or self._is_rotated(choice):
            async with self._connecting:
                client = self._clients.get(name)
                if client is None:
                    if len(self._clients) >= _MAX_CLIENTS:
                        raise OverloadedError(
                            f"too many provider clients: {_MAX_CLIENTS} judges are connected", reason="QUEUE_FULL"
                        )
                    client = self._clients[name] = await self._connect_client(choice)
                else:
                    await self._reconnect(choice)
        return client

    def check(self, choice: JudgeChoice, *, capped: bool) -> None:
        """Check that a judge can be called, without connecting to it.

        Args:
            choice: The judge.
            capped: Whether its cost is capped.

        Raises:
            SetupError: The provider's package or the key is missing, or the price of a capped judge.
        """
        self._key(choice)
        _require_installed(choice)
        if capped and self._prices.find(choice) is None:
            raise SetupError(self._prices.no_price(choice), reason="JUDGE_PRICE_UNKNOWN")

    def redact(self, text: str) -> str:
        """Return the text without any key or the beginning of a key."""
        return self._redactor.redact(text)

    def _without_long_keys(self, text: str) -> str:
        """Return a judge's reply without keys, except keys so short that ordinary words may contain them."""
        return self._redactor.redact_line(text)

    async def aclose(self) -> None:
        """Close all connections."""
        for provider in (*self._earlier, *self._providers.values()):
            await provider.aclose()

    async def _connect_client(self, choice: JudgeChoice) -> ProviderClient:
        service = (choice.provider, choice.base_url, choice.key_name)
        provider = self._providers.get(service)
        if provider is None:
            provider = await self._connect_provider(choice)
        return ProviderClient(
            provider,
            choice.model,
            self._prices,
            limits=self._limits_of(choice),
            retry_policy=self._retry_policy,
            choice=choice,
            redact=self._without_long_keys,
        )

    async def _connect_provider(self, choice: JudgeChoice) -> Provider:
        service = (choice.provider, choice.base_url, choice.key_name)
        key = self._key(choice)
        # The packages take a second or two to import.
        calls = _MODELS_AT_ONCE * self._max_concurrency
        provider = await asyncio.to_thread(_connect, choice, key, calls, self._egress_of(choice))
        self._providers[service], self._used[service] = provider, key
        return provider

    def _is_rotated(self, choice: JudgeChoice) -> bool:
        """Return whether a secret differs from the key in use, or is gone; it is read every 5 s."""
        name = choice.key_name
        if not name.startswith(SCHEME) or time.monotonic() - self._read_s.get(name, 0.0) < REREAD_S:
            return False
        return self._key(choice) != self._used.get((choice.provider, choice.base_url, name))

    async def _reconnect(self, choice: JudgeChoice) -> None:
        service = (choice.provider, choice.base_url, choice.key_name)
        if self._key(choice) == self._used[service]:
            return  # another call has reconnected already
        self._earlier.append(self._providers[service])
        provider = await self._connect_provider(choice)
        for name, client in self._clients.items():
            if name[:3] == service:
                client.use(provider)

    def _key(self, choice: JudgeChoice) -> str:
        name = choice.key_name
        if not name:
            return ""
        if name.startswith(SCHEME):
            key = self._secret(choice)
        elif not (key := self._environment.get(name, "")):
            raise SetupError(
                f"the judge {choice.identity} needs a key: {name} is not set where the judge service "
                "runs; set it there and restart the service",
                reason="JUDGE_KEY_MISSING",
            )
        if not (key.isascii() and key.isprintable()) or key != key.strip():
            raise SetupError(f"{name} is not a valid key: it must be printable ASCII without spaces around it",
                             reason="JUDGE_KEY_MISSING")  # fmt: skip
        if key not in self._keys:
            self._keys |= {key}
            self._redactor = Redactor(secrets=self._keys)
            keep_out_of_logs((), self._keys)
        return key

    def _secret(self, choice: JudgeChoice) -> str:
        reference = parse_path(choice.key_name.removeprefix(SCHEME))
        value = self._secrets.read(reference) if reference is not None and reference.team else None
        if problem := value_problem(value, choice.key_name, _WHERE):
            raise SetupError(f"the judge {choice.identity} needs a key: {problem}", reason="JUDGE_KEY_MISSING")
        self._read_s[choice.key_name] = time.monotonic()
        return value or ""

    def _limits_of(self, choice: JudgeChoice) -> Limits:
        place = {"provider": choice.provider, "model": choice.model, "base_url": choice.url}
        entry = next((entry for entry in self._limits if matches(entry, place)), {})
        return Limits(
            entry.get("requests_per_minute") or None,
            entry.get("tokens_per_minute") or None,
            min(self._max_concurrency, int(entry.get("max_concurrency") or self._max_concurrency)),
        )


def read_limits(path: Path | None) -> list[dict[str, Any]]:
    """Return the entries of a limits file; 0 means no limit.

    Raises:
        InvalidInputError: The file is invalid; lists all problems.
    """
    if path is None:
        return []
    return read_table(path, "limits", ("requests_per_minute", "tokens_per_minute", "max_concurrency"))


def _connect(choice: JudgeChoice, key: str, concurrency: int, egress: Egress) -> Provider:
    _require_installed(choice)
    try:
        return ConnectedProvider(choice.provider, choice.url, key, concurrency, egress)
    except ValueError as error:
        raise InvalidInputError([Problem(f"cannot be called ({error})", "judge.base_url")]) from None


def _require_installed(choice: JudgeChoice) -> None:
    missing = missing_package(choice.provider, "where the judge service runs")
    if missing:
        raise SetupError(
            f"judges of {choice.provider} need {missing}: {install_hint('judge')}", reason="JUDGE_NOT_INSTALLED"
        )
