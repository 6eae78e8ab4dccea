"""MCP servers as environments: they provide the tools, and a verifier of GymWeb computes the reward."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

from apps.gym.calls.observers import Observer, ignore
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.retries import Pauses, TryAgain, call_with_retries
from apps.gym.errors import EnvironmentFault, TimedOut, VerifierError
from apps.gym.resources.mcp_client import Command, McpConnection, Trouble, open_over_http, open_process
from apps.gym.resources.protocol import Probe, ResourceServer, Session, ToolOutput
from apps.gym.resources.server_calls import bearer
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, Tool

if TYPE_CHECKING:
    from mcp.client.client import Client

_PROBE_SECONDS = 10.0


class McpSession(Session):
    """One attempt with its own connection, so that the state of its tools is not shared."""

    def __init__(self, server: "McpServer", row: TaskRow, connection: McpConnection) -> None:
        self._server = server
        self._row = row
        self._connection = connection

    async def list_tools(self) -> list[Tool]:
        """Return the tools of the server, unless the row has a list of tools; an empty list means none."""
        if isinstance(self._row["responses_create_params"].get("tools"), list):
            return []
        return await self._connection.list_tools()

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        try:
            output = await self._connection.call_tool(name, arguments)
        except EnvironmentFault as fault:
            self._server.observe("unreachable", str(fault))
            raise
        self._server.observe("timed_out" if output.error == "timeout" else "ok")
        return output

    async def verify(self, response: dict[str, Any]) -> Reward:
        told = "an MCP server has no verifier: configure one for this environment, or turn verification off"
        raise VerifierError(f"{self._server.name}: {told}").permanent()

    async def close(self) -> None:
        await self._connection.close()


class McpServer(ResourceServer):
    """An MCP server over HTTP at a URL, or a process started for each attempt.

    `call_timeout` and `connect_timeout` are in seconds; `max_tries` limits the tries to open a connection.
    """

    def __init__(
        self,
        outbound: Outbound,
        *,
        name: str,
        call_timeout: float,
        max_tries: int,
        url: str = "",
        api_key: str = "",
        command: Command | None = None,
        connect_timeout: float = 10.0,
        pauses: Pauses | None = None,
        observe: Observer = ignore,
    ) -> None:
        self.name = name
        self.observe = observe
        self._call_timeout = call_timeout
        self._connect_timeout = connect_timeout
        self._max_tries = max_tries
        self._pauses = pauses or Pauses()

        def open_client(trouble: Trouble) -> "contextlib.AbstractAsyncContextManager[Client]":
            if command is not None:
                return open_process(command, trouble, call_timeout=call_timeout)
            return open_over_http(
                outbound,
                url,
                trouble,
                headers=bearer(api_key),
                call_timeout=call_timeout,
                connect_timeout=connect_timeout,
            )

        self._opening = open_client

    async def seed_session(self, row: TaskRow, *, seed: int) -> McpSession:
        """Connect for one attempt. Raises EnvironmentFault or TimedOut. The protocol has no field for `seed`."""

        async def connect() -> McpConnection:
            connection = self._connection(self._call_timeout)
            try:
                await connection.open()
            except TimedOut as error:
                self.observe("timed_out", str(error))
                raise
            except EnvironmentFault as fault:
                await connection.close()
                self.observe("unreachable" if fault.transient else "refused", str(fault))
                if fault.transient:
                    raise TryAgain(fault) from fault
                raise
            self.observe("ok")
            return connection

        connection, _ = await call_with_retries(connect, max_tries=self._max_tries, pauses=self._pauses)
        return McpSession(self, row, connection)

    async def probe(self) -> Probe:
        """Check health: connect, and list the tools. Never raises for a server that fails."""
        started = time.perf_counter()
        connection = self._connection(min(self._call_timeout, _PROBE_SECONDS))
        try:
            await connection.open()
            protocol = connection.protocol
            latency = time.perf_counter() - started
            tools = await connection.list_tools()
        except (EnvironmentFault, TimedOut) as error:
            return Probe(healthy=False, message=str(error), latency=time.perf_counter() - started)
        finally:
            await connection.close()
        count = f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'}"
        return Probe(
            healthy=True,
            message=f"reachable; {count} over MCP {protocol}",
            latency=latency,
            tools=tools,
            found={"tools": tools},
        )

    def _connection(self, seconds: float) -> McpConnection:
        return McpConnection(
            self._opening, name=self.name, call_timeout=seconds, open_timeout=seconds + self._connect_timeout
        )
