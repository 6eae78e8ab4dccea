"""An agent of Google ADK, with the model of any API through LiteLLM."""

import asyncio
import os

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = LlmAgent(name="solver", model=LiteLlm("openai/any"), instruction="Solve the task.", tools=[multiply, add])
events = asyncio.run(InMemoryRunner(agent=agent).run_debug(os.environ["PROMPT"], quiet=True))
print(events[-1].content.parts[-1].text)
