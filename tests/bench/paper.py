"""Measured rows of papers, Megatron and TorchTitan (tests/bench/data) beside predictions: what the techniques here can express,
errors as they are, nothing fitted. Where a setting is not printed, the assumption stands in the row, or below the table if it is the same
in all rows; what cannot be expressed is counted with its reason."""
import collections
import csv
import gzip
import json
import os
import re
import tempfile

from report import ROOT, lego, report

NAMES = {"llama318b": "llama3-8b", "llama38b": "llama3-8b", "llama3170b": "llama3-70b", "llama370b": "llama3-70b",
         "llama31405b": "llama3-405b", "llama321b": "llama3-1b", "hfgpt2": "gpt2", "gemma22b": "gemma2-2b"}
LLAMA2 = {"llama213b": (40, 5120, 40, 40, 13824, 32000), "llama270b": (80, 8192, 64, 8, 28672, 32000)}
# Models that are not built, by what they are.
OTHERS = {"TIMM ViT-H/14": "vision", "ConvNeXt V2": "vision", "HF CLIP ViT-L/14-336": "vision", "Texthawk": "vision",
          "HF T5": "an encoder and a decoder, of a size that is not printed", "DeepSeek3": "a mixture of experts", "Llama-MoE": "a mixture of experts",
          "Mistral": "a mixture of experts (expert parallel 8)"}
# Attention and what is quadratic in the sequence is computed again, all else is kept (Korthikanti et al. 2022, section 5).
ATTENTION_AGAIN = "* aten::mm|aten::addmm|aten::native_layer_norm|aten::gelu|aten::add all"
# Tables in which the letters of the precision are printed and the types behind them are not.
LETTERS_ONLY = ("000 Table 4.11", "000 Table 4.14")
ASSUMED_OF_ALL = """\
the optimizer is AdamW, fused, with fp32 masters, moments and gradients
memory is what tensors get, in blocks of 512 bytes; whether allocated or reserved memory was measured is not printed, and what the
  context, NCCL and fragmentation take is not predicted
FSDP is ZeRO-3: parameters are gathered again in backward, but for the last block
attention is one fused kernel, in Hugging Face's models too, but for Gemma 2's, whose scores are capped
with tensor parallel: loss parallel, nothing asynchronous; sequence parallel, but where a run is without, and in Megatron before it
  had it (Narayanan et al. 2021)
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
    if gpu in ("H100 80GB 700W", "H100 (DGX)"):
        return "h100-sxm-80"
    if gpu.startswith("A100 80") or "A100 class" in gpu or gpu == "A100 (DGX)":
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
    """A GPT of Megatron: the block of GPT-2, with its own number of key-value heads, or MegaScale's with attention and
    feed-forward side by side."""
    heads, layers, hidden = number(row, "heads"), number(row, "layers"), number(row, "hidden")
    kv_heads, is_megascale = number(row, "kv_heads") or heads, "(MegaScale)" in row["model"]
    vocab = number(row, "vocab")
    if row["metric"] in LAYER_TIMES:
        layers, vocab = LAYERS_OF_A_PASS, vocab or 51200
        assumed.append(f"the second of {layers} layers, in the layout of the whole model")
    if is_megascale:
        assumed.append("all tokens are attended to: the window's size is not printed")
        assumed.append("AdamW in the place of LAMB")
    assumed.append("no dropout")
    name = f"gpt_{layers}_{hidden}_{heads}_{kv_heads}_{vocab}_{is_megascale}"
    return write_config(folder, name, {
        "architectures": ["GPTModel"], "model_type": "gpt", "n_embd": hidden, "n_layer": layers, "n_head": heads,
        "n_inner": number(row, "ffn") or 4 * hidden, "n_positions": number(row, "seq"), "vocab_size": vocab,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0,
        "initializer_range": 0.02, "tie_word_embeddings": not is_megatron_ci(row), "num_key_value_heads": kv_heads,
        "parallel_block": is_megascale})


def model(row, folder, assumed):
    if row["model"].startswith("GPT"):
        return gpt(row, folder, assumed)
    key = "".join(c for c in row["model"].lower() if c.isalnum())
    if key in NAMES:
        return NAMES[key]
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


# Passes of one layer, by the phases of their operators; the second of a model with so many layers is looked at.
LAYER_TIMES = {"layer_forward_time": [("forward",)], "layer_backward_time": [("recompute", "backward")],
               "layer_fwd_bwd_time": [("forward",), ("recompute", "backward")]}
LAYERS_OF_A_PASS = 4
SECOND_LAYER = "transformer.h.1"

CHECKPOINTING = {"full": {"mode": "full"}, "yes": {"mode": "full"},
                 "selective (layer)": {"mode": "selective", "selective_ac_option": "2"},
                 "selective (op)": {"mode": "selective", "selective_ac_option": "op"},
                 "selective + SP": {"mode": "selective", "selective_ac_option": "policy", "selective_ac_policy": ATTENTION_AGAIN}}
# Of the same runs TorchTitan's table says which.
SELECTIVE_BY_OPERATOR = ("000 Table 3.1", "000 Table 3.2")
# Its selective rows have 128 and 512 tokens a GPU, of a model of 70B.
OF_FEW_TOKENS = ("000 Table 4.12", "000 Table 4.15")


def checkpointing(row, assumed):
    ac = row["ac"]
    if ac == "selective" and row.get("table") in SELECTIVE_BY_OPERATOR:
        assumed.append("attention and every second product kept, as TorchTitan's table of the same runs has it")
        ac = "selective (op)"
    if row["metric"] in LAYER_TIMES and ac == "selective":
        ac = "selective + SP"
    ac = ac.replace(" (no SP)", "").replace("none + SP", "none")
    if ac == "selective" and row.get("table") in OF_FEW_TOKENS:
        assumed.append("attention and every second product kept; of so few tokens it decides neither time nor memory")
        ac = "selective (op)"
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
        raise NotExpressible("the same runs as 000 Table 4.16, printed twice")
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
    if row.get("compile", "") == "" and "compile" in row:
        assumed.append("not compiled")
    sequence = number(row, "seq_or_image", "seq")
    if sequence is None:
        assumed.append("sequences of 8192")
    tp, pp, cp, gpus = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "cp") or 1, number(row, "gpus")
    shard, zero_stage = number(row, "dp_shard", "fsdp"), 3
    model_parallel = re.search(r"PTD, model-parallel size (\d+)", row.get("source", ""))
    if model_parallel:
        tp, pp, shard = 8, int(model_parallel.group(1)) // 8, 1
        assumed.append("of the model-parallel size tensor parallel within a node, 8, and stages")
    if is_megatron_ci(row):
        shard, zero_stage = number(row, "dp"), 1  # its distributed optimizer
    if shard is None and row.get("dp") and row.get("tp") and row.get("pp"):
        shard = 1  # Megatron's data parallel
    if row["metric"] in LAYER_TIMES:
        shard = 1
    if shard is None:
        raise NotExpressible("degrees of parallelism are not printed")
    blocks = checkpointing(row, assumed)
    replicate = gpus // (shard * tp * pp * cp)
    local, printed, microbatch = number(row, "micro_batch_per_dp_rank", "mbs"), number(row, "global_batch", "gbs"), 1
    if is_paper(row) and pp > 1:  # what is printed is the microbatch
        microbatch, local = local or 1, printed // (shard * replicate)
    if pp > 1 and not (is_paper(row) and number(row, "mbs")):
        assumed.append("microbatches of 1")
    splits_tokens = has_sequence_parallel(row) or tp == 1
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
            "parallelism.zero_stage": zero_stage, "parallelism.sequence_parallel": str(splits_tokens).lower(),
            "parallelism.context_parallel_degree": cp, "parallelism.pipeline_parallel_microbatch_size": microbatch,
            "parallelism.tensor_parallel_degree": tp, "parallelism.pipeline_parallel_degree": pp}


def is_paper(row):
    return any(name in row.get("source", "") for name in ("arXiv", "MegaScale", "et al.", "Megatron-LM tests"))


def is_megatron_ci(row):
    return "(Megatron CI)" in row["model"]


def has_sequence_parallel(row):
    """Megatron has it since 2022, and uses it where --sequence-parallel is given, which its CI does not."""
    if row.get("source", "").startswith("Narayanan") or is_megatron_ci(row) or "(no SP)" in row["ac"]:
        return False
    return row["metric"] not in LAYER_TIMES or "+ SP" in row["ac"]


def narayanan_flops(row):
    """Of a step, recomputation included: equation 3 of Narayanan et al. 2021, by which the paper makes rates of times."""
    batch, seq, layers, hidden, vocab = (number(row, key) for key in ("gbs", "seq", "layers", "hidden", "vocab"))
    return 96 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


def layer_milliseconds(trace_path, passes):
    """How long the second layer takes for these passes, each from its first operator's start to its last one's end."""
    with gzip.open(trace_path) as f:
        events = json.load(f)["traceEvents"]
    total = 0
    for phases in passes:
        of_layer = [event for event in events if event.get("ph") == "X" and event.get("args", {}).get("phase") in phases
                    and (event["args"].get("module", "") + ".").startswith(SECOND_LAYER + ".")]
        total += max(event["ts"] + event["dur"] for event in of_layer) - min(event["ts"] for event in of_layer)
    return total / 1e3  # microseconds


# Of StageEstimate.categories: what is there between steps, too.
STAYS = ("sharded_parameter", "unsharded_parameter", "optimizer_state", "buffer")


def predicted(row, estimate, trace_path):
    metric, seconds = row["metric"], estimate["step_time_seconds"]
    gpus = estimate["world_size"]
    if row.get("source", "").startswith("Narayanan"):
        rate = narayanan_flops(row) / seconds
        steps = 300e9 / (number(row, "gbs") * number(row, "seq"))
        return {"hw_TFLOPs_per_gpu": rate / gpus / 1e12, "pct_of_peak": rate / gpus / 312e12 * 100, "aggregate_PFLOPs": rate / 1e15,
                "train_days_300B_tokens": steps * seconds / 86400}.get(metric)
    if metric in LAYER_TIMES:
        return layer_milliseconds(trace_path, LAYER_TIMES[metric])
    if metric == "memory_allocated_between_steps":
        return max(sum(stage["categories"].get(kind, 0) for kind in STAYS) for stage in estimate["stages"])
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


def simulate(row, folder, cache):
    """The row of the report, or NotExpressible."""
    assumed = []
    if row["model"] in OTHERS:
        raise NotExpressible(OTHERS[row["model"]])
    if row.get("table", "").startswith("004"):
        raise NotExpressible("sequence length, microbatch, precision and checkpointing are not printed (Ascend 910)")
    path, keys = model(row, folder, assumed), settings(row, assumed)
    call = ["simulate", "--model", path, "--cluster", cluster(row, assumed), "--recipe", os.path.join(folder, "recipe.toml")]
    call += [f"--{key}={value}" for key, value in keys.items()]
    trace_path = os.path.join(folder, f"trace_{len(cache)}.json.gz")
    if row["metric"] in LAYER_TIMES:
        call += ["--trace", ""]
    if tuple(call) not in cache:
        written = [trace_path if part == "" else part for part in call]
        cache[tuple(call)] = (lego(*written), trace_path)
    (_, estimate, error), trace_path = cache[tuple(call)]
    if estimate is None:
        raise NotExpressible(error)
    result = {"source": row.get("table") or row["source"][:40], "model": row["model"], "gpus": number(row, "gpus"),
              "metric": row["metric"]}
    printed = row.get("measured") or row.get("value")
    if row["metric"] == "fits":
        fits = "fits" if estimate["fits"] else "does not fit"
        peak = max(stage["peak_allocated_bytes"] for stage in estimate["stages"]) / 2**30
        return {**result, "measured": printed, "predicted": f"{fits}: {peak:.4g} GiB", "error_percent": "",
                "assumed": "; ".join(assumed)}
    if not estimate["fits"]:
        assumed.append("by the prediction it does not fit")
    value = predicted(row, estimate, trace_path)
    if value is None:
        raise NotExpressible("metric " + row["metric"])
    measured = float(printed)
    return {**result, "measured": measured, "predicted": value, "error_percent": 100 * (value / measured - 1),
            "assumed": "; ".join(assumed)}


def main():
    rows, refused, cache = [], collections.Counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "recipe.toml"), "w").close()
        for name in ("memory_measured", "runtime_measured", "public_torchtitan", "public_papers", "public_megatron_ci"):
            for row in csv.DictReader(open(os.path.join(ROOT, "tests/bench/data", name + ".csv"))):
                try:
                    rows.append(simulate(row, folder, cache))
                except NotExpressible as reason:
                    refused[str(reason)] += 1
    notes = ["assumed of all rows:"] + ["  " + line for line in ASSUMED_OF_ALL.splitlines()]
    notes += [f"{sum(refused.values())} rows cannot be expressed:"]
    report(rows, notes + [f"  {count:3d}  {reason}" for reason, count in refused.most_common()])


main()
