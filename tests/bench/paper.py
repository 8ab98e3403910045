"""Measured rows of papers, Megatron and TorchTitan (tests/bench/data) beside predictions: what the techniques here can express,
errors as they are, nothing fitted. Where a setting is not printed, the assumption stands in the row, or below the table if it is the same
in all rows; what cannot be expressed is counted with its reason."""
import collections
import csv
import json
import os
import tempfile

from report import ROOT, lego, report

NAMES = {"llama318b": "llama3-8b", "llama38b": "llama3-8b", "llama3170b": "llama3-70b", "llama370b": "llama3-70b",
         "llama31405b": "llama3-405b", "llama321b": "llama3-1b", "hfgpt2": "gpt2"}
LLAMA2 = {"llama213b": (40, 5120, 40, 40, 13824, 32000), "llama270b": (80, 8192, 64, 8, 28672, 32000)}
# Attention and what is quadratic in the sequence is computed again, all else is kept (Korthikanti et al. 2022, section 5).
ATTENTION_AGAIN = "* aten::mm|aten::addmm|aten::native_layer_norm|aten::gelu|aten::add all"
# Tables in which the letters of the precision are printed and the types behind them are not.
LETTERS_ONLY = ("000 Table 4.11", "000 Table 4.14")
ASSUMED_OF_ALL = """\
the optimizer is AdamW, fused, with fp32 masters, moments and gradients
memory is what tensors get, in blocks of 512 bytes; whether allocated or reserved memory was measured is not printed, and what the
  context, NCCL and fragmentation take is not predicted
FSDP is ZeRO-3: parameters are gathered again in backward, but for the last block
attention is one fused kernel, in Hugging Face's models too
with tensor parallel: sequence parallel and loss parallel, nothing asynchronous
float8 is off where it is not printed
operators reach the shares of the data sheet that the catalog assumes (`lego hardware`); nothing is calibrated
the H100 with HBM2e computes like the SXM card at 500 W; its peak is not printed"""


class NotExpressible(Exception):
    pass


def device(row, assumed):
    gpu = row["gpu"]
    if gpu.startswith("H100") and ("HBM2e" in gpu):
        return "h100-sxm-96"
    if gpu == "H100":
        doubt = ", though rows of its table peak above that" if row.get("table") == "002 Table 3" else ""
        assumed.append("H100 SXM, 80 GB" + doubt)
        return "h100-sxm-80"
    if gpu == "H100 80GB 700W":
        return "h100-sxm-80"
    if gpu.startswith("A100 80") or "A100 class" in gpu:
        assumed.append("A100 SXM" if gpu.startswith("A100 80") else "A100 SXM, 80 GB")
        return "a100-sxm-80"
    if gpu == "H200":
        return "h200"
    raise NotExpressible(f"device {gpu} is not in the catalog")


def write_config(folder, name, config):
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    return path


def gpt(row, folder, assumed):
    """A GPT of Megatron: the block of GPT-2."""
    if row["model"] == "GPT 22B, single layer":
        raise NotExpressible("passes of a single layer")
    if "MegaScale" in row["model"]:
        raise NotExpressible("blocks with attention and MLP side by side")
    heads, layers, hidden = number(row, "heads"), number(row, "layers"), number(row, "hidden")
    if (number(row, "kv_heads") or heads) != heads:
        raise NotExpressible("a GPT block with fewer key-value heads")
    assumed.append("no dropout")
    name = f"gpt_{layers}_{hidden}_{row['vocab']}"
    return write_config(folder, name, {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads,
        "n_inner": number(row, "ffn") or 4 * hidden, "n_positions": number(row, "seq"), "vocab_size": number(row, "vocab"),
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0,
        "initializer_range": 0.02, "tie_word_embeddings": True})


def model(row, folder, assumed):
    if row["model"].startswith("GPT"):
        return gpt(row, folder, assumed)
    key = "".join(c for c in row["model"].lower() if c.isalnum())
    if key in NAMES:
        return NAMES[key]
    if key not in LLAMA2:
        raise NotExpressible("model family is not built: " + row["model"])
    layers, hidden, heads, kv_heads, ffn, vocab = LLAMA2[key]
    return write_config(folder, key, {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "initializer_range": 0.02})


def number(row, *keys):
    for key in keys:
        if row.get(key):
            return int(float(row[key]))
    return None


def cluster(row, assumed):
    """Name of the devices and their links."""
    gpus, per_node, links = number(row, "gpus"), number(row, "gpus_per_node"), row["interconnect"]
    name = device(row, assumed)
    if per_node is None:
        per_node = 8
        if gpus > 1:
            assumed.append("8 GPUs per node")
    if gpus > 1 and "NVLink" not in links and "NVSwitch" not in links:
        assumed.append("NVLink in a node")
    if gpus > per_node and "400Gb/s" not in links and "200Gb/s" not in links:
        assumed.append(f"InfiniBand of {200 if name.startswith('a100') else 400} Gb/s per GPU between nodes")
    return f"{name}:{min(gpus, per_node)}x{max(gpus // per_node, 1)}"


def global_batch(row, at_once, assumed):
    printed = number(row, "global_batch", "gbs")
    if printed is None:
        assumed.append("no accumulation")
    return printed or at_once


CHECKPOINTING = {"full": {"mode": "full"}, "yes": {"mode": "full"},
                 "selective (layer)": {"mode": "selective", "selective_ac_option": "2"},
                 "selective (op)": {"mode": "selective", "selective_ac_option": "op"},
                 "selective + SP": {"mode": "selective", "selective_ac_option": "policy", "selective_ac_policy": ATTENTION_AGAIN}}
# Of the same runs TorchTitan's table says which.
SELECTIVE_BY_OPERATOR = ("000 Table 3.1", "000 Table 3.2")


def checkpointing(row, assumed):
    ac = row["ac"]
    if ac == "selective" and row.get("table") in SELECTIVE_BY_OPERATOR:
        assumed.append("attention and every second product kept, as TorchTitan's table of the same runs has it")
        ac = "selective (op)"
    if ac.endswith("(no SP)"):
        raise NotExpressible("tensor parallel without sequence parallel")
    if ac.startswith("selective") and ac not in CHECKPOINTING:
        raise NotExpressible(ac + ": which operators")
    if ac == "selective (layer)":
        assumed.append("every second block checkpointed")
    if ac in ("yes", ""):
        assumed.append("full checkpointing" if ac else "no checkpointing")
    return {f"activation_checkpoint.{key}": value for key, value in CHECKPOINTING.get(ac, {"mode": "none"}).items()}


def settings(row, assumed):
    """Recipe keys of a row. Raises NotExpressible."""
    if row.get("table") == "001 Table 4":
        raise NotExpressible("the same runs as 000 Table 4.16")
    if row.get("float8") == "true" or "float8" in row["precision"]:
        raise NotExpressible("float8")
    if row.get("compile") in ("true", "yes"):
        raise NotExpressible("torch.compile")
    if (number(row, "ep") or 1) > 1:
        raise NotExpressible("expert parallel")
    chunks, schedule = number(row, "vpp") or 1, row.get("schedule", "")
    if schedule.lower().startswith("interleaved") or (chunks > 1 and not schedule):
        schedule = "Interleaved1F1B"
    if schedule not in ("", "1F1B", "GPipe", "Interleaved1F1B"):
        raise NotExpressible("schedule " + schedule)
    if row.get("async_tp") == "true":
        raise NotExpressible("asynchronous tensor parallel")
    if row["precision"] == "mixed fp16":
        assumed.append("bf16 in the place of fp16")
    if row["precision"] == "" or (row["precision"] == "MP" and row.get("table") in LETTERS_ONLY):
        assumed.append("bf16 mixed precision")
    if row["precision"] == "FP":
        assumed.append("fp32 without TF32")
    blocks = checkpointing(row, assumed)
    if row.get("compile", "") == "" and "compile" in row:
        assumed.append("not compiled")
    sequence = number(row, "seq_or_image", "seq")
    if sequence is None:
        assumed.append("sequences of 8192")
    tp, pp, cp, gpus = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "cp") or 1, number(row, "gpus")
    shard = number(row, "dp_shard", "fsdp")
    if shard is None and row.get("dp") and row.get("tp") and row.get("pp"):
        shard = 1  # Megatron's data parallel
    if shard is None:
        raise NotExpressible("degrees of parallelism are not printed")
    replicate = gpus // (shard * tp * pp * cp)
    local, printed, microbatch = number(row, "micro_batch_per_dp_rank", "mbs"), number(row, "global_batch", "gbs"), 1
    if is_paper(row) and pp > 1:  # what is printed is the microbatch
        microbatch, local = local or 1, printed // (shard * replicate)
    if pp > 1 and not (is_paper(row) and number(row, "mbs")):
        assumed.append("microbatches of 1")
    if local is None:
        local = 1
        assumed.append("1 sequence at a time")
    if pp > 1 and not schedule:
        assumed.append("1F1B")
    if schedule == "Interleaved1F1B" and chunks == 1:
        assumed.append("two chunks a rank")
    if row["model"] == "HF GPT-2":
        assumed.append("dropout of 0.1, as released")
    pipeline = {"parallelism.pipeline_parallel_schedule": schedule} if schedule else {}
    if row["precision"] == "HP":
        pipeline["training.dtype"] = "bfloat16"
    if chunks > 1:
        pipeline["parallelism.pipeline_parallel_layers_per_stage"] = -(-number(row, "layers") // (pp * chunks))
    return {**pipeline, **blocks, "training.local_batch_size": local,
            "training.global_batch_size": global_batch(row, local * shard * replicate, assumed),
            "training.seq_len": sequence or 8192,
            "training.mixed_precision_param": "float32" if row["precision"] == "FP" else "bfloat16",
            "parallelism.data_parallel_replicate_degree": replicate, "parallelism.data_parallel_shard_degree": shard,
            "parallelism.context_parallel_degree": cp, "parallelism.pipeline_parallel_microbatch_size": microbatch,
            "parallelism.tensor_parallel_degree": tp, "parallelism.pipeline_parallel_degree": pp}


def is_paper(row):
    return "arXiv" in row.get("source", "") or "MegaScale" in row.get("source", "") or "et al." in row.get("source", "")


def narayanan_flops(row):
    """Of a step, recomputation included: equation 3 of Narayanan et al. 2021, by which the paper makes rates of times."""
    batch, seq, layers, hidden, vocab = (number(row, key) for key in ("gbs", "seq", "layers", "hidden", "vocab"))
    return 96 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


def predicted(row, estimate):
    metric, seconds = row["metric"], estimate["step_time_seconds"]
    gpus = estimate["world_size"]
    if row.get("source", "").startswith("Narayanan"):
        rate = narayanan_flops(row) / seconds
        steps = 300e9 / (number(row, "gbs") * number(row, "seq"))
        return {"hw_TFLOPs_per_gpu": rate / gpus / 1e12, "pct_of_peak": rate / gpus / 312e12 * 100, "aggregate_PFLOPs": rate / 1e15,
                "train_days_300B_tokens": steps * seconds / 86400}.get(metric)
    if metric == "peak_memory_allocated":
        return max(stage["peak_allocated_bytes"] for stage in estimate["stages"])
    if metric.startswith("peak_memory"):
        return max(stage["peak_allocated_bytes"] for stage in estimate["stages"]) / 2**30
    per_gpu = estimate["tokens_per_second_per_gpu"]
    return {"tokens_per_s_per_gpu": per_gpu, "tokens_per_s_total": per_gpu * estimate["world_size"],
            "tokens_per_s": per_gpu * gpus / 1e3, "step_time": seconds, "HFU": estimate["hfu"] * 100,
            "model_TFLOPs_per_gpu": per_gpu * estimate["model_flops_per_token"] / 1e12,
            "step_time_ms": seconds * 1e3, "mfu_percent": estimate["mfu"] * 100,
            "MFU": estimate["mfu"] * 100}.get(metric)


def main():
    rows, refused, cache = [], collections.Counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        recipe = os.path.join(folder, "recipe.toml")
        open(recipe, "w").close()
        for name in ("memory_measured", "runtime_measured", "public_torchtitan", "public_papers", "public_megatron_ci"):
            for row in csv.DictReader(open(os.path.join(ROOT, "tests/bench/data", name + ".csv"))):
                assumed = []
                try:
                    path, keys = model(row, folder, assumed), settings(row, assumed)
                    machine = cluster(row, assumed)
                    measured = float(row.get("measured") or row.get("value"))
                    call = ["simulate", "--model", path, "--cluster", machine, "--recipe", recipe]
                    call += [f"--{key}={value}" for key, value in keys.items()]
                    if tuple(call) not in cache:
                        cache[tuple(call)] = lego(*call)
                    _, estimate, error = cache[tuple(call)]
                    if estimate is None:
                        raise NotExpressible(error)
                    if not estimate["fits"]:
                        assumed.append("by the prediction it does not fit")
                    value = predicted(row, estimate)
                    if value is None:
                        raise NotExpressible("metric " + row["metric"])
                except NotExpressible as reason:
                    refused[str(reason)] += 1
                    continue
                except ValueError:
                    refused["no number is printed"] += 1
                    continue
                rows.append({"source": row.get("table") or row["source"][:40], "model": row["model"], "gpus": number(row, "gpus"),
                             "metric": row["metric"], "measured": measured, "predicted": value,
                             "error_percent": 100 * (value / measured - 1), "assumed": "; ".join(assumed)})
    notes = ["assumed of all rows:"] + ["  " + line for line in ASSUMED_OF_ALL.splitlines()]
    notes += [f"{sum(refused.values())} rows cannot be expressed:"]
    report(rows, notes + [f"  {count:3d}  {reason}" for reason, count in refused.most_common()])


main()
