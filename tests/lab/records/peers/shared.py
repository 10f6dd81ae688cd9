"""What the scripts of this folder share."""

import json
import platform
import socket
import subprocess
import time
import urllib.request
from pathlib import Path


def processor():
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(": ")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def asked(url, body):
    """The answer to `body`, which is read as it comes."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request)


def parsed(lines):
    """The chunks in lines of a streamed answer."""
    for line in lines:
        data = line.removeprefix(b"data: ").strip()
        if line.startswith(b"data: ") and data != b"[DONE]":
            yield json.loads(data)


def chunks(url, body):
    """The chunks of a streamed answer to `body`, as they come."""
    with asked(url, body) as stream:
        yield from parsed(stream)


def all_chunks(url, body):
    """The same, parsed after the end of the stream: takes less processor time while the server computes."""
    with asked(url, body) as stream:
        return list(parsed(stream.read().splitlines()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server of the file on a port of its own."""

    def __init__(self, command, log, ready="/health"):
        self.url = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
        self.log = open(log, "w")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{self.url}{ready}") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"{command[0]} does not start; see {log}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
