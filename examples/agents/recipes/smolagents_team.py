"""Two agents of smolagents: the first calls the second like a tool."""

import os

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a * b


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


model = OpenAIModel("any")
solver = ToolCallingAgent([multiply, add], model, name="solver", description="Calculates.", verbosity_level=-1)
manager = ToolCallingAgent([], model, managed_agents=[solver], verbosity_level=-1)
print(manager.run(os.environ["PROMPT"]))
