"""Requests to a router or a replica, with and without retries, using the standard library."""

import http.client
import json
import threading
import time
import urllib.parse

CHAT = "/v1/chat/completions"
# Much longer than a request on a busy machine; only a failed test waits this long.
PATIENCE = 300.0


class Refused(Exception):
    """A failed request: an error status, an interrupted stream, an error inside a stream."""


class Answer:
    """Text, usage and the replica that answered, if the router names it."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        worker = headers.get("x-smg-routed-worker-id") or headers.get("x-litellm-model-api-base")
        self.worker = worker.removesuffix("/v1") if worker else None

    def json(self):
        return json.loads(self.body)

    def text(self):
        """The text of a plain or streamed chat that succeeded."""
        if self.status != 200:
            raise Refused(f"status {self.status}: {self.body[:300]}")
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return self.json()["choices"][0]["message"]["content"]
        chunks = self.chunks()
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        if not any(choice.get("finish_reason") for choice in choices):
            raise Refused(f"a stream without an end: {self.body[-300:]}")
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    def chunks(self):
        """The chunks of a stream with its end mark."""
        lines = [line for line in self.body.splitlines() if line.startswith("data: ")]
        if not lines or lines[-1] != "data: [DONE]":
            raise Refused(f"a stream that broke off: {self.body[-300:]}")
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        for chunk in chunks:
            if "error" in chunk:
                raise Refused(f"an error in a stream: {chunk}")
        return chunks


class Client:
    """One connection, kept until the other side closes it."""

    def __init__(self, url, key=""):
        self.address = urllib.parse.urlsplit(url)
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.connection = None

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def call(self, method, path, body=None, headers=()):
        data = None if body is None else json.dumps(body)
        kept = self.connection is not None
        if not kept:
            host, port = self.address.hostname, self.address.port
            self.connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        try:
            self.connection.request(method, path, data, {**self.headers, **dict(headers)})
        except OSError:
            self.close()
            # The other side has closed an idle connection, as LiteLLM does after 5 s.
            if kept:
                return self.call(method, path, body, headers)
            raise
        try:
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        found = {name.lower(): value for name, value in response.getheaders()}
        if found.get("connection") == "close":
            self.close()
        return Answer(response.status, found, text)

    def post(self, path, body, headers=()):
        return self.call("POST", path, body, headers)

    def get(self, path):
        return self.call("GET", path)


def chat(number, **fields):
    """A sum that the demo model answers in about forty tokens."""
    prompt = (
        f"Tom has {number} coins. Then he buys 6 more coins. Next he loses 2 coins. "
        "How many coins does Tom have now?"
    )
    messages = [{"role": "user", "content": prompt}]
    return {"model": "demo", "messages": messages, "max_tokens": 96, "temperature": 0, **fields}


NUMBERS = range(3, 13)


def answers(*target):
    """A replica's own answer to every sum."""
    client = Client(*target)
    texts = {number: client.post(CHAT, chat(number)).text() for number in NUMBERS}
    client.close()
    return texts


class Load:
    """Threads that request sums, plain and streamed in turn, until stopped.

    `tries` is how often a client sends a request that fails before it gives it up.
    """

    def __init__(self, target, expected, threads=8, tries=1):
        self.target, self.expected, self.tries = target, expected, tries
        self.lock, self.stopping = threading.Lock(), threading.Event()
        # Answers by replica; failed tries; abandoned requests; answers that differ from the replica's.
        self.answered, self.failures, self.lost, self.wrong = {}, [], [], []
        self.threads = [threading.Thread(target=self.work, args=(at,)) for at in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def total(self):
        with self.lock:
            return sum(self.answered.values())

    def of(self, worker):
        with self.lock:
            return self.answered.get(worker, 0)

    def work(self, at):
        client = Client(*self.target)
        turn = at
        while not self.stopping.is_set():
            number, stream = NUMBERS[turn % len(NUMBERS)], turn % 2 == 0
            self.ask(client, number, stream)
            turn += 1
        client.close()

    def ask(self, client, number, stream):
        failure = None
        for _ in range(self.tries):
            try:
                answer = client.post(CHAT, chat(number, stream=stream))
                text = answer.text()
            except (OSError, http.client.HTTPException, Refused) as error:
                failure = f"{type(error).__name__}: {error}"
                with self.lock:
                    self.failures.append(failure)
                time.sleep(0.1)
                continue
            with self.lock:
                self.answered[answer.worker] = self.answered.get(answer.worker, 0) + 1
                if text != self.expected[number]:
                    self.wrong.append((number, text))
            return
        with self.lock:
            self.lost.append(failure)

    def until(self, holds, what):
        """Waits until `holds()`; the timeout only ends a failed test."""
        until(holds, f"{what}; failures: {self.failures[-3:]}")

    def more(self, count):
        """Waits for this many more answers."""
        goal = self.total() + count
        self.until(lambda: self.total() >= goal, f"{count} more answers")


def until(holds, what):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.02)
