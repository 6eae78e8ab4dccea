"""A judge model that answers with the given texts, in order, and repeats the last; it keeps what it was asked."""

import json
import re

from apps.gym.judging.judge import Judge
from apps.gym.judging.scale import read_settings
from apps.gym.traces.items import text_of
from apps.gym.wires.protocol import Reply

MARK = "MARK"
"""Stands in an answer for the mark that the judge was given."""


def verdict(**fields):
    return json.dumps({"mark": MARK, "explanation": "Because.", **fields})


def mark_of(ask):
    return re.search(r"^<task-([0-9a-f]{8})>$", text_of(ask.items[1]), re.MULTILINE)[1]


def said(text):
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


class Answers:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asks = []

    async def ask(self, ask):
        self.asks.append(ask)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = await answer(ask)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Reply):
            return answer
        return Reply(
            items=said(answer.replace(MARK, mark_of(ask))),
            finish_reason="stop",
            model="judge-7b",
            version="w1",
            usage={"input_tokens": 30, "output_tokens": 10},
        )


def make_judge(policy, *, rubric="", seats=None, call_timeout=120.0, sampling=None, **settings):
    return Judge(
        policy,
        name="judge",
        rubric=rubric,
        settings=read_settings(settings),
        sampling=sampling,
        seats=seats,
        call_timeout=call_timeout,
    )
