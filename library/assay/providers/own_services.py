"""The providers' own services: their addresses and the variables of their keys, by provider."""

from __future__ import annotations

OWN_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
"""URLs of the services."""

KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""Environment variables that hold their keys."""
