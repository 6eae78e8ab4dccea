"""A crew of CrewAI with one agent."""

import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = LLM("openai/any", base_url=os.environ["OPENAI_BASE_URL"])
solver = Agent(role="solver", goal="Solve tasks", backstory="You calculate.", tools=[multiply, add], llm=model)
task = Task(description=os.environ["PROMPT"], expected_output="a number", agent=solver)
print(Crew(agents=[solver], tasks=[task]).kickoff().raw)
