"""Attempts at agent servers: HTTP servers with the protocol of NeMo Gym's agents.

GymWeb calls `/ng-rollout/<secret>/v1/responses`, or `/run` with the secret as `_ng_rollout_id`. NeMo Gym's agents call
their model server below `/ng-rollout/<secret>/`, so GymWeb knows which attempt a call belongs to. An environment server
of NeMo Gym 0.7 gets an episode on `/run`, with the secret as its rollout id (`nemo_gym.episode_types`).
"""

from typing import NamedTuple

import orjson

from apps.agents.models import Agent
from apps.gym.calls.outbound import Outbound, OutboundFailed
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import Command
from apps.gym.errors import AgentFailed, VerifierError
from apps.gym.loop.agent_loop import compose_prompt
from apps.gym.redaction.shortening import cut_body
from apps.gym.resources.verify_bodies import read_reward
from apps.gym.traces.items import as_object, last_assistant_text, read_json
from apps.rollouts.engine.agents.episodes import EpisodeFailed, episode_request, read_episode
from apps.rollouts.engine.agents.external_attempts import ExternalAttempts
from apps.rollouts.engine.agents.hosted_attempts import HostedAttempt

ROLLOUT_ID, ATTEMPT_INDEX = "_ng_rollout_id", "_ng_attempt_index"
"""Keys of a task from which NeMo Gym's agents make the id of a rollout."""
MAX_REPLY = 64 * 1024 * 1024
"""Maximum bytes of a reply, enough for a whole conversation."""


class AgentServer(NamedTuple):
    """The server of a collection's agent. On all routes but `responses`, it verifies attempts itself."""

    url: str
    route: str

    @property
    def verifies(self) -> bool:
        return self.route != Agent.Route.RESPONSES


class AgentServerAttempt(HostedAttempt):
    """Asks an agent server to run one attempt."""

    def __init__(
        self, external: ExternalAttempts, outbound: Outbound, server: AgentServer, captured: CapturedAttempt
    ) -> None:
        super().__init__(captured)
        self._external, self._outbound, self._server = external, outbound, server

    async def close(self) -> None:
        """Refuse further calls and end the request. May be called twice."""
        self._external.forget(self._captured)
        await super().close()

    async def _execute(self) -> Command:
        try:
            secret = self._external.open(self._captured)
        except AgentFailed as problem:
            return Command(command="fail", message=str(problem))
        try:
            # NeMo Gym's agents repeat the key, but it must not be stored.
            return self._read((await self._ask(secret)).replace(secret.encode(), b"(key)"))
        except EpisodeFailed as problem:
            return Command(command="fail", message=str(problem).replace(secret, "(key)"), error_kind=problem.error_kind)
        except (AgentFailed, VerifierError) as problem:
            return Command(command="fail", message=str(problem).replace(secret, "(key)"))

    async def _ask(self, secret: str) -> bytes:
        row = self._captured.row
        params = {**row["responses_create_params"], "input": compose_prompt(row, self._captured.harness)}
        if self._captured.tools:
            params["tools"] = self._captured.tools
        path, body = f"/ng-rollout/{secret}/v1/responses", params
        if self._server.route == Agent.Route.EPISODE:
            path, body = "/run", episode_request(row, params, secret)
        elif self._server.verifies:
            own = {"responses_create_params": params, ROLLOUT_ID: secret}
            path, body = "/run", {**{key: value for key, value in row.items() if key != ATTEMPT_INDEX}, **own}
        try:
            reply = await self._outbound.request(
                "POST",
                self._server.url.rstrip("/") + path,
                body=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                cookies=self._captured.session.cookies,
                timeout=self._captured.harness.time_limit,
                max_bytes=MAX_REPLY,
            )
        except (OutboundFailed, OutboundRefused) as problem:
            raise AgentFailed(f"The agent server cannot be reached: {problem}") from None
        if reply.status != 200:
            told = f"The agent server returned {reply.status}: {cut_body(reply.body, 500)}"
            raise AgentFailed(told if self._captured.calls else f"{told} {self._remedy()}")
        # The newest cookies are those of the session after the last tool call.
        self._captured.session.take_cookies(reply.cookies)
        return reply.body

    def _read(self, body: bytes) -> Command:
        """Return the end of the attempt. Raises AgentFailed and VerifierError."""
        if not self._captured.calls and self._server.route != Agent.Route.EPISODE:
            raise AgentFailed(self._remedy())
        reply = as_object(read_json(body))
        if self._server.route == Agent.Route.EPISODE:
            reply = read_episode(reply, self._captured.row)
            body = orjson.dumps(reply)
            if not self._captured.calls:
                raise AgentFailed(self._remedy())
        reward = read_reward(body, self._captured.row, source="The agent server") if self._server.verifies else None
        output = as_object(reply.get("response") if self._server.verifies else reply).get("output")
        answer = last_assistant_text(output) if isinstance(output, list) else ""
        return Command(command="finish", answer=answer, reward=reward)

    def _remedy(self) -> str:
        also = ", and its configuration must have observability_enabled: true" if self._server.verifies else ""
        return (
            "The agent server made no call that GymWeb captured. Its model server must have the host and port of "
            f"GymWeb{also}."
        )
