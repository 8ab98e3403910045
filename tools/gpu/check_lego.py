"""Calls of `lego` on recipes that are written here."""
import concurrent.futures
import dataclasses
import json
import math
import os
import random
import socket

WORDS = ("the of and to that in he shall unto for his a they be is with not all thou it which were there from them light dark water "
         "earth river mountain people city house king day year hand word heart stone fire wind voice road field").split()


def free_port():
    """Below the ports that the kernel gives to whoever asks for any: nobody else takes it before the first host does."""
    while True:
        port = random.randint(20000, 31999)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def write_text(path, size):
    """Prose of a kind, the same in every run: words with a Zipf-like distribution, so that there is something to learn."""
    draw = random.Random(17)
    weights = [1 / (rank + 2) for rank in range(len(WORDS))]
    with open(path, "w", encoding="ascii") as file:
        written = 0
        while written < size:
            line = " ".join(draw.choices(WORDS, weights, k=draw.randint(6, 16))).capitalize() + ".\n"
            written += file.write(line)


def toml(sections):
    def value(item):
        return json.dumps(item)  # strings, numbers and booleans are written alike
    return "".join(f"[{name}]\n" + "".join(f"{key} = {value(item)}\n" for key, item in keys.items()) + "\n"
                   for name, keys in sections.items() if keys)


def merged(*recipes):
    """Sections of the later ones win, key by key."""
    result = {}
    for recipe in recipes:
        for section, keys in recipe.items():
            result.setdefault(section, {}).update(keys)
    return result


def read_metrics(path):
    """By step; of a step that was done twice the last attempt's."""
    steps = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut by a kill
            if entry["step"] not in steps or entry["attempt"] >= steps[entry["step"]]["attempt"]:
                steps[entry["step"]] = entry
    return [steps[step] for step in sorted(steps)]


@dataclasses.dataclass
class Training:
    error: str = ""  # empty: it finished
    out_of_time: bool = False
    outcome: dict = dataclasses.field(default_factory=dict)
    metrics: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    directory: str = ""

    def series(self, name):
        return [entry[name] for entry in self.metrics]

    def step_seconds(self, warm_up):
        return [entry["step_seconds"] for entry in self.metrics if entry["step"] > warm_up]


class Lego:
    """context: runs programs (check.py). Everything lies in `folder`."""

    def __init__(self, context, folder, text_bytes):
        self.context, self.folder = context, folder
        self.text = os.path.join(folder, "text.txt")
        write_text(self.text, text_bytes)

    def config(self, name, config):
        """Writes config.json; gives its folder."""
        path = os.path.join(self.folder, "models", name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return path

    def recipe(self, name, *sections):
        """Writes recipe.toml; gives its path."""
        directory = os.path.join(self.folder, "runs", name)
        recipe = merged({"job": {"dump_folder": directory}, "training": {"dataset_path": self.text},
                         "lr_scheduler": {"warmup_steps": 2, "decay_type": "none"}, "metrics": {"log_freq": 1},
                         # A rank that hangs is told of by its launcher, before the limit here ends both.
                         "comm": {"init_timeout_seconds": 90, "train_timeout_seconds": 40}}, *sections)
        path = os.path.join(self.folder, name + ".toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(toml(recipe))
        return path, directory

    def call(self, title, arguments, limit, env=None):
        """(result, the answer's JSON or None)"""
        command = [self.context.programs["lego"], *arguments, "-o", "json"]
        result = self.context.run(title, command, limit, env=env, cwd=self.folder)
        try:
            return result, json.loads(result.stdout)
        except ValueError:
            return result, None

    def on_hosts(self, title, arguments, hosts, limit):
        """`lego train` as it is called on each of several hosts, all at once and all on this one; what the first answers. NCCL is
        told that they are hosts of their own: it connects their ranks by sockets, whatever cards they have."""
        port = free_port()

        def call(host):
            gang = [f"--nnodes={hosts}", f"--node-rank={host}", "--master-addr=127.0.0.1", f"--master-port={port}"]
            return self.call(f"{title}, host {host}", [*arguments, *gang], limit, env={"NCCL_HOSTID": f"host-{host}"})

        with concurrent.futures.ThreadPoolExecutor(hosts) as threads:
            return list(threads.map(call, range(hosts)))[0]

    def train(self, name, *sections, device, ranks=1, hosts=1, limit=120):
        """Trains, with so many ranks on each host; `limit` is its own, and what is left of the part may be less."""
        path, directory = self.recipe(name, *sections)
        seconds = min(limit, self.context.left())
        title, arguments = f"lego train {name} on {device}", ["train", path, f"--nproc={ranks}", f"--device={device}"]
        if hosts > 1:
            result, outcome = self.on_hosts(title, arguments, hosts, seconds)
        else:
            result, outcome = self.call(title, arguments, seconds)
        training = Training(seconds=result.seconds, directory=directory, outcome=outcome or {})
        if result.killed:
            training.error = result.killed
            training.out_of_time = seconds < limit
        elif result.code != 0 or outcome is None:
            training.error = f"ended with code {result.code}: {result.last_line()}"
        metrics = os.path.join(directory, "metrics.jsonl")
        if os.path.exists(metrics):
            training.metrics = read_metrics(metrics)
        # Of a step that the loss's scale made overflow, and that was left out, there is no norm.
        norms = [x for x in training.series("grad_norm") if x is not None]
        if not training.error and not all(math.isfinite(x) for x in training.series("loss") + norms):
            training.error = "a loss or gradient norm is not finite"
        return training

    def simulate(self, name, *sections, cluster, limit=60):
        """(the estimate or None, why there is none)"""
        path, _ = self.recipe(name, *sections)
        result, estimate = self.call(f"lego simulate {name}", ["simulate", f"--cluster={cluster}", f"--recipe={path}"],
                                     min(limit, self.context.left()))
        return estimate, "" if estimate else result.killed or f"ended with code {result.code}: {result.last_line()}"
