"""Run the rollouts of a collection with the OpenAI Agents SDK and the tools of the environment.

    GYMWEB_URL=http://127.0.0.1:8000 GYMWEB_KEY=gw_… python openai_agents_sdk.py COLLECTION --stream

Needs gymweb-client and openai-agents.
"""

import argparse
import asyncio
import os

import agents
import openai
from agents.mcp import MCPServerStreamableHttp
from gymweb_client import AsyncGymWeb

AT_ONCE = 8
"""Attempts that run at the same time."""


async def work(gym: AsyncGymWeb, options: argparse.Namespace) -> None:
    while attempt := await gym.attempt(options.collection, wait_seconds=options.wait):
        headers = {"Authorization": f"Bearer {attempt.api_key}"}
        async with (
            attempt,
            openai.AsyncOpenAI(base_url=attempt.openai_base_url, api_key=attempt.api_key) as client,
            MCPServerStreamableHttp({"url": attempt.mcp_url, "headers": headers}) as tools,
        ):
            kind = agents.OpenAIResponsesModel if options.wire == "responses" else agents.OpenAIChatCompletionsModel
            agent = agents.Agent(name="agent", model=kind(model="any", openai_client=client), mcp_servers=[tools])
            if options.stream:
                running = agents.Runner.run_streamed(agent, attempt.prompt)
                async for _ in running.stream_events():
                    pass
                answer = running.final_output
            else:
                answer = (await agents.Runner.run(agent, attempt.prompt)).final_output
            await attempt.finish(str(answer))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=int)
    parser.add_argument("--wire", choices=["chat", "responses"], default="chat")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--wait", type=float, default=10, help="seconds to wait for a queued rollout")
    options = parser.parse_args()
    # The SDK would send traces to OpenAI.
    agents.set_tracing_disabled(True)
    async with AsyncGymWeb(os.environ["GYMWEB_URL"], os.environ["GYMWEB_KEY"]) as gym:
        await asyncio.gather(*(work(gym, options) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main())
