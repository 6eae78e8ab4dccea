# OpenHands CLI (pip install openhands) in headless mode. The answer is the message of its tool `finish`.
set -eu
export LLM_MODEL=openai/any LLM_BASE_URL="$OPENAI_BASE_URL" LLM_API_KEY="$OPENAI_API_KEY"
export OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True
openhands --headless --json --override-with-envs --task "$PROMPT" > events.txt
python3 - <<END
import json

events = [json.loads(line) for line in open("events.txt", encoding="utf-8") if line.startswith("{")]
actions = [event.get("action") or {} for event in events]
print([action["message"] for action in actions if action.get("kind") == "FinishAction"][-1])
END
