"""What was found: lines of parts, counted, printed as they come, and written as report.json and report.md after each of them.

A line's state is one of STATES. Passed and failed ones are counted; what was skipped (the machine lacks what it needs) or not run
(there was no time, or no program) is neither, and says why."""
import json
import os
import time

STATES = ("passed", "failed", "skipped", "not run")


def clock(seconds):
    return f"[{seconds:4.0f} s]"


def write_whole(path, text):
    """A reader, and a kill, finds the old file or the new one."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def cell(value, form):
    if value is None:
        return "–"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and form:
        return format(value, form)
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(columns, rows):
    """Markdown. columns: (key, title, format)."""
    text = "| " + " | ".join(title for _, title, _ in columns) + " |\n|" + "---|" * len(columns) + "\n"
    for row in rows:
        text += "| " + " | ".join(cell(row.get(key), form) for key, _, form in columns) + " |\n"
    return text


PLAIN = [("name", "what", ""), ("state", "outcome", ""), ("text", "", "")]


class Part:
    def __init__(self, name, title, columns=None):
        self.name, self.title, self.columns = name, title, columns or PLAIN
        self.state, self.reason, self.seconds = "not run", "", 0.0
        self.lines, self.notes = [], []

    def tree(self):
        return {"name": self.name, "title": self.title, "state": self.state, "reason": self.reason,
                "seconds": round(self.seconds, 1), "notes": self.notes, "lines": self.lines}

    def markdown(self):
        text = f"## {self.title}\n\n"
        if self.reason:
            text += f"{self.state}: {self.reason}\n\n"
        if self.lines:
            text += table(self.columns, self.lines) + "\n"
        # A table of figures has no column for what went wrong.
        if self.columns is not PLAIN:
            troubles = [line for line in self.lines if line["state"] != "passed" and line.get("text")]
            text += "".join(f"- {line['name']}: {line['state']}: {line['text']}\n" for line in troubles) + ("\n" if troubles else "")
        return text + "".join(note + "\n" for note in self.notes) + ("\n" if self.notes else "")


class Report:
    def __init__(self, out, begun=None, say=print):
        self.out, self.begun, self.say = out, begun or time.monotonic(), say
        self.date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        self.facts, self.parts, self.ended = {}, [], ""

    def seconds(self):
        return time.monotonic() - self.begun

    def progress(self, text):
        self.say(f"{clock(self.seconds())} {text}", flush=True)

    def add(self, part, name, state, text="", **figures):
        assert state in STATES, state
        text = text if len(text) <= 500 else text[:300] + " ... " + text[-195:]  # all of it is in the log
        part.lines.append({"name": name, "state": state, "text": text, **figures})
        self.progress(f"{part.name}: {name}: {state}{': ' + text if text else ''}")
        self.write()

    def count(self, state):
        return sum(line["state"] == state for part in self.parts for line in part.lines)

    def closing(self):
        """The last line of the output."""
        return f"{self.count('passed')} passed, {self.count('failed')} failed"

    def not_run(self):
        """Names with reasons: parts of which nothing ran, and lines."""
        names = [f"{part.name}: {part.reason}" for part in self.parts if part.state == "not run" and part.reason]
        return names + [f"{part.name}: {line['name']}: {line['text']}" for part in self.parts for line in part.lines
                        if line["state"] == "not run"]

    def skipped(self):
        return [f"{part.name}: {part.reason}" for part in self.parts if part.state == "skipped"] + [
            f"{part.name}: {line['name']}: {line['text']}" for part in self.parts for line in part.lines if line["state"] == "skipped"]

    def tree(self):
        return {"version": 1, "date": self.date, "seconds": round(self.seconds(), 1), "ended": self.ended,
                "passed": self.count("passed"), "failed": self.count("failed"), "skipped": self.skipped(),
                "not_run": self.not_run(), "facts": self.facts, "parts": [part.tree() for part in self.parts]}

    def markdown(self):
        text = f"# GPU check of {self.date}\n\n{self.closing()} in {self.seconds():.0f} s"
        text += f"; it ended early: {self.ended}\n\n" if self.ended else "\n\n"
        text += table([("name", "fact", ""), ("value", "", "")], [{"name": k, "value": v} for k, v in self.facts.items()]) + "\n"
        for title, lines in (("Not run", self.not_run()), ("Skipped", self.skipped())):
            text += f"{title}:\n\n" + "".join(f"- {line}\n" for line in lines) + "\n" if lines else ""
        return text + "".join(part.markdown() for part in self.parts if part.lines or part.reason)

    def write(self):
        write_whole(os.path.join(self.out, "report.json"), json.dumps(self.tree(), indent=1) + "\n")
        write_whole(os.path.join(self.out, "report.md"), self.markdown())


class Log:
    """log.txt: what the programs printed, of each call the beginning and the end, in all at most 8 MiB."""
    HEAD, TAIL, MOST = 6000, 24000, 8 << 20

    def __init__(self, out):
        self.path, self.size = os.path.join(out, "log.txt"), 0
        open(self.path, "w").close()

    def cut(self, text):
        if len(text) <= self.HEAD + self.TAIL:
            return text
        return f"{text[:self.HEAD]}\n... {len(text) - self.HEAD - self.TAIL} characters left out ...\n{text[-self.TAIL:]}"

    def add(self, title, *texts):
        entry = f"=== {title}\n" + "".join(self.cut(text).rstrip() + "\n" for text in texts if text.strip())
        if self.size > self.MOST:
            return
        if self.size + len(entry.encode()) > self.MOST:
            entry = "=== the log is full; what follows is left out\n"
            self.size = self.MOST
        with open(self.path, "a", encoding="utf-8", errors="replace") as file:
            file.write(entry)
        self.size += len(entry.encode())
