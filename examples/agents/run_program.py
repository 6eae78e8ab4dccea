"""Run the rollouts of a collection with any program that calls a model over an API of OpenAI or Anthropic.

    export GYMWEB_URL=http://127.0.0.1:8000 GYMWEB_KEY=gw_…
    python run_program.py COLLECTION python recipes/pydantic_ai_agent.py

The program gets PROMPT, OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and MCP_URL in its
environment, and a new folder as its working folder and HOME. Its standard output is the answer. If it exits with
another status than 0, the attempt has failed. Needs gymweb-client.
"""

import argparse
import asyncio
import os
import tempfile

from gymweb_client import AsyncGymWeb


async def work(gym: AsyncGymWeb, options: argparse.Namespace) -> None:
    while attempt := await gym.attempt(options.collection, wait_seconds=options.wait):
        async with attempt:
            variables = {
                "PROMPT": attempt.prompt,
                "OPENAI_BASE_URL": attempt.openai_base_url,
                "OPENAI_API_KEY": attempt.api_key,
                "ANTHROPIC_BASE_URL": attempt.anthropic_base_url,
                "ANTHROPIC_API_KEY": attempt.api_key,
                "MCP_URL": attempt.mcp_url,
            }
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                program = await asyncio.create_subprocess_exec(
                    *options.command,
                    cwd=folder,
                    env={**os.environ, "HOME": folder, **variables},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                output, errors = await program.communicate()
            if program.returncode:
                await attempt.fail(f"Exit status {program.returncode}: {errors.decode(errors='replace')[-2000:]}")
            else:
                await attempt.finish(output.decode(errors="replace").strip())


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.add_argument("--at-once", type=int, default=4, help="programs that run at the same time")
    parser.add_argument("--wait", type=float, default=10, help="seconds to wait for a queued rollout")
    options = parser.parse_args()
    async with AsyncGymWeb(os.environ["GYMWEB_URL"], os.environ["GYMWEB_KEY"]) as gym:
        await asyncio.gather(*(work(gym, options) for _ in range(options.at_once)))


if __name__ == "__main__":
    asyncio.run(main())
