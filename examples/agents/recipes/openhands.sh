# OpenHands CLI (pip install openhands) in headless mode. The answer is the message of its tool `finish`.
set -eu
export LLM_MODEL=openai/any LLM_BASE_URL="$OPENAI_BASE_URL" LLM_API_KEY="$OPENAI_API_KEY"
export OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True
openhands --headless --override-with-envs --task "$PROMPT"
