"""Programs that the check starts: each has a limit, and is killed with all that it started when the limit is over.

What a program starts inherits a mark in its environment, by which it is found even where it left the program's process group."""
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import time
import uuid

MARK = "LEGOAI_GPU_CHECK"
MOST_KEPT = 4 << 20  # bytes of one output
MOST_OF_A_LINE = 1 << 20  # what is longer is no line that anybody reads


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP came. No Exception: what deals with the trouble of one part must not stop it."""


@dataclasses.dataclass
class Result:
    code: int = 0  # of the process; below zero: the signal that ended it
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    killed: str = ""  # why it was killed; empty: it ended by itself

    def last_line(self):
        lines = [line.strip() for line in self.stderr.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""


def marked(mark):
    """Processes with this mark in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(name))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def kill_marked(mark):
    """Kills them all, and what they start meanwhile. Gives those that do not end within five seconds: a driver may hold them."""
    end = time.monotonic() + 5
    while True:
        left = marked(mark)
        if not left or time.monotonic() > end:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.02)


class Process:
    """A started program with its outputs. Use as a context: it is gone afterwards, with all that it started."""

    def __init__(self, command, env=None, cwd=None, stdin=False):
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.begun = time.monotonic()
        self.popen = subprocess.Popen(command, env={**os.environ, **(env or {}), name: value}, cwd=cwd, start_new_session=True,
                                      stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.line = bytearray()  # of stdout, not yet ended
        self.silent = True
        self.selector = selectors.DefaultSelector()
        for kind in self.output:
            pipe = getattr(self.popen, kind)
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, kind)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """Gives the processes that cannot be killed."""
        left = kill_marked(self.mark)
        # What cleared its environment has no mark. Nor has what a driver holds after it was killed, which must not hold the check.
        self.popen.kill()
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            left = sorted({*left, self.popen.pid})
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            try:
                if pipe:
                    pipe.close()
            except OSError:
                pass
        self.selector.close()
        return left

    def _keep(self, kind, data):
        kept = self.output[kind]
        kept += data
        if len(kept) > MOST_KEPT:  # the beginning and the end tell the most
            del kept[MOST_KEPT // 4: len(kept) - MOST_KEPT // 2]

    def pump(self, seconds):
        """Waits for at most so long, and reads what is there; gives the new lines of stdout. `silent`: nothing was there."""
        lines, self.silent = [], True
        for key, _ in self.selector.select(seconds):
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self.selector.unregister(key.fileobj)
                continue
            self.silent = False
            self._keep(key.data, data)
            if key.data == "stdout":
                lines += self._lines(data)
        return lines

    def _lines(self, data):
        *ended, rest = data.split(b"\n")
        lines = []
        for end in ended:
            lines.append((self.line + end).decode(errors="replace"))
            self.line.clear()
        self.line += rest[:max(0, MOST_OF_A_LINE - len(self.line))]
        return lines

    def text(self, kind):
        return self.output[kind].decode(errors="replace")

    def seconds(self):
        return time.monotonic() - self.begun


def run(command, limit, env=None, cwd=None, on_line=None, overdue=None):
    """Runs a program for at most `limit` seconds. on_line(line) hears its standard output, overdue() says why it is to be killed
    before, or nothing."""
    result = Result()
    with Process(command, env, cwd) as process:
        ended = None
        while True:
            open_pipes = bool(process.selector.get_map())
            if not open_pipes:
                time.sleep(0.02)  # a selector of nothing does not wait
            for line in process.pump(0.05) if open_pipes else []:
                if on_line:
                    on_line(line)
            code = process.popen.poll()
            if code is not None and ended is None:
                ended = time.monotonic()
            # What it started may hold its pipes open.
            if code is not None and (not open_pipes or (process.silent and time.monotonic() > ended + 0.3)):
                result.code = code
                break
            why = f"did not end within {limit:.0f} s" if process.seconds() > limit else overdue() if overdue and code is None else ""
            if why:
                result.killed = why
                break
        result.seconds = process.seconds()
        left = process.kill()
        if left:
            result.killed = (result.killed or "ended") + f"; processes {left} cannot be killed"
        if result.killed:
            result.code = -signal.SIGKILL
        result.stdout, result.stderr = process.text("stdout"), process.text("stderr")
    return result


class Conversation:
    """A program that answers each line of JSON with one."""

    def __init__(self, command, env=None, cwd=None):
        self.process = Process(command, env, cwd, stdin=True)
        self.broken = ""

    def ask(self, request, limit):
        """The answer, or {"error": why}. After an error nothing more is to be had."""
        if not self.broken:
            try:
                if request is not None:  # None: what it says first
                    self.process.popen.stdin.write(json.dumps(request).encode() + b"\n")
                    self.process.popen.stdin.flush()
                return self._answer(limit)
            except OSError as error:
                self.broken = f"it is gone: {error}"
        return {"error": self.broken}

    def _answer(self, limit):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            closed = not self.process.selector.get_map()
            for line in [] if closed else self.process.pump(0.05):
                if line.startswith("{"):
                    return json.loads(line)
            if closed or (self.process.popen.poll() is not None and self.process.silent):
                time.sleep(0.05)
                last = self.process.text("stderr").strip().splitlines()[-1:]
                self.broken = f"it ended with code {self.process.popen.poll()}: {' '.join(last)}"
                break
        else:
            self.broken = f"no answer within {limit:.0f} s"
        self.process.kill()
        return {"error": self.broken}

    def close(self):
        self.process.kill()
        return self.process.text("stderr")
