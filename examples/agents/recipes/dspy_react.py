"""A ReAct module of DSPy.

Each call sends the whole history as one message, and the last call has another system prompt. The header says that they
are one conversation.
"""

import os

import dspy


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


declared = {"x-gymweb-conversation": "react"}
model = dspy.LM("openai/any", api_base=os.environ["OPENAI_BASE_URL"], cache=False, extra_headers=declared)
dspy.configure(lm=model)
print(dspy.ReAct("question -> answer", tools=[multiply, add])(question=os.environ["PROMPT"]).answer)
