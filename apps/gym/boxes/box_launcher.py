"""The first program in a box: it sets limits, passes connections on to the capture server, and runs the command.

Kept as text, because files of this project are not visible inside. It uses only Python's standard library.
"""

import textwrap

PORT = 8111
"""Port of the capture server in a box. Each box has its own network, so that they may share the number."""
SOCKET = "/run/capture.sock"
"""The capture server in a box."""

LAUNCHER = textwrap.dedent(
    """
    import os, resource, select, signal, socket, sys, threading

    def bound(name, value):
        kind = getattr(resource, "RLIMIT_" + name)
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))

    def copy(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def relay(client):
        with client, socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(path)
            except OSError:
                return
            back = threading.Thread(target=copy, args=(server, client), daemon=True)
            back.start()
            copy(client, server)
            back.join()

    def end_with(pipe):
        watched = select.poll()
        watched.register(pipe, 0)
        watched.poll()  # until nothing reads the pipe
        try:
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)

    def serve(listener):
        os.setsid()
        threading.Thread(target=end_with, args=(int(started),), daemon=True).start()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        while True:
            client = listener.accept()[0]
            threading.Thread(target=relay, args=(client,), daemon=True).start()

    processes, largest, port, path, started = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6]
    for name, value in (("NPROC", processes), ("FSIZE", largest), ("CORE", 0)):
        bound(name, value)
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    if os.fork() == 0:
        serve(listener)
    listener.close()
    os.write(int(started), b"1")
    os.closerange(3, 1024)
    try:
        os.execvp(sys.argv[6], sys.argv[6:])
    except OSError as problem:
        print(f"{sys.argv[6]} cannot be run: {problem.strerror}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(127)
    """
).strip()


def launcher_arguments(python: str, *, processes: int, largest: int, started: int) -> list[str]:
    """Return the arguments that precede the command.

    `started` is the writing end of a pipe: one byte is written to it before the command runs, and all processes of the
    box end when nothing reads it any more. bubblewrap's `--die-with-parent` alone misses a parent that ends while the
    box starts.
    """
    given = [str(processes), str(largest), str(PORT), SOCKET, str(started)]
    return [python, "-I", "-S", "-B", "-c", LAUNCHER, *given]
