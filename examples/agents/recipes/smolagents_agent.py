"""A tool-calling agent of smolagents. Its answer is the argument of the tool final_answer."""

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


agent = ToolCallingAgent(tools=[multiply, add], model=OpenAIModel("any"), verbosity_level=-1)
print(agent.run(os.environ["PROMPT"]))
