"""An agent of Pydantic AI with two tools."""

import os

from pydantic_ai import Agent

agent = Agent("openai-chat:any", system_prompt="Solve the task with the tools.")


@agent.tool_plain
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


print(agent.run_sync(os.environ["PROMPT"]).output)
