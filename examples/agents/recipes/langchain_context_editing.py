"""An agent of LangChain that clears old tool results, as agents with long histories do."""

import os

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


editing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=1)])
agent = create_agent("openai:any", [multiply, add], system_prompt="Solve the task.", middleware=[editing])
state = agent.invoke({"messages": [("user", os.environ["PROMPT"])]})
print(state["messages"][-1].text)
