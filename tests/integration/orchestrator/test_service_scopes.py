"""By which names an orchestrator asks the embedder and the judge for its teams."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

from assay_orchestrator.identity.service_scopes import ServiceScopes
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database

if TYPE_CHECKING:
    from pathlib import Path


async def test_each_team_has_a_name_that_this_installation_alone_can_make(tmp_path: Path) -> None:
    """Names are the same in all processes, differ between teams that begin alike, and between installations."""
    teams = ["search", "s" * 62 + "a", "s" * 62 + "b"]
    with closing(open_database(Settings(database=tmp_path / "assay.db"))) as database:
        found = [[await scopes.of(team) for team in teams] for scopes in (ServiceScopes(database) for _ in range(2))]
    with closing(open_database(Settings(database=tmp_path / "other.db"))) as other:
        found.append([await ServiceScopes(other).of(team) for team in teams])
    assert found[0] == found[1]
    assert len({name for names in found for name in names}) == 2 * len(teams)
    assert all(re.fullmatch(r"[a-z]{1,31}~[0-9a-f]{32}", name) for name in found[0])


async def test_without_identities_nothing_is_named(tmp_path: Path) -> None:
    """So that caches of a laptop, and of before, are found still."""
    with closing(open_database(Settings(database=tmp_path / "assay.db"))) as database:
        assert [await ServiceScopes(database).of(team) for team in ("local", "default")] == ["", ""]
