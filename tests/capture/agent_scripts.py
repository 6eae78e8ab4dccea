"""Programs of command agents, in Python without packages. Each is the text of a command."""

CALL = """
import json, os, sys, urllib.request
def ask(messages):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["AGENT_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["AGENT_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
"""
"""Asks the model."""

SOLVE = (
    CALL
    + """
task = open(sys.argv[1]).read()
answer = ask([{"role": "user", "content": task}])
open("answer.txt", "w").write(answer)
open("notes.txt", "w").write("asked: " + task + " with " + os.environ["AGENT_KEY"])
os.symlink("/etc/passwd", "passwd.txt")
print("done")
"""
)

LOOK = """
import json, os, socket, sys
def tries(run):
    try:
        return repr(run())
    except OSError as problem:
        return type(problem).__name__
paths = json.loads(sys.argv[1])
found = {path: tries(lambda: open(path).read()) for path in paths}
found["network"] = tries(lambda: socket.create_connection((sys.argv[2], int(sys.argv[3])), 5))
found["environment"] = sorted(os.environ)
print(json.dumps(found))
"""
"""Tells which files and addresses it reaches."""

FAIL = "import sys; print('half', flush=True); sys.exit('the disk of the agent is full')"

WAIT = """
import subprocess, sys, time
subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
time.sleep(600)
"""
"""Starts a process in the background, then waits."""

REPEAT = (
    CALL
    + """
for number in range(100):
    ask([{"role": "user", "content": str(number)}])
"""
)
