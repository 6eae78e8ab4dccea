"""Run the rollouts of a collection with LangGraph's ReAct agent and the tools of the environment.

    GYMWEB_URL=http://127.0.0.1:8000 GYMWEB_KEY=gw_… python langgraph_agent.py COLLECTION --stream

Needs gymweb-client, langgraph, langchain-mcp-adapters, langchain-openai and langchain-anthropic.
"""

import argparse
import asyncio
import os
from typing import Any

from gymweb_client import AsyncGymWeb
from langchain_anthropic import ChatAnthropic
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

AT_ONCE = 8
"""Attempts that run at the same time."""


async def work(gym: AsyncGymWeb, options: argparse.Namespace) -> None:
    while attempt := await gym.attempt(options.collection, wait_seconds=options.wait):
        async with attempt:
            server = {
                "transport": "streamable_http",
                "url": attempt.mcp_url,
                "headers": {"Authorization": f"Bearer {attempt.api_key}"},
            }
            tools = await MultiServerMCPClient({"environment": server}).get_tools()
            agent = create_react_agent(make_model(attempt, options), tools)
            asked = {"messages": [("user", attempt.prompt)]}
            if options.stream:
                # `messages` streams the tokens of the model.
                async for _ in agent.astream(asked, stream_mode="messages"):
                    pass
                await attempt.finish()
            else:
                state = await agent.ainvoke(asked)
                await attempt.finish(state["messages"][-1].text)


def make_model(attempt: Any, options: argparse.Namespace) -> Any:
    if options.wire == "messages":
        return ChatAnthropic(
            model="any", base_url=attempt.anthropic_base_url, api_key=attempt.api_key, streaming=options.stream
        )
    return ChatOpenAI(
        model="any",
        base_url=attempt.openai_base_url,
        api_key=attempt.api_key,
        use_responses_api=options.wire == "responses",
        streaming=options.stream,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=int)
    parser.add_argument("--wire", choices=["chat", "responses", "messages"], default="chat")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--wait", type=float, default=10, help="seconds to wait for a queued rollout")
    options = parser.parse_args()
    async with AsyncGymWeb(os.environ["GYMWEB_URL"], os.environ["GYMWEB_KEY"]) as gym:
        await asyncio.gather(*(work(gym, options) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main())
