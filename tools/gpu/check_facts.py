"""What the machine is: card, driver, clocks, versions. Everything may be missing, and is then left out."""
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import sys

import check_process

FIELDS = {"name": "card", "uuid": "uuid", "memory.total": "memory", "driver_version": "driver", "power.limit": "power limit",
          "clocks.max.sm": "largest SM clock", "clocks.max.memory": "largest memory clock", "clocks.sm": "SM clock at the start",
          "temperature.gpu": "temperature at the start", "ecc.mode.current": "ECC", "mig.mode.current": "MIG",
          "compute_mode": "compute mode"}
PACKAGES = ("torch", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "triton")
# Names as NVML gives them -> types of `lego hardware`. The first that fits counts.
TYPES = [("H100 80GB HBM3", "h100-sxm-80"), ("H100 PCIe", "h100-pcie-80"), ("NVIDIA H200", "h200"), ("NVIDIA B200", "b200"),
         ("A100-SXM4-80GB", "a100-sxm-80"), ("A100-SXM4-40GB", "a100-sxm-40")]


def device_type(card):
    """Type of the catalog, or None."""
    return next((kind for part, kind in TYPES if part in card), None)


def smi(query, limit=15, fields=None):
    """Rows of nvidia-smi as dictionaries; [] where there is none."""
    names = list(fields or FIELDS)
    try:
        result = check_process.run(["nvidia-smi", f"--{query}={','.join(names)}", "--format=csv,noheader"], limit)
    except OSError:
        return []
    return parse_smi(result.stdout, names) if result.code == 0 else []


def parse_smi(text, names):
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines() if line.strip()]
    return [dict(zip(names, row)) for row in rows if len(row) == len(names)]


def visible(rows, variable):
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order: numbers, or UUIDs and their beginnings. Ends at the first that is
    none, as CUDA does."""
    if variable is None:
        return rows
    chosen = []
    for word in variable.split(","):
        word = word.strip()
        if word.isdigit():
            found = rows[int(word):int(word) + 1]
        else:
            found = [row for row in rows if word and row.get("uuid", "").startswith(word)]
        if len(found) != 1:
            break
        chosen += found
    return chosen


def torch_facts(limit=60):
    """Of the first card, asked of Python's torch: where there is no nvidia-smi."""
    code = ("import torch, json; n = torch.cuda.device_count(); p = torch.cuda.get_device_properties(0) if n else None; "
            "print(json.dumps({'cards': n, 'card': p.name if p else '', 'memory': f'{p.total_memory >> 20} MiB' if p else ''}))")
    result = check_process.run([sys.executable, "-c", code], limit)
    try:
        return json.loads(result.stdout)
    except ValueError:
        return {}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def has_torch():
    return importlib.util.find_spec("torch") is not None


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return ""


def from_lego(gpus):
    """Of `lego hardware -o json`, which asks NVML and knows the catalog; nothing where it shows no card."""
    if not gpus:
        return {}
    first = gpus[0]
    return {"card": first["name"], "uuid": first["uuid"], "cards": len(gpus), "memory": f"{first['memory_bytes'] >> 20} MiB",
            "type in the catalog": first["type"] or "none"}


def collect(device, gpus=()):
    """Facts by name, for a table; cards: how many the programs see. gpus: what `lego hardware` says of them, if anything."""
    facts = {"device": device, "processor": f"{cpu_name()}, {len(os.sched_getaffinity(0))} processors",
             "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
             "Python": platform.python_version()}
    for package in PACKAGES:
        if version(package):
            facts[package] = version(package)
    if device != "cuda":
        return facts
    rows, known = visible(smi("query-gpu"), os.environ.get("CUDA_VISIBLE_DEVICES")), from_lego(gpus)
    if known:
        rows = [row for row in rows if row["uuid"] == known["uuid"]]
    if rows:
        facts.update({FIELDS[key]: value for key, value in rows[0].items()}, cards=len(rows))
    elif has_torch() and not known:
        facts.update(torch_facts())
    facts["type in the catalog"] = device_type(facts.get("card", "")) or "none"
    return {**facts, **known}


class Sampler:
    """SM clock and power twice a second while something is measured; where there is no nvidia-smi, nothing."""
    NAMES = ["clocks.sm", "power.draw", "temperature.gpu"]

    def __init__(self, device, uuid):
        self.process = None
        if device != "cuda" or not uuid:
            return
        try:
            self.process = check_process.Process(["nvidia-smi", "-i", uuid, f"--query-gpu={','.join(self.NAMES)}",
                                                  "--format=csv,noheader,nounits", "-lms", "500"])
        except OSError:
            pass

    def end(self):
        """A sentence, empty where nothing was sampled."""
        if self.process is None:
            return ""
        while self.process.selector.get_map() and self.process.pump(0):
            pass
        rows = parse_smi(self.process.text("stdout"), self.NAMES)
        self.process.kill()
        return self.tell(rows)

    @classmethod
    def tell(cls, rows):
        def numbers(name):
            return [float(row[name]) for row in rows if row[name].replace(".", "", 1).isdigit()]
        if not rows or not numbers("clocks.sm"):
            return ""
        words = []
        for name, title, unit in (("clocks.sm", "SM clock", "MHz"), ("power.draw", "power", "W"), ("temperature.gpu", "temperature", "C")):
            values = numbers(name)
            if values:
                words.append(f"{title} {min(values):.0f} to {max(values):.0f} {unit}, median {statistics.median(values):.0f}")
        return "; ".join(words)
