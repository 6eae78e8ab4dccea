"""Our environments, agents and models for clients with an API key: NeMo Gym's protocol below `/gym/`.

Clients without path prefix and API key need the commands `serve_environment`, `serve_agent` and `serve_model`.
"""

from functools import partial
from typing import Any

from django.http import HttpResponse
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from apps.accounts.permissions import Permission
from apps.agents.models import Agent
from apps.api.fleet.scraping import AnyFormat
from apps.environments.models import Environment
from apps.gym.serving.served_environment import cookie_name
from apps.gym.serving.served_request import IncomingRequest, plain_path
from apps.policies.models import PolicyModel
from apps.rollouts.serving.hosting import HOST, Connect
from apps.rollouts.serving.served_connections import (
    RUN_SECONDS,
    answer_seconds,
    connect_served_agent,
    connect_served_environment,
    connect_served_model,
    model_seconds,
)


class GymView(APIView):
    """A subclass defines what a URL hosts. GET is free; other methods may cost tokens."""

    permissions = {"get": Permission.READ, "post": Permission.COLLECT}
    content_negotiation_class = AnyFormat
    # One rollout makes dozens of calls, and a trainer runs thousands of rollouts. Open sessions and calls are limited
    # instead.
    throttle_classes: list[type[BaseThrottle]] = []
    schema = None

    def get(self, request: Request, path: str = "", **names: str) -> HttpResponse:
        name, stamp, connect, seconds = self.find(**names)
        whole = request._request
        incoming = IncomingRequest(
            method=request.method or "GET",
            path=plain_path(path),
            body=whole.body,
            session=request.COOKIES.get(self.cookie(**names), ""),
        )
        answer, cookie = HOST.answer(name=name, stamp=stamp, connect=connect, incoming=incoming, seconds=seconds)
        reply = HttpResponse(
            answer.body, status=answer.status, content_type=answer.content_type, headers=answer.headers or None
        )
        if answer.session and cookie:
            below = whole.path.removesuffix(path)
            secure = whole.is_secure()
            reply.set_cookie(cookie, answer.session, path=below, httponly=True, samesite="Lax", secure=secure)
        return reply

    post = get

    def find(self, **names: str) -> tuple[str, object, Connect, float]:
        """Return the name, a stamp that changes with its rows, how to connect it, and the time limit of an answer."""
        raise NotImplementedError

    def cookie(self, **names: str) -> str:
        return ""


class EnvironmentView(GymView):
    def find(self, **names: str) -> tuple[str, object, Connect, float]:
        environment = _environment(names["slug"])
        connect = partial(connect_served_environment, environment)
        return f"environment {environment.pk}", _stamp(environment), connect, answer_seconds(environment)

    def cookie(self, **names: str) -> str:
        return cookie_name(names["slug"])


class AgentView(GymView):
    def find(self, **names: str) -> tuple[str, object, Connect, float]:
        agent = get_object_or_404(Agent, slug=names["agent"])
        model = get_object_or_404(PolicyModel, slug=names["model"])
        environment = _environment(names["environment"])
        connect = partial(connect_served_agent, agent, model, environment)
        name = f"agent {agent.pk} {model.pk} {environment.pk}"
        return name, (agent.updated_at, model.updated_at, _stamp(environment)), connect, RUN_SECONDS + 5.0


class ModelView(GymView):
    def find(self, **names: str) -> tuple[str, object, Connect, float]:
        model = get_object_or_404(PolicyModel, slug=names["slug"])
        connect = partial(connect_served_model, model)
        return f"model {model.pk}", model.updated_at, connect, model_seconds(model)


def _environment(slug: str) -> Environment:
    return get_object_or_404(Environment.objects.select_related("judge_model"), slug=slug)


def _stamp(environment: Environment) -> Any:
    judge = environment.judge_model
    return environment.updated_at, judge.updated_at if judge else None
