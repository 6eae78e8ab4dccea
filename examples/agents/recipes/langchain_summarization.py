"""An agent of LangChain that summarizes its history when it gets long."""

import os

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


summaries = SummarizationMiddleware("openai:any", trigger=("messages", 5), keep=("messages", 2))
agent = create_agent("openai:any", [multiply, add], system_prompt="Solve the task.", middleware=[summaries])
state = agent.invoke({"messages": [("user", os.environ["PROMPT"])]})
print(state["messages"][-1].text)
