"""Auto-SAC over models and budgets of memory: how full the simulated peak makes the budget, and what of full checkpointing's
recomputation is saved. Budgets lie between the peaks with all and with nothing recomputed; the configurations of Llama 3.2 1B are
those of an Auto-SAC paper, with its budget of 68 GiB where that lies between."""
import sys
import tempfile

from report import lego, report

GIB = 1 << 30
JOBS = [("llama3-1b", 6, 4096), ("llama3-1b", 10, 2048), ("llama3-1b", 16, 1024), ("llama3-1b", 12, 1024),
        ("llama3-8b", 1, 8192), ("gpt2-xl", 8, 1024), ("qwen3-8b", 2, 4096)]
SHARES = [0.25, 0.5, 0.75]
PAPER = 68 * GIB


def sac(model, batch, seq, budget, solver):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as recipe:
        recipe.write(f"[training]\nlocal_batch_size = {batch}\nglobal_batch_size = {8 * batch}\nseq_len = {seq}\n"
                     "mixed_precision_param = \"bfloat16\"\n[parallelism]\ndata_parallel_shard_degree = 8\n")
        recipe.flush()
        return lego("sac", "--model", model, "--cluster", "h100-sxm-80:8x1", "--recipe", recipe.name, "--budget", str(budget),
                    "--solver", solver)


def rows_of(model, batch, seq, solver):
    code, all_kept, error = sac(model, batch, seq, 1 << 50, solver)
    if code != 0:
        sys.exit(f"{model}: exit code {code}: {error}")
    none, full = all_kept["none"]["peak_memory_bytes"], all_kept["full"]["peak_memory_bytes"]
    budgets = [int(full + share * (none - full)) for share in SHARES] + ([PAPER] if full < PAPER < none else [])
    for budget in budgets:
        code, answer, error = sac(model, batch, seq, budget, solver)
        if code != 0:
            sys.exit(f"{model} within {budget}: exit code {code}: {error}")
        yield {"model": model, "batch": batch, "seq": seq, "budget GiB": budget / GIB,
               "full GiB": full / GIB, "none GiB": none / GIB,
               "of budget %": 100 * answer["chosen"]["peak_memory_bytes"] / budget,
               "again ms": 1e3 * answer["chosen"]["recomputation_seconds"],
               "again full ms": 1e3 * answer["full"]["recomputation_seconds"],
               "saved %": 100 * answer["saved_share"], "simulations": answer["simulations"],
               "solver ms": 1e3 * answer["solver_seconds"]}


solver = next((word for word in sys.argv[1:] if not word.startswith("--")), "greedy")
found = [row for job in JOBS for row in rows_of(*job, solver)]
full_enough = sum(97 <= row["of budget %"] <= 100 for row in found)
saved = [row["saved %"] for row in found]
report(found, [f"{full_enough} of {len(found)} peaks within 97 to 100 % of the budget; "
               f"recomputation saved: {min(saved):.1f} to {max(saved):.1f} %"])
