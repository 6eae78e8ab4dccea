"""An agent of Microsoft Agent Framework, whose client calls the Responses API with previous_response_id."""

import asyncio
import os

from agent_framework.openai import OpenAIChatClient


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = OpenAIChatClient(model="any").as_agent(instructions="Solve the task.", tools=[multiply, add])
print(asyncio.run(agent.run(os.environ["PROMPT"])).text)
