"""A router over its replicas, as deploy/routers starts them."""

import concurrent.futures
import os
import pathlib
import random
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import threading

from client import CHAT, Client, chat, until

ROUTERS = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "routers"
# The API key of replicas and scripts, read from the environment.
KEY = "key-" + secrets.token_hex(16)
os.environ["ASYNCLANE_API_KEY"] = KEY
BINARY = os.environ.get("ASYNCLANE", "asynclane")


def free_ports(count):
    """The first of this many consecutive free ports, below those that the system gives to connections:
    one of these may be taken before a server binds it."""
    while True:
        port = random.randrange(20_000, 32_768 - count)
        sockets = []
        try:
            for offset in range(count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port + offset))
            return port
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()


class Process:
    """A process; its output is printed if a test fails."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **options,
        )
        self.lines, self.pid = [], self.process.pid
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def find(self, pattern):
        for line in list(self.lines):
            if match := re.match(pattern, line):
                return match
        return None

    def wait_for(self, pattern):
        def holds():
            ended = self.process.poll() is not None
            if ended and not self.find(pattern):
                raise AssertionError("ended too early:\n" + "".join(self.lines))
            return self.find(pattern)

        until(holds, pattern)
        return self.find(pattern)

    def stop(self):
        """The exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


class Replica(Process):
    """`asynclane serve` on a port, once it is ready."""

    def __init__(self, port, flags=(), cpu=None):
        pin = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
        command = [BINARY, "serve", "--listen", f"127.0.0.1:{port}", *flags]
        super().__init__([*pin, *command])
        self.url = self.wait_for(r"ready on (http://\S+)")[1]


class Stand:
    """`deploy/routers/NAME/run`, with its own replicas unless `workers` are given."""

    def __init__(self, name, flags=(), workers=(), **environment):
        self.key = "sk-" + secrets.token_hex(16) if name == "litellm" else KEY
        # Its own, its replicas', the gateway's metrics.
        port = free_ports(10)
        environment |= {
            "PORT": str(port),
            "WORKERS": " ".join(workers),
            "VENV": os.environ[f"VENV_{name.upper()}"],
            "LOGS": tempfile.mkdtemp(prefix=f"{name}-"),
            "LITELLM_MASTER_KEY": self.key,
        }
        self.run = Process([str(ROUTERS / name / "run"), *flags], env=os.environ | environment)
        self.replicas = {}
        self.url = self.run.wait_for(r"ready on (http://[^,]+),")[1]
        pattern = r"replica \d \(pid (\d+)\) on (http://\S+)"
        for line in self.run.lines:
            if match := re.match(pattern, line):
                self.replicas[match[2]] = int(match[1])
        self.workers = list(workers) or list(self.replicas)
        if name == "smg":
            # It reports ready before it knows its replicas.
            until(self.all_known, "every replica is known to the gateway")

    def target(self):
        return self.url, self.key

    def client(self):
        return Client(*self.target())

    def seen(self, together=8):
        """The replicas that answer this many simultaneous requests."""
        def ask(_):
            client = self.client()
            answer = client.post(CHAT, chat(3, max_tokens=1))
            client.close()
            return answer.worker

        with concurrent.futures.ThreadPoolExecutor(together) as pool:
            return set(pool.map(ask, range(together)))

    def all_known(self):
        client = self.client()
        known = client.get("/workers").json()["workers"]
        client.close()
        healthy = {worker["url"] for worker in known if worker["is_healthy"]}
        return healthy == set(self.workers)

    def all_answer(self):
        return set(self.workers) <= self.seen()

    def signal(self, worker, which):
        os.kill(self.replicas[worker], which)

    def restart(self, worker, flags):
        """Replaces an ended process and waits until the router uses the new one."""
        port = int(worker.rsplit(":", 1)[1])
        replica = Replica(port, flags)
        self.replicas[worker] = replica.pid
        until(self.all_answer, "the router uses the replica that came back")
        return replica

    def stop(self):
        return self.run.stop()
