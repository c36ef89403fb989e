# SPDX-License-Identifier: Apache-2.0
"""
A program that looks like ``vllm serve`` from outside: its command line, its port, its log. It ends itself in time.

It is run as a script named ``vllm`` and imports nothing but the standard library.
"""

from __future__ import annotations

import signal
import socket
import sys
import time


SECONDS = 1200
PAGE = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n" % len(PAGE)


def main():
    """Listen, say so, and answer whatever is asked with a page."""
    signal.alarm(SECONDS)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if "--port" in sys.argv:
        listener.bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
        listener.listen()
    clock = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"(APIServer pid=1) INFO {clock} [api_server.py:1289] vLLM API server version 0.14.0\n")
    sys.stdout.write("(APIServer pid=1) INFO:     Application startup complete.\n")
    sys.stdout.flush()
    while "--port" in sys.argv:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(ANSWER + b"Connection: close\r\n\r\n" + PAGE)
    signal.pause()


if __name__ == "__main__":
    main()
