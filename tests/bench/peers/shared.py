"""What the scripts of this folder share."""

import json
import platform
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


def chunks(url, body):
    """The chunks of a streamed answer to `body`, as they come."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as stream:
        for line in stream:
            data = line.removeprefix(b"data: ").strip()
            if line.startswith(b"data: ") and data != b"[DONE]":
                yield json.loads(data)
