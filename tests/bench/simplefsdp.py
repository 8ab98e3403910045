"""FSDP's collectives of two ranks on this CPU, joined and ordered in each way: exposed communication, step time and peak memory,
predicted from the step's operators measured here, beside those of a training with Gloo. Every way trains the same losses."""
import json
import os
import sys
import tempfile

from report import lego, report

STEPS = 16
SKIPPED = 4  # the first steps take memory from the system
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 512, "intermediate_size": 1376,
         "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
PROGRAM = ["--compile.enable=true"]
WAYS = {
    "eager, by block": [],
    "program, by block": PROGRAM,
    "vanilla order": PROGRAM + ["--compile.fsdp_bucketing=none", "--compile.fsdp_reorder=false"],
    "reordered": PROGRAM + ["--compile.fsdp_bucketing=none"],
    "manual, each layer": PROGRAM + ["--compile.fsdp_bucketing=manual", "--compile.fsdp_buckets=layers.*"],
    "automatic": PROGRAM + ["--compile.fsdp_bucketing=auto"],
}


def answer(*words):
    code, tree, error = lego(*words)
    if code != 0 or tree is None:
        sys.exit(f"lego {' '.join(words)}: exit code {code}: {error}")
    return tree


def recipe(folder):
    with open(f"{folder}/config.json", "w") as file:
        json.dump(LLAMA, file)
    with open(f"{folder}/text.txt", "w") as file:
        file.write("What is gathered ahead is there in time. " * 4000)
    with open(f"{folder}/recipe.toml", "w") as file:
        file.write(f"""[job]
dump_folder = "{folder}/run"
[model]
name = "{folder}/config.json"
[training]
dataset_path = "{folder}/text.txt"
local_batch_size = 1
seq_len = 256
steps = {STEPS}
mixed_precision_param = "float32"
[parallelism]
data_parallel_shard_degree = 2
[checkpoint]
enable_checkpoint = false
[metrics]
log_freq = 1
""")
    return f"{folder}/recipe.toml"


def median(values):
    return sorted(values)[len(values) // 2]


def metrics_of(folder):
    for path, _, names in os.walk(folder):
        for name in names:
            if name == "metrics.jsonl":
                with open(os.path.join(path, name)) as file:
                    rows = [json.loads(line) for line in file]
                return [row for row in rows if row["attempt"] == rows[-1]["attempt"]]  # of the way before stand there, too
    sys.exit(f"no metrics in {folder}")


def row(name, keys, path, folder):
    if name == "automatic":  # what is simulated is what trains
        answer("simulate", "--recipe", path, "--cluster", "cpu:2x1", "--out", f"{folder}/planned.toml", *keys)
        path, keys = f"{folder}/planned.toml", []
    planned = answer("simulate", "--recipe", path, "--cluster", "cpu:2x1", "--benchmark", *keys)
    trained = answer("train", path, "--nproc", "2", "--fresh", *keys)
    steps = [step for step in metrics_of(f"{folder}/run") if step["step"] > SKIPPED]
    seconds = median([step["step_seconds"] for step in steps])
    share = median([step["exposed_communication_share"] for step in steps])
    return {"collectives": name, "buckets": len(planned["recipe"]["compile"]["fsdp_buckets"]),
            "predicted step ms": 1e3 * planned["step_time_seconds"], "measured step ms": 1e3 * seconds,
            "predicted exposed ms": 1e3 * planned["breakdown"]["exposed_communication_seconds"],
            "measured exposed ms": 1e3 * share * seconds,
            "predicted peak MB": max(stage["peak_requested_bytes"] for stage in planned["stages"]) / 1e6,
            "measured peak MB": max(trained["peak_memory_bytes"]) / 1e6, "last loss": steps[-1]["loss"]}


with tempfile.TemporaryDirectory() as folder:
    path = recipe(folder)
    report([row(name, keys, path, folder) for name, keys in WAYS.items()])
