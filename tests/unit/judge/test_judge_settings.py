from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import InvalidInputError
from assay_judge.__main__ import main
from assay_judge.judges import JudgeChoice, Permissions, choose_judge
from assay_judge.settings import Settings

OWN = JudgeChoice("openai", "m")


def test_flags_win_over_the_environment() -> None:
    """Every flag is also a variable; lists are comma-separated there."""
    environment = {
        "ASSAY_JUDGE_PROVIDER": "anthropic", "ASSAY_JUDGE_MODEL": "claude", "ASSAY_JUDGE_ATTEMPTS": "3",
        "ASSAY_JUDGE_ALLOW_JUDGES": "openai:*, anthropic:*", "ASSAY_JUDGE_CACHE": "false", "ASSAY_HOME": "/somewhere",
        "ASSAY_JUDGE_SPEND_CAP_USD": "1.5",
    }  # fmt: skip
    settings = Settings.read(["--attempts", "4", "--temperature", "0.5"], environment)
    assert settings.judge == JudgeChoice("anthropic", "claude", temperature=0.5)
    assert settings.attempts == 4
    assert settings.permissions.judges == ("openai:*", "anthropic:*")
    assert (settings.cache, settings.spend_cap_usd) == (False, 1.5)
    assert settings.state_dir == Path("/somewhere/judge")


def test_without_anything_there_is_no_judge() -> None:
    """The default asks nobody, listens on this machine alone and lets requests choose nothing."""
    settings = Settings.read([], {})
    assert settings.judge.provider == "none"
    assert settings.listen == "127.0.0.1:7072"
    assert settings.permissions == Permissions()
    assert settings.state_dir == Path("~/.assay/judge").expanduser()


def test_all_problems_are_said_at_once() -> None:
    """Each with its flag."""
    arguments = ["--provider", "openai", "--attempts", "0", "--timeout-s", "0", "--base-url", "ftp://x", "--listen", ""]
    with pytest.raises(InvalidInputError) as caught:
        Settings.read(arguments, {})
    assert {problem.field for problem in caught.value.problems} == {
        "--model", "--attempts", "--timeout-s", "--base-url", "--listen",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("base_url", "allowed"),
    [
        ("https://models.corp/v1", True),
        ("https://models.corp:8443/v1", False),
        ("https://evil.example/models.corp", False),
        ("http://models.corp/v1", False),
        ("https://models.corp.evil.example/v1", False),
    ],
)
def test_an_allowed_service_is_matched_as_a_whole(base_url: str, allowed: bool) -> None:
    """Patterns match scheme, host and port: a path cannot imitate a host."""
    permissions = Permissions(("openai:*",), ("https://*.corp", "https://models.corp"))
    asked = JudgeChoice("openai", "m2", base_url)
    if allowed:
        assert choose_judge(asked, OWN, permissions) is asked
    else:
        with pytest.raises(InvalidInputError, match="is not allowed here"):
            choose_judge(asked, OWN, permissions)


def test_a_process_that_cannot_serve_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong settings and files end with 2, a missing key with 3; one line says what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    state = ["--state-dir", str(tmp_path / "state"), "--listen", f"unix:{tmp_path / 's.sock'}"]
    assert main(["--attempts", "0"]) == 2
    assert "--attempts" in capsys.readouterr().err
    (tmp_path / "r.yaml").write_text("name: quality")
    assert main([*state, "--rubric", str(tmp_path / "r.yaml")]) == 2
    assert "r.yaml" in capsys.readouterr().err
    assert main([*state, "--provider", "openai", "--model", "m"]) == 3
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().err
    assert main([*state, "--provider", "replay", "--replay", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
