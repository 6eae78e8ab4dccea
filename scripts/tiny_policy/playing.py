"""The model as a policy in GymWeb's loop, so that rollouts include tools and verifier."""

import asyncio
import json
import re
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.chat_turns import chat_messages
from apps.gym.traces.events import Verification
from apps.gym.traces.items import Item, message
from apps.gym.wires.protocol import Ask, Reply

from .tokenizing import render

MAX_NEW_TOKENS = 64
MAX_STEPS = 5
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class BatchingPolicy:
    """Answers all waiting requests in one batch, sampled at temperature 1.0."""

    def __init__(self, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.generator = torch.Generator().manual_seed(seed)
        self.waiting: list[tuple[str, asyncio.Future[str]]] = []

    async def ask(self, ask: Ask) -> Reply:
        if not self.waiting:
            asyncio.get_running_loop().call_later(0.005, self._answer)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.append((render(self.tokenizer, _as_a_server_would(chat_messages(ask.items))), future))
        text = await future
        items, finish = read_reply(text)
        return Reply(items=items, finish_reason=finish)

    def _answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for (_, future), text in zip(waiting, self._sample([prompt for prompt, _ in waiting]), strict=True):
            future.set_result(text)

    def _sample(self, prompts: list[str]) -> list[str]:
        """Return up to MAX_NEW_TOKENS tokens per prompt, including the end of turn."""
        with torch.inference_mode():
            rows = self._sample_ids(prompts)
        return [self.tokenizer.decode([i for i in row if i != self.tokenizer.pad_token_id]) for row in rows]

    def _sample_ids(self, prompts: list[str]) -> list[list[int]]:
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        mask = batch["attention_mask"]
        inputs, past = batch["input_ids"], None
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        ended = torch.zeros(len(prompts), dtype=torch.bool)
        written = []
        for _ in range(MAX_NEW_TOKENS):
            out = self.model(
                input_ids=inputs,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=past,
                use_cache=True,
                logits_to_keep=1,
            )
            past = out.past_key_values
            chances = torch.softmax(out.logits[:, -1].float(), dim=-1)
            inputs = torch.multinomial(chances, 1, generator=self.generator)
            inputs[ended] = self.tokenizer.pad_token_id
            written.append(inputs)
            ended |= inputs[:, 0] == self.tokenizer.eos_token_id
            if bool(ended.all()):
                break
            mask = torch.cat([mask, torch.ones_like(inputs)], dim=1)
            positions = positions[:, -1:] + 1
        rows: list[list[int]] = torch.cat(written, dim=1).tolist()
        return rows


def _as_a_server_would(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as vLLM passes them to templates: arguments of calls are objects."""
    for chat_message in messages:
        for call in chat_message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


def read_reply(text: str) -> tuple[list[Item], str]:
    """Return the items of a reply and its finish reason.

    Parsed like vLLM's `hermes` parser: one invalid call turns everything into text.
    """
    ended = text.endswith("<|im_end|>")
    text = text.removesuffix("<|im_end|>")
    try:
        calls = [json.loads(found) for found in _CALL.findall(text)]
        items: list[Item] = [
            {
                "type": "function_call",
                "call_id": f"call_{number}",
                "name": call["name"],
                "arguments": json.dumps(call["arguments"], ensure_ascii=False),
            }
            for number, call in enumerate(calls)
        ]
    except (ValueError, KeyError, TypeError):
        items = []
    if items:
        said = text[: text.index("<tool_call>")]
        return [*([message("assistant", said)] if said else []), *items], "tool_calls"
    return [message("assistant", text)] if text else [], "stop" if ended else "max_output_tokens"


async def _play(policy: BatchingPolicy, row: dict[str, Any], seed: int) -> float:
    attempt = Attempt(
        row=row,
        server=InProcessServer("calculator", name="calculator"),
        policy=policy,
        harness=Harness(max_steps=MAX_STEPS),
        seed=seed,
        elapsed=lambda: 0.0,
    )
    events = [event async for event in attempt.events()]
    last = events[-1]
    assert isinstance(last, Verification)
    return last.reward or 0.0


async def _play_all(policy: BatchingPolicy, rows: list[dict[str, Any]], batch: int) -> list[float]:
    rewards: list[float] = []
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        rewards += await asyncio.gather(*(_play(policy, row, start + place) for place, row in enumerate(part)))
    return rewards


def measure_success(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rows: list[dict[str, Any]],
    *,
    seed: int,
    batch: int = 128,
) -> dict[str, float]:
    """Return the share of rewarded attempts, one per row, with its standard error."""
    training = model.training
    model.eval()
    rewards = asyncio.run(_play_all(BatchingPolicy(model, tokenizer, seed=seed), rows, batch))
    model.train(training)
    share = sum(rewards) / len(rewards)
    error = (share * (1 - share) / len(rewards)) ** 0.5
    return {"rollouts": len(rewards), "success": round(share, 4), "standard_error": round(error, 4)}
