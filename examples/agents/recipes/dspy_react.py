"""A ReAct module of DSPy. It sends the whole history as one message."""

import os

import dspy


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


dspy.configure(lm=dspy.LM("openai/any", api_base=os.environ["OPENAI_BASE_URL"], cache=False))
print(dspy.ReAct("question -> answer", tools=[multiply, add])(question=os.environ["PROMPT"]).answer)
