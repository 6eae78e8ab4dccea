"""The code on a collection's page, run as it is shown."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gymweb_client import AsyncGymWeb

from apps.dashboard.overview.agent_snippets import write_snippets
from tests.capture.test_external_agents import ended, plan
from tests.clients.site import Site

pytestmark = pytest.mark.slow
UUIDGEN = f"#!{sys.executable}\nimport uuid\nprint(uuid.uuid4())\n"


@pytest.mark.parametrize("slug", ["openai", "openai-agents", "anthropic", "curl"])
async def test_an_agent_connects_with_the_code(site: Site, tmp_path: Path, slug: str) -> None:
    if slug == "openai-agents" and importlib.util.find_spec("agents") is None:
        pytest.skip("openai-agents is not installed")
    if slug == "curl" and not (shutil.which("curl") and shutil.which("jq")):
        pytest.skip("curl or jq is not installed")
    program = tmp_path / "uuidgen"
    program.write_text(UUIDGEN)
    program.chmod(0o755)
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site)
        snippet = next(one for one in write_snippets(site.base, collection) if one.slug == slug)
        code = snippet.code.replace("gw_…", site.key).replace("wait_seconds=10", "wait_seconds=1")
        words = [sys.executable, "-c", code] if snippet.packages else ["bash", "-euc", code]
        environment = {**os.environ, "GYMWEB_KEY": site.key, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        await asyncio.to_thread(subprocess.run, words, cwd=tmp_path, env=environment, check=True, timeout=60)
        (rollout,) = (await gym.request("GET", f"rollouts/?collection={collection}"))["results"]
        row = await ended(gym, rollout["id"])
    assert (row["status"], row["turns"]) == ("completed", 1)
