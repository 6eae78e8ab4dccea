"""Two agents of Google ADK: the first transfers the task to the second. A header declares one conversation."""

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


model = LiteLlm("openai/any", extra_headers={"x-gymweb-conversation": "team"})
solver = LlmAgent(name="solver", description="Calculates.", model=model, tools=[multiply, add])
team = LlmAgent(name="team", instruction="Transfer tasks.", model=model, sub_agents=[solver])
events = asyncio.run(InMemoryRunner(agent=team).run_debug(os.environ["PROMPT"], quiet=True))
print(events[-1].content.parts[-1].text)
