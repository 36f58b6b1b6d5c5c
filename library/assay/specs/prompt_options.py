"""The options of adapters that send a filled prompt to a model provider."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.http.addresses import dial_problem
from assay.parsing.fields import Fields
from assay.parsing.names import kind_of
from assay.providers.own_services import KEY_VARIABLES
from assay.providers.prices import PRICE_NUMBERS, find_price, price_from_mapping, read_prices
from assay.specs.headers import read_headers, read_texts
from assay.specs.prompt_template import template_problem, variables_of
from assay.specs.urls import has_user, http_parts
from assay.specs.variables import NAMED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.model.model_price import ModelPrice

PROMPT_KEYS = ("api", "base_url", "api_key", "headers", "query", "prompt", "prompt_file", "system", "system_file",
               "max_tokens", "temperature", "stream", "prices", "extra")  # fmt: skip
"""The options of a prompt, besides those of every agent."""

_HASHES = ("prompt_sha256", "system_sha256")
_MAX_TEMPLATE_CHARS = 400_000
_MAX_EXTRA_BYTES = 100_000
_MAX_TOKENS = 10_000_000
_DEFAULT_MAX_TOKENS = 1024
_OTHER_NAMES = {"model": "target", "messages": "prompt", "input": "prompt", "instructions": "system",
                "max_output_tokens": "max_tokens", "max_completion_tokens": "max_tokens"}  # fmt: skip
_LIST = "list"
_PRICES_EXAMPLE = "{input: 2.5, output: 10} in US dollars per million tokens"
_PRICE_NUMBERS = tuple(name for name in PRICE_NUMBERS if name != "batch")


@dataclass(frozen=True, slots=True)
class Provider:
    """The differences between providers.

    Args:
        name: The adapter's name.
        max_temperature: Highest temperature; the lowest is 0.
        added_paths: Ends of a URL that the adapter adds itself.
        own_fields: By API, the default first: request fields that the adapter sets, so that `extra` may not.
    """

    name: str
    max_temperature: float
    added_paths: tuple[str, ...]
    own_fields: Mapping[str, tuple[str, ...]]


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            "openai",
            2.0,
            ("/chat/completions", "/responses"),
            {
                "chat": ("model", "messages", "stream", "stream_options", "n", "temperature", "max_tokens",
                         "max_completion_tokens"),
                "responses": ("model", "input", "instructions", "stream", "background", "temperature",
                              "max_output_tokens"),
            },
        ),
        Provider(
            "anthropic",
            1.0,
            ("/v1/messages", "/v1"),
            {"messages": ("model", "messages", "system", "stream", "temperature", "max_tokens")},
        ),
    )
}  # fmt: skip
"""The providers, by adapter name."""


@dataclass(frozen=True, slots=True)
class _PricedModel:
    provider: str
    model: str
    base_url: str


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a prompt is built, and the service it is sent to.

    Args:
        api: The provider's API: "chat", "responses" or "messages".
        base_url: The service's URL; None for the provider's own.
        api_key: The key as ${NAME} of an environment variable, or secret://NAME; None for the provider's usual
            variable.
        headers: Further headers; the caller replaces ${NAME} by an environment variable.
        query: Parameters of the URL, likewise.
        prompt: The template of the user's message; None to send the case's input.
        system: The template of the system text; None if there is none.
        max_tokens: Maximum tokens of an answer.
        temperature: Sampling temperature; None to send none.
        stream: Whether the reply is streamed, so that the time to the first token is measured.
        prices: Token prices; "list" for the list prices of the provider's own service, None if unknown.
        extra: Further request fields.
    """

    api: str = ""
    base_url: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None
    system: str | None = None
    max_tokens: int = _DEFAULT_MAX_TOKENS
    temperature: float | None = None
    stream: bool = False
    prices: ModelPrice | str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates in use; without a prompt, the input is the template."""
        return tuple(text for text in (self.system, "{{input}}" if self.prompt is None else self.prompt) if text)

    def price_of(self, adapter: str, model: str, problems: list[Problem]) -> ModelPrice | None:
        """Return the prices of a model; None if unknown. Append problems to `problems`."""
        if not isinstance(self.prices, str):
            return self.prices
        price = find_price(read_prices(None), _PricedModel(adapter, model, self.base_url or ""), is_own_file=False)
        if price is None:
            here = f"at {self.base_url}" if self.base_url else f"of {model!r}"
            message = f"there is no list price {here}: write the prices, {_PRICES_EXAMPLE}"
            problems.append(Problem(message, "agent.prices"))
        return price

    @classmethod
    def from_options(cls, adapter: str, options: Mapping[str, Any], problems: list[Problem]) -> PromptOptions:
        """Return the options of a spec; append problems to `problems`."""
        provider = PROVIDERS[adapter]
        fields = Fields.of_agent(options, problems)
        unhashed = {name: value for name, value in options.items() if name not in _HASHES}
        Fields.of_agent(unhashed, problems).unknown(PROMPT_KEYS, f"option of the {adapter} adapter")
        prompt = _template(options, "prompt", problems)
        system = _template(options, "system", problems)
        if prompt is not None and not any(variables_of(text) for text in (prompt, system or "")):
            problems.append(
                Problem("has no {{variable}}, so that every case would be asked the same: write {{input}} where the "
                        "case's question belongs, or the name of one of its variables", _place(options, "prompt"))
            )  # fmt: skip
        api = fields.choice("api", tuple(provider.own_fields))
        return cls(
            api=api,
            base_url=_base_url(provider, options.get("base_url"), problems),
            api_key=_api_key(options.get("api_key"), provider, problems),
            headers=read_headers(options.get("headers"), "agent.headers", problems),
            query=read_texts(options.get("query"), "agent.query", problems),
            prompt=prompt,
            system=system,
            max_tokens=fields.whole("max_tokens", _DEFAULT_MAX_TOKENS, 1, _MAX_TOKENS),
            temperature=fields.number("temperature", None, 0, provider.max_temperature),
            stream=fields.flag("stream"),
            prices=_prices(options.get("prices"), problems),
            extra=_extra(options.get("extra"), provider, api, problems),
        )


def read_prompt_files(options: dict[str, Any], base_dir: Path) -> list[Problem]:
    """Add the texts of `prompt_file` and `system_file` and their SHA-256 to the options; return the problems.

    Args:
        options: The options, changed in place.
        base_dir: The folder that relative names are resolved against.
    """
    problems = []
    for name in ("prompt", "system"):
        key = f"{name}_file"
        file = options.get(key)
        if file is None:
            continue
        if name in options:
            problems.append(Problem(f"conflicts with agent.{name}: keep one of them", f"agent.{key}"))
        elif not isinstance(file, str) or not file.strip():
            problems.append(Problem(f"must be a file name, not {file!r}", f"agent.{key}"))
        else:
            problems += _read(options, name, base_dir, file)
    return problems


def _read(options: dict[str, Any], name: str, base_dir: Path, file: str) -> list[Problem]:
    from pathlib import Path

    field_name = f"agent.{name}_file"
    try:
        content = (base_dir / Path(file).expanduser()).read_bytes()
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        return [Problem(f"there is no file {file!r} beside the spec", field_name)]
    except (OSError, RuntimeError) as error:
        return [Problem(f"{file!r} cannot be read: {getattr(error, 'strerror', None) or error}", field_name)]
    except UnicodeDecodeError as error:
        return [Problem(f"{file!r} is not UTF-8 (byte {error.start}): save it as UTF-8", field_name)]
    # The line end that editors append to every file is not part of the prompt.
    options[name] = text.replace("\r\n", "\n").removesuffix("\n")
    options[f"{name}_sha256"] = hashlib.sha256(content).hexdigest()
    return []


def _place(options: Mapping[str, Any], name: str) -> str:
    return f"agent.{name}_file" if f"{name}_file" in options else f"agent.{name}"


def _template(options: Mapping[str, Any], name: str, problems: list[Problem]) -> str | None:
    text, where = options.get(name), _place(options, name)
    problems += [
        Problem(f"must be a string, not {kind_of(options[key])}", f"agent.{key}")
        for key in (f"{name}_file", f"{name}_sha256")
        if not isinstance(options.get(key, ""), str)
    ]
    if text is None:
        if options.get(f"{name}_file") is not None:
            problems.append(Problem(f"has not been read: it comes with its text in agent.{name}", where))
        return None
    if not isinstance(text, str) or not text.strip():
        shown = "an empty string" if isinstance(text, str) else kind_of(text)
        problems.append(Problem(f"must be a string with {{{{variables}}}}, not {shown}", where))
        return None
    if len(text) > _MAX_TEMPLATE_CHARS:
        problems.append(Problem(f"is longer than {_MAX_TEMPLATE_CHARS:,} characters", where))
    elif problem := template_problem(text):
        problems.append(Problem(problem, where))
    return text


def _base_url(provider: Provider, value: object, problems: list[Problem]) -> str | None:
    if value is None:
        return None
    problem = _url_problem(provider, value) if isinstance(value, str) else f"must be a URL, not {value!r}"
    if problem:
        problems.append(Problem(problem, "agent.base_url"))
    return str(value).rstrip("/")


def _url_problem(provider: Provider, url: str) -> str:
    if has_user(url):
        # Checked before any message that repeats the URL.
        return "holds a name or password: give the key with api_key, as ${NAME} of an environment variable"
    parts = http_parts(url)
    if parts is None or any(character.isspace() for character in url):
        return f"must be an http or https URL such as http://127.0.0.1:8000/v1, not {url!r}"
    if problem := dial_problem(url):
        return f"{problem}: {url!r}"
    host = parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc
    if not host.isascii() or host != host.lower() or "\\" in url:
        # The host that is checked must be the host that is called.
        return "must name its host in plain lower-case ASCII"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "must end with its path: leave out what follows ? or #"
    for end in provider.added_paths:
        if parts.path.rstrip("/").endswith(end):
            return f"must not end with {end}, which the adapter adds by itself"
    return ""


def _api_key(value: object, provider: Provider, problems: list[Problem]) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and NAMED.fullmatch(value):
        return value
    # The message omits the value, which may be a key.
    problems.append(
        Problem(
            f"must be the name of an environment variable, written as ${{{KEY_VARIABLES[provider.name]}}}, or "
            "of a secret, written as secret://NAME: a key itself has no place in a spec, which is stored and shown",
            "agent.api_key",
        )
    )
    return None


def _prices(value: object, problems: list[Problem]) -> ModelPrice | str | None:
    if value is None or value == _LIST:
        return value
    if not isinstance(value, dict):
        message = f"must be a mapping such as {_PRICES_EXAMPLE}, or list, not {kind_of(value)}"
        problems.append(Problem(message, "agent.prices"))
        return None
    return price_from_mapping(value, "agent.prices", problems, _PRICE_NUMBERS)


def _extra(value: object, provider: Provider, api: str, problems: list[Problem]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(
            Problem(f"must be a mapping of further fields of the request, not {kind_of(value)}", "agent.extra")
        )
        return {}
    try:
        if len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) > _MAX_EXTRA_BYTES:
            problems.append(Problem(f"is longer than {_MAX_EXTRA_BYTES:,} bytes of JSON", "agent.extra"))
    except (TypeError, ValueError, RecursionError):
        problems.append(Problem("must hold only what JSON can hold", "agent.extra"))
        return {}
    for name in value:
        if name in provider.own_fields[api]:
            known = name if name in PROMPT_KEYS else _OTHER_NAMES.get(name, "")
            hint = f": use agent.{known}" if known else f": the {provider.name} adapter sets it"
            problems.append(Problem(f"may not hold {name!r}{hint}", f"agent.extra.{name}"))
    return value
