"""Simulated agents that know the truth about their own conversations, for the rules that find it in captured calls.

Each agent asks a scripted model through Chat Completions messages, as a program would, and ends with an answer. It
notes which calls belong to its main conversation, which calls may end the main path, and everything that the model
wrote.
"""

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from apps.gym.serving.completions import read_completion
from apps.gym.traces.canonical_items import item_digest
from apps.gym.traces.events import AgentEnd, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item
from apps.gym.traces.tokens import TokenCapture, capture_tokens
from tests.gym.captured_calls import Recorder

Message = dict[str, Any]
Edit = Callable[["Agent", list[Message]], list[Message]]

WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "jasper", "krill", "onyx")


class Reply(NamedTuple):
    """A reply: the number of its call, its message as the client stores it, and its text."""

    number: int
    message: Message
    text: str


class Agent:
    """One attempt. `right` are the calls that may end the main path; `main` are the calls of the main conversation.

    `spoken` has the digest of every item that the model wrote. `answer` is None if `finish` gives none.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.recorder = Recorder(tools=[])
        self.main: list[int] = []
        self.right: set[int] = set()
        self.answer: str | None = None
        self.texts: dict[int, str] = {}
        self.spoken: set[bytes] = set()
        self._ids = 0
        self._requests: dict[int, list[Item]] = {}

    # -- what the model writes ----------------------------------------------------------------------------------------

    def words(self, count: int = 6) -> str:
        return " ".join(self.random.choices(WORDS, k=count))

    def name(self) -> str:
        self._ids += 1
        return f"call_{self._ids:03d}"

    def call(self, name: str = "run", **arguments: Any) -> Message:
        given = json.dumps(arguments or {"command": self.words(2)})
        return {"id": self.name(), "type": "function", "function": {"name": name, "arguments": given}}

    def begin(self, messages: list[Message], tools: Iterable[str] = (), hint: str = "") -> int:
        """Send a request. Return the number of the call."""
        offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
        completion = read_completion({"model": "m", "messages": json.loads(json.dumps(messages)), "tools": offered})
        place = self.recorder.arrive(completion.items, completion.tools, hint)
        self._requests[place.call] = completion.items
        return place.call

    def end(self, number: int, text: str = "", calls: Iterable[Message] = (), **fields: Any) -> Reply:
        """Receive the reply of a call."""
        called = list(calls)
        message: Message = {"role": "assistant", "content": text or None}
        if called:
            message["tool_calls"] = called
        items = [
            *([_said(text)] if text else []),
            *(
                {
                    "type": "function_call",
                    "call_id": one["id"],
                    "name": one["function"]["name"],
                    "arguments": one["function"]["arguments"],
                }
                for one in called
            ),
        ]
        self.spoken.update(digest for item in items if (digest := item_digest(item)))
        self.texts[number] = text
        self.recorder.complete(number, items, _tokens(self._requests[number], items), **fields)
        return Reply(number, message, text)

    def ask(
        self,
        messages: list[Message],
        text: str = "",
        calls: Iterable[Message] = (),
        *,
        tools: Iterable[str] = (),
        hint: str = "",
    ) -> Reply:
        return self.end(self.begin(messages, tools, hint), text, calls)

    def events(self) -> list[TraceUnion]:
        """Return the stored events, with the command that ends the attempt."""
        return [*self.recorder.events, AgentEnd(command="finish", answer=self.answer or "")]

    def graph(self) -> TraceGraph:
        return TraceGraph(self.events())

    # -- parts of agents ----------------------------------------------------------------------------------------------

    def task(self) -> str:
        return f"Find the {self.words(3)} of the {self.words(4)}, please."

    def final(self) -> tuple[str, str]:
        """Return the text of a last reply, and the answer that the agent takes from it."""
        value = f"{self.random.choice(WORDS)} {self.random.randrange(100, 999)}"
        whole = self.random.choice(
            [
                f"{value}",
                f"I checked {self.words(4)}.\nThe answer is \\boxed{{{value}}}",
                f"I compared {self.words(5)}.\n\n**Final answer:** {value}",
                f"It took {self.words(3)}.\nAnswer: {value}",
                f"After {self.words(6)}, the result is clearly {value}, as the notes say.",
            ]
        )
        return whole, self.random.choice([value, whole])

    def finish(self, *, with_answer: float = 0.7) -> tuple[str, str | None]:
        """Return the text of a last reply, and the answer of `finish`: the value, the whole text, or none."""
        text, answer = self.final()
        return text, answer if self.random.random() < with_answer else None

    def loop(
        self,
        messages: list[Message],
        last: str,
        *,
        turns: int,
        tools: Iterable[str] = ("run", "read"),
        resend: Callable[[Message], list[Message]] = lambda said: [said],
        edit: Edit = lambda _, history: history,
        between: Callable[[], None] = lambda: None,
        talkative: bool = True,
        hint: str = "",
    ) -> list[int]:
        """Run tool calls, then the last reply. Append to `messages` as the client does; return the calls."""
        numbers = []
        for _ in range(turns):
            calls = [self.call() for _ in range(self.random.choice([1, 1, 2]))]
            said = self.words(5) if talkative and self.random.random() < 0.5 else ""
            reply = self.ask(edit(self, messages), said, calls, tools=tools, hint=hint)
            numbers.append(reply.number)
            between()
            messages += resend(reply.message)
            messages += [{"role": "tool", "tool_call_id": one["id"], "content": self.words(9)} for one in calls]
        reply = self.ask(edit(self, messages), last, tools=tools, hint=hint)
        messages += resend(reply.message)
        return [*numbers, reply.number]

    def opening(self, system: str = "You are an agent.") -> list[Message]:
        if self.random.random() < 0.25:
            return [{"role": "user", "content": self.task()}]
        return [{"role": "system", "content": system}, {"role": "user", "content": self.task()}]

    def settle(self, main: list[int], answer: str | None, *others: int) -> None:
        """Note the truth: the main conversation ends with the last call of `main`; `others` may end the path, too."""
        self.main, self.answer, self.right = main, answer, {main[-1], *others}


def _said(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _tokens(request: list[Item], reply: list[Item]) -> TokenCapture:
    """Return token IDs that a request shares with another as far as their items agree."""
    sampled = [one for item in reply for one in _ids(item)]
    return capture_tokens([one for item in request for one in _ids(item)], sampled, [-0.5] * len(sampled))


def _ids(item: Item) -> list[int]:
    digest = item_digest(item) or b""
    return [int.from_bytes(digest[place : place + 2]) + 1 for place in range(0, min(8, len(digest)), 2)]


# -- agents ---------------------------------------------------------------------------------------------------------


def plain(agent: Agent) -> None:
    text, answer = agent.finish()
    agent.settle(agent.loop(agent.opening(), text, turns=agent.random.randrange(5)), answer)


def composing(agent: Agent) -> None:
    """The program computes the answer itself: no call wrote it."""
    numbers = agent.loop(agent.opening(), agent.words(8), turns=2)
    agent.settle(numbers, f"computed {agent.random.randrange(10**9)}")


def planner_and_executor(agent: Agent) -> None:
    task, plan = agent.task(), "\n".join(f"{n}. {agent.words(7)}" for n in range(1, 4))
    agent.ask([{"role": "system", "content": "You plan."}, {"role": "user", "content": task}], plan)
    text, answer = agent.finish()
    begin = [{"role": "system", "content": "You execute."}, {"role": "user", "content": f"{task}\nPlan:\n{plan}"}]
    if agent.random.random() < 0.5:
        agent.settle(agent.loop(begin, text, turns=2), answer)
    else:
        agent.settle([agent.ask(begin, text).number], answer)


def critic(agent: Agent) -> None:
    task, numbers = agent.task(), []
    messages: list[Message] = [{"role": "system", "content": "You solve."}, {"role": "user", "content": task}]
    text, answer = agent.final()
    rounds = agent.random.randrange(1, 4)
    for number in range(rounds):
        proposal = text if number == rounds - 1 else agent.final()[0]
        tools = ("run",) if number % 2 else ()
        reply = agent.ask(messages, proposal, tools=("run",) if agent.main else tools)
        numbers.append(reply.number)
        asked = f"Question: {task}\nProposed answer: {proposal}\nIs it right?"
        verdict = "It is right." if number == rounds - 1 else f"Wrong: {agent.words(6)}."
        said = agent.ask([{"role": "system", "content": "You criticise."}, {"role": "user", "content": asked}], verdict)
        messages += [reply.message, {"role": "user", "content": said.text}]
    agent.settle(numbers, answer)


def best_of_n(agent: Agent) -> None:
    messages = agent.opening()
    numbers = [agent.begin(messages) for _ in range(agent.random.randrange(2, 5))]
    finals = [agent.final() for _ in numbers]
    if agent.random.random() < 0.4:
        finals[-1] = finals[0]
    for number, (text, _) in zip(numbers, finals, strict=True):
        agent.end(number, text)
    chosen = agent.random.randrange(len(numbers))
    if agent.random.random() < 0.5:
        listed = "\n".join(f"{n}: {text}" for n, (text, _) in enumerate(finals))
        begin = [{"role": "system", "content": "You judge."}, {"role": "user", "content": listed}]
        agent.ask(begin, str(chosen))
    equal = [number for number, final in zip(numbers, finals, strict=True) if final[0] == finals[chosen][0]]
    agent.settle([numbers[chosen]], finals[chosen][1], *equal)


def hand_off(agent: Agent) -> None:
    task = agent.task()
    transfer = agent.call("transfer_to_expert", reason=agent.words(2))
    messages = [{"role": "system", "content": "You triage."}, {"role": "user", "content": task}]
    first = agent.ask(messages, "", [transfer], tools=("transfer_to_expert",))
    history: list[Message] = [
        {"role": "user", "content": task},
        first.message,
        {"role": "tool", "tool_call_id": transfer["id"], "content": '{"assistant": "expert"}'},
    ]
    if agent.random.random() < 0.5:
        # A supervisor that puts a call of its own into the history, as if the model had written it.
        back = agent.call("transfer_back_to_triage")
        history += [
            {"role": "assistant", "content": "Transferring back.", "tool_calls": [back]},
            {"role": "tool", "tool_call_id": back["id"], "content": "done"},
        ]
    text, answer = agent.finish()
    begin = [{"role": "system", "content": "You are an expert."}, *history]
    agent.settle(agent.loop(begin, text, turns=agent.random.randrange(3)), answer)


def summariser(agent: Agent) -> None:
    opening = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": agent.task()}]
    messages = list(opening)
    numbers = agent.loop(messages, agent.words(9), turns=3)
    summary = f"So far, {agent.words(12)}."
    ask = {"role": "user", "content": "Summarise the conversation for another agent."}
    if agent.random.random() < 0.5:
        said = agent.ask([*messages, ask], summary, tools=("run", "read"))
        numbers.append(said.number)
    else:
        transcript = json.dumps(messages)
        said = agent.ask([{"role": "user", "content": f"Summarise this conversation.\n{transcript}"}], summary)
    text, answer = agent.finish()
    again = [*opening, {"role": "user", "content": f"A summary of the work so far:\n{said.text}\nGo on."}]
    agent.settle([*numbers, *agent.loop(again, text, turns=2)], answer)


def context_editor(agent: Agent) -> None:
    """From some call on, the oldest tool results become a placeholder."""

    def trimmed(_: Agent, history: list[Message]) -> list[Message]:
        results = [place for place, one in enumerate(history) if one["role"] == "tool"]
        old = set(results[:-keep])
        return [{**one, "content": "[removed]"} if place in old else one for place, one in enumerate(history)]

    keep = agent.random.randrange(1, 4)
    text, answer = agent.finish()
    agent.settle(agent.loop(agent.opening(), text, turns=agent.random.randrange(3, 7), edit=trimmed), answer)


def sliding_window(agent: Agent) -> None:
    """The oldest turns are dropped."""

    def last_turns(_: Agent, history: list[Message]) -> list[Message]:
        turns = [place for place, one in enumerate(history) if one["role"] == "assistant"]
        return [*history[:head], *history[turns[-keep] :]] if len(turns) > keep else history

    keep, messages = agent.random.randrange(2, 4), agent.opening()
    head = len(messages)
    text, answer = agent.finish()
    agent.settle(agent.loop(messages, text, turns=agent.random.randrange(4, 7), edit=last_turns), answer)


def parallel_subagents(agent: Agent) -> None:
    messages = [{"role": "system", "content": "You delegate."}, {"role": "user", "content": agent.task()}]
    tools = ("task", "run")
    prompts = [f"Look at the {agent.words(6)} and report." for _ in range(agent.random.randrange(1, 4))]
    calls = [agent.call("task", prompt=prompt) for prompt in prompts]
    first = agent.ask(messages, "", calls, tools=tools)
    text, answer = agent.finish()
    copies = agent.random.random() < 0.2
    wrapped = agent.random.random() < 0.5
    open_calls: list[tuple[int, str]] = []
    hint = agent.random.random() < 0.3
    for place, prompt in enumerate(prompts):
        said = f"Your task: {prompt} Be brief." if wrapped else prompt
        begin = [{"role": "system", "content": "You are a subagent."}, {"role": "user", "content": said}]
        result = text if copies and place == 0 else f"Found: {agent.words(8)}"
        thread = f"sub{place}" if hint else ""
        open_calls.append((agent.begin(begin, ("run",), thread), result))
    agent.random.shuffle(open_calls)
    results = {number: agent.end(number, result) for number, result in open_calls}
    in_order = sorted(results)
    messages.append(first.message)
    messages += [
        {"role": "tool", "tool_call_id": call["id"], "content": results[number].text}
        for call, number in zip(calls, in_order, strict=True)
    ]
    rest = agent.loop(messages, text, turns=agent.random.randrange(2), tools=tools)
    agent.settle([first.number, *rest], answer)


def scratchpad(agent: Agent) -> None:
    """The whole history is one user message that grows."""
    text, answer = agent.finish()
    pad, numbers = f"Question: {agent.task()}\n", []
    system = [{"role": "system", "content": "You reason and act."}] if agent.random.random() < 0.5 else []
    if agent.random.random() < 0.5:
        pad = pad.strip()
    turns = agent.random.randrange(2, 6)
    for turn in range(turns):
        said = text if turn == turns - 1 else f"go: {agent.words(1)}"
        reply = agent.ask([*system, {"role": "user", "content": pad}], said)
        numbers.append(reply.number)
        pad += f" {said} = {agent.words(1)}" if pad[-1] != "\n" else f"{said}\nsaw: {agent.words(1)}\n"
    agent.settle(numbers, answer)


def trajectory_and_extract(agent: Agent) -> None:
    """The trajectory is one user message; a last call with another prompt extracts the answer."""
    pad, numbers = agent.task(), []
    for _ in range(agent.random.randrange(1, 4)):
        begin = [{"role": "system", "content": "Choose the next tool."}, {"role": "user", "content": pad}]
        reply = agent.ask(begin, f"next: {agent.words(3)}")
        numbers.append(reply.number)
        pad += f"\n{reply.text}\nresult: {agent.words(6)}"
    text, answer = agent.finish()
    last = agent.ask([{"role": "system", "content": "Extract the answer."}, {"role": "user", "content": pad}], text)
    agent.settle([last.number], answer)


def with_title(agent: Agent) -> None:
    """A client asks for a title before, and for suggestions after the conversation."""
    messages = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": agent.task()}]
    titling = [{"role": "system", "content": "Write a title."}, messages[1]]
    before = agent.random.random() < 0.7
    number = agent.begin(titling) if before else 0
    if before and agent.random.random() < 0.7:
        agent.end(number, agent.words(3))
        number = 0
    text, answer = agent.finish()
    numbers = agent.loop(messages, text, turns=agent.random.randrange(1, 4))
    if number:
        agent.end(number, agent.words(3))
    if agent.random.random() < 0.5:
        agent.ask([{"role": "user", "content": f"Suggest a next step after: {text}"}], agent.words(4))
    agent.settle(numbers, answer)


def volatile_header(agent: Agent) -> None:
    """The first line of the system prompt differs in each request."""
    text, answer = agent.finish()
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": agent.task()}]
    rest = f"You are an agent.\nYou work on files.\n{agent.words(9)}"

    def stamped(one: Agent, history: list[Message]) -> list[Message]:
        stamp = f"x-billing-header: cch={one.random.randrange(16**5):05x};"
        return [{"role": "system", "content": f"{stamp}\n{rest}"}, *history[1:]]

    agent.settle(agent.loop(messages, text, turns=agent.random.randrange(1, 5), edit=stamped), answer)


def without_text_beside_calls(agent: Agent) -> None:
    def bare(said: Message) -> list[Message]:
        return [{**said, "content": None}] if said.get("tool_calls") else [said]

    text, answer = agent.finish()
    agent.settle(agent.loop(agent.opening(), text, turns=agent.random.randrange(1, 5), resend=bare), answer)


def reword(said: Message) -> list[Message]:
    calls = said.get("tool_calls") or ()
    text = (said["content"] or "").replace("answer", "Answer") + "".join(
        f"\nCalling tools: {one['function']['name']}({one['function']['arguments']!r})" for one in calls
    )
    return [{"role": "assistant", "content": text}]


def drop_roles(_: Agent, history: list[Message]) -> list[Message]:
    return [
        {"role": "user", "content": f"Observation: {one['content']}"} if one["role"] == "tool" else one
        for one in history
    ]


def with_rewritten_turns(agent: Agent) -> None:
    """Calls come back as text, and texts come back with other quotes."""
    text, answer = agent.finish()
    turns = agent.random.randrange(1, 5)
    agent.settle(agent.loop(agent.opening(), text, turns=turns, resend=reword, edit=drop_roles), answer)


def team_with_rewritten_turns(agent: Agent) -> None:
    """A manager delegates to subagents, one after the other. The calls of all of them come back as text."""
    messages = agent.opening("You delegate.")
    tools, main = ("helper", "final_answer"), []
    for _ in range(agent.random.randrange(1, 3)):
        prompt = f"Look at the {agent.words(6)} and report."
        reply = agent.ask(drop_roles(agent, messages), "", [agent.call("helper", task=prompt)], tools=tools)
        main.append(reply.number)
        task = [{"role": "system", "content": "You help."}, {"role": "user", "content": f"Your task:\n{prompt}"}]
        found = f"Found: {agent.words(8)}"
        for _ in range(agent.random.randrange(1, 4)):
            said = agent.ask(drop_roles(agent, task), "", [agent.call()], tools=("run", "report"))
            task += [*reword(said.message), {"role": "tool", "content": agent.words(9)}]
        agent.ask(drop_roles(agent, task), "", [agent.call("report", text=found)], tools=("run", "report"))
        messages += [*reword(reply.message), {"role": "tool", "content": found}]
    text, answer = agent.finish()
    main.append(agent.ask(drop_roles(agent, messages), text, tools=tools).number)
    agent.settle(main, answer)


def with_few_shot_turns(agent: Agent) -> None:
    """Examples before the task, and an acknowledgement that no model wrote."""
    shots = [
        {"role": "user", "content": agent.task()},
        {"role": "assistant", "content": f"For example, {agent.words(6)}."},
        {"role": "user", "content": agent.words(12)},
        {"role": "assistant", "content": "Understood, I will begin."},
    ]
    text, answer = agent.finish()
    messages = [{"role": "system", "content": "You are an agent."}, *shots, {"role": "user", "content": agent.task()}]
    agent.settle(agent.loop(messages, text, turns=agent.random.randrange(4)), answer)


def guarded(agent: Agent) -> None:
    """Another prompt checks the answer after the end of the conversation."""
    text, answer = agent.final()
    numbers = agent.loop(agent.opening(), text, turns=agent.random.randrange(3))
    begin = [{"role": "system", "content": "You check for harm."}, {"role": "user", "content": text}]
    agent.ask(begin, agent.random.choice(["safe", '{"safe": true}']))
    agent.settle(numbers, answer)


def repeating(agent: Agent) -> None:
    """Some replies do not arrive, so the client sends the request again."""
    messages, numbers = agent.opening(), []
    for _ in range(agent.random.randrange(1, 4)):
        if agent.random.random() < 0.5:
            lost = agent.begin(messages, ("run",))
            agent.end(lost, agent.words(4), served=False)
        call = agent.call()
        reply = agent.ask(messages, agent.words(3), [call], tools=("run",))
        numbers.append(reply.number)
        messages += [reply.message, {"role": "tool", "tool_call_id": call["id"], "content": agent.words(5)}]
    text, answer = agent.finish()
    agent.settle([*numbers, agent.ask(messages, text, tools=("run",)).number], answer)


def debate(agent: Agent) -> None:
    """Two debaters read each other's arguments; the last speaker wins."""
    task, names = agent.task(), ("optimist", "sceptic")
    lines: dict[str, list[Message]] = {
        name: [{"role": "system", "content": f"You are the {name}."}, {"role": "user", "content": task}]
        for name in names
    }
    calls: dict[str, list[int]] = {name: [] for name in names}
    text, answer = agent.final()
    turns = agent.random.randrange(3, 6)
    for turn in range(turns):
        speaker, listener = names[turn % 2], names[1 - turn % 2]
        reply = agent.ask(lines[speaker], text if turn == turns - 1 else agent.words(9))
        calls[speaker].append(reply.number)
        lines[speaker].append(reply.message)
        lines[listener].append({"role": "user", "content": reply.text})
        if turn == turns - 1:
            agent.settle(calls[speaker], answer)


def final_tool(agent: Agent) -> None:
    """The answer is an argument of a last tool call."""
    messages = agent.opening()
    numbers = agent.loop(messages, agent.words(4), turns=agent.random.randrange(3), tools=("run", "final_answer"))
    messages.append({"role": "user", "content": "Now call final_answer."})
    value = f"{agent.words(2)} {agent.random.randrange(1000)}"
    last = agent.ask(messages, "", [agent.call("final_answer", answer=value)], tools=("run", "final_answer"))
    agent.settle([*numbers, last.number], value)


def asked_again(agent: Agent) -> None:
    """After the answer, the conversation goes on for a turn that does not repeat it."""
    text, answer = agent.final()
    messages = agent.opening()
    numbers = agent.loop(messages, text, turns=agent.random.randrange(3))
    messages.append({"role": "user", "content": "Are you sure?"})
    last = agent.ask(messages, f"Yes, since {agent.words(4)}.", tools=("run", "read"))
    agent.settle([*numbers, last.number], answer)


AGENTS: tuple[Callable[[Agent], None], ...] = (
    plain,
    composing,
    planner_and_executor,
    critic,
    best_of_n,
    hand_off,
    summariser,
    context_editor,
    sliding_window,
    parallel_subagents,
    scratchpad,
    trajectory_and_extract,
    with_title,
    volatile_header,
    without_text_beside_calls,
    with_rewritten_turns,
    team_with_rewritten_turns,
    with_few_shot_turns,
    guarded,
    repeating,
    debate,
    final_tool,
    asked_again,
)


def simulate(seed: int) -> Agent:
    """Return the attempt of a seed. Successive seeds run all kinds of agents in turn."""
    agent = Agent(seed)
    AGENTS[seed % len(AGENTS)](agent)
    return agent
