"""Measured rows of papers and of TorchTitan (tests/bench/data) beside predictions: what the techniques here can express, errors as
they are, nothing fitted. Where a setting is not printed, the assumption stands in the row; what cannot be expressed is counted with
its reason."""
import collections
import csv
import json
import os
import tempfile

from report import ROOT, lego, report

NAMES = {"llama318b": "llama3-8b", "llama38b": "llama3-8b", "llama3170b": "llama3-70b", "llama370b": "llama3-70b",
         "llama31405b": "llama3-405b", "llama321b": "llama3-1b", "hfgpt2": "gpt2"}
LLAMA2 = {"llama213b": (40, 5120, 40, 40, 13824, 32000), "llama270b": (80, 8192, 64, 8, 28672, 32000)}


class NotExpressible(Exception):
    pass


def device(row, assumed):
    gpu = row["gpu"]
    if gpu.startswith("H100") and ("HBM2e" in gpu):
        return "h100-sxm-96"
    if gpu == "H100":
        assumed.append("H100 SXM, 80 GB")
        return "h100-sxm-80"
    if gpu.startswith("A100 80"):
        return "a100-sxm-80"
    if gpu == "H200":
        return "h200"
    raise NotExpressible(f"device {gpu} is not in the catalog")


def model(row, folder):
    key = "".join(c for c in row["model"].lower() if c.isalnum())
    if key in NAMES:
        return NAMES[key]
    if key not in LLAMA2:
        raise NotExpressible("model family is not built: " + row["model"])
    layers, hidden, heads, kv_heads, ffn, vocab = LLAMA2[key]
    path = os.path.join(folder, key)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
                   "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
                   "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False, "initializer_range": 0.02}, f)
    return path


def number(row, *keys):
    for key in keys:
        if row.get(key):
            return int(float(row[key]))
    return None


def settings(row, assumed):
    """Recipe keys of a row. Raises NotExpressible."""
    if row.get("float8") == "true" or "float8" in row["precision"]:
        raise NotExpressible("float8")
    if row.get("compile") in ("true", "yes"):
        raise NotExpressible("torch.compile")
    if row["ac"].startswith("selective"):
        raise NotExpressible("selective checkpointing")
    if (number(row, "cp") or 1) > 1 or (number(row, "ep") or 1) > 1:
        raise NotExpressible("context or expert parallel")
    if (number(row, "vpp") or 1) > 1 or row.get("schedule", "") not in ("", "1F1B", "GPipe"):
        raise NotExpressible("interleaved schedule")
    if row.get("async_tp") == "true":
        raise NotExpressible("asynchronous tensor parallel")
    if row["precision"] == "HP":
        raise NotExpressible("half-precision parameters and optimizer")
    if row["precision"] == "":
        assumed.append("bf16 mixed precision")
    if row["ac"] in ("yes", ""):
        assumed.append("full checkpointing" if row["ac"] else "no checkpointing")
    if row.get("compile", "") == "" and "compile" in row:
        assumed.append("not compiled")
    sequence = number(row, "seq_or_image", "seq")
    if sequence is None:
        assumed.append("sequences of 8192")
    tp, pp, gpus = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "gpus")
    shard = number(row, "dp_shard", "fsdp")
    if shard is None:
        shard = gpus // tp // pp
        assumed.append(f"FSDP of {shard}")
    replicate = gpus // (shard * tp * pp)
    local = number(row, "micro_batch_per_dp_rank", "mbs")
    if local is None:
        raise NotExpressible("batch is not printed")
    return {"training.local_batch_size": local, "training.global_batch_size": local * shard * replicate,
            "training.seq_len": sequence or 8192,
            "training.mixed_precision_param": "float32" if row["precision"] == "FP" else "bfloat16",
            "parallelism.data_parallel_replicate_degree": replicate, "parallelism.data_parallel_shard_degree": shard,
            "parallelism.tensor_parallel_degree": tp, "parallelism.pipeline_parallel_degree": pp,
            "activation_checkpoint.mode": "full" if row["ac"] in ("full", "yes") else "none"}


def predicted(row, estimate):
    metric = row["metric"]
    if metric.startswith("peak_memory"):
        return max(stage["peak_allocated_bytes"] for stage in estimate["stages"]) / 2**30
    per_gpu = estimate["tokens_per_second_per_gpu"]
    return {"tokens_per_s_per_gpu": per_gpu, "tokens_per_s_total": per_gpu * estimate["world_size"],
            "step_time_ms": estimate["step_time_seconds"] * 1e3, "mfu_percent": estimate["mfu"] * 100,
            "MFU": estimate["mfu"] * 100}.get(metric)


def main():
    rows, refused, cache = [], collections.Counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        recipe = os.path.join(folder, "recipe.toml")
        open(recipe, "w").close()
        for name in ("memory_measured", "runtime_measured", "public_torchtitan"):
            for row in csv.DictReader(open(os.path.join(ROOT, "tests/bench/data", name + ".csv"))):
                assumed = []
                try:
                    path, keys = model(row, folder), settings(row, assumed)
                    nodes = number(row, "gpus_per_node") or 8
                    gpus = number(row, "gpus")
                    cluster = f"{device(row, assumed)}:{min(gpus, nodes)}x{max(gpus // nodes, 1)}"
                    measured = float(row.get("measured") or row.get("value"))
                    call = ["simulate", "--model", path, "--cluster", cluster, "--recipe", recipe]
                    call += [f"--{key}={value}" for key, value in keys.items()]
                    if tuple(call) not in cache:
                        cache[tuple(call)] = lego(*call)
                    _, estimate, error = cache[tuple(call)]
                    if estimate is None:
                        raise NotExpressible(error)
                    value = predicted(row, estimate)
                    if value is None:
                        raise NotExpressible("metric " + row["metric"])
                except NotExpressible as reason:
                    refused[str(reason)] += 1
                    continue
                except ValueError:
                    refused["no number is printed"] += 1
                    continue
                rows.append({"source": row.get("table") or row["source"][:40], "model": row["model"], "gpus": gpus,
                             "metric": row["metric"], "measured": measured, "predicted": value,
                             "error_percent": 100 * (value / measured - 1), "assumed": "; ".join(assumed)})
    notes = [f"{sum(refused.values())} rows cannot be expressed:"]
    report(rows, notes + [f"  {count:3d}  {reason}" for reason, count in refused.most_common()])


main()
