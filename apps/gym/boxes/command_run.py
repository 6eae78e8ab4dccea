"""One run of an agent's command in a box: fill in its placeholders, and read its answer."""

import base64
from collections.abc import Sequence
from typing import Any

from apps.gym.boxes.command_spec import CommandSpec, fill_command
from apps.gym.boxes.protocol import Box, Exit
from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import Command
from apps.gym.errors import AgentFailed
from apps.gym.loop.agent_loop import compose_prompt
from apps.gym.traces.items import Item, item_type, text_of

MAX_ANSWER = 1_000_000
"""Maximum bytes of an answer."""
MAX_ARTIFACT = 250_000
"""Maximum bytes of an artifact."""
MAX_ERROR = 2_000
"""Characters of the error output in the message of a failed command."""
INSTRUCTION_FILE = ".gymweb/instruction.md"


class CommandRun:
    """`secret` is the key of the attempt, which is removed from all outputs."""

    def __init__(self, box: Box, spec: CommandSpec, *, secret: str, model: str) -> None:
        self._box, self._spec, self._secret, self._model = box, spec, secret, model

    async def finish(self, captured: CapturedAttempt) -> Command:
        """Run the command in a new box and return how it ended. Raises AgentFailed and BoxFailed."""
        await self._box.start()
        try:
            instruction = write_instruction(compose_prompt(captured.row, captured.harness))
            filled = fill_command(self._spec, self._values(instruction, captured.harness.max_steps))
            for path, content in {INSTRUCTION_FILE: instruction, **filled.files}.items():
                await self._box.upload(path, content.encode())
            ended = await self._box.exec(filled.command, {"PATH": self._path(), **filled.variables})
            if ended.status != 0:
                raise AgentFailed(self._describe(ended))
            return Command(command="finish", answer=await self._answer(ended), artifacts=await self._artifacts())
        finally:
            await self._box.stop()

    def _values(self, instruction: str, max_turns: int) -> dict[str, str]:
        base = f"{self._box.url}/capture/{self._secret}"
        return {
            "base_url": base,
            "openai_base_url": f"{base}/v1",
            "anthropic_base_url": base,
            "mcp_url": f"{base}/mcp",
            "api_key": self._secret,
            "model": self._model,
            "instruction": instruction,
            "instruction_file": f"{self._box.workdir}/{INSTRUCTION_FILE}",
            "workdir": self._box.workdir,
            "max_turns": str(max_turns),
        }

    def _path(self) -> str:
        own = [f"{mount}/{folder}" for mount in self._spec.mounts for folder in ("node_modules/.bin", "bin")]
        return ":".join([*own, "/usr/local/bin", "/usr/bin", "/bin"])

    def _describe(self, ended: Exit) -> str:
        told = self._text(ended.stderr)[-MAX_ERROR:] or self._text(ended.stdout)[-MAX_ERROR:]
        return (
            f"The command ended with status {ended.status}. {f'Its last output: {told}' if told else 'It was silent.'}"
        )

    async def _answer(self, ended: Exit) -> str:
        if not self._spec.answer_file:
            return self._text(ended.stdout[:MAX_ANSWER])
        content = await self._box.download(self._spec.answer_file, MAX_ANSWER)
        # An empty answer would make the last reply of the model count.
        if content is None or not (answer := self._text(content)):
            raise AgentFailed(f"The agent wrote no {self._spec.answer_file}.")
        return answer

    async def _artifacts(self) -> dict[str, Any]:
        """Return the files by path: text, or an object that says why there is none."""
        read = {path: await self._box.download(path, MAX_ARTIFACT + 1) for path in self._spec.artifacts}
        return {path: self._artifact(content) for path, content in read.items() if content is not None}

    def _artifact(self, content: bytes) -> Any:
        if len(content) > MAX_ARTIFACT:
            return {"error": f"The file is larger than {MAX_ARTIFACT:,} bytes."}
        try:
            content.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}
        return self._text(content)

    def _text(self, content: bytes) -> str:
        """Return text that a database can store, without the key."""
        return content.decode(errors="replace").replace("\0", "�").replace(self._secret, "(key)").strip()


def write_instruction(items: Sequence[Item]) -> str:
    """Return a prompt as one text. Its messages get headings if it is a conversation."""
    messages = [item for item in items if item_type(item) == "message" and text_of(item)]
    is_conversation = sum(item.get("role") not in ("system", "developer") for item in messages) > 1
    return "\n\n".join(
        f"{str(item.get('role')).capitalize()}: {text_of(item)}" if is_conversation else text_of(item)
        for item in messages
    )
