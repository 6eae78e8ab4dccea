# Qwen Code (npm install @qwen-code/qwen-code), which runs its tools without asking.
set -eu
qwen --auth-type openai --model any --yolo "$PROMPT"
