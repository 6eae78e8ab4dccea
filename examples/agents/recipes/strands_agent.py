"""An agent of Strands Agents with two tools."""

import os

from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = OpenAIModel(model_id="any")
agent = Agent(model=model, tools=[multiply, add], system_prompt="Solve the task.", callback_handler=None)
print(agent(os.environ["PROMPT"]))
