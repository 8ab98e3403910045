"""Models and recipes of the check. Released models have the numbers of their config.json."""
import dataclasses


def llama(layers, hidden, inner, heads, kv_heads, head_dim, vocab, tied=False, scaling=None, theta=500000.0):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
            "max_position_embeddings": 131072 if scaling else 4096, "rms_norm_eps": 1e-5, "rope_theta": theta, "rope_scaling": scaling,
            "hidden_act": "silu", "tie_word_embeddings": tied, "initializer_range": 0.02, "vocab_size": vocab}


def gpt2(layers, hidden, heads, vocab=50257, dropout=0.1, positions=1024):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads,
            "n_positions": positions, "vocab_size": vocab, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
            "embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout, "initializer_range": 0.02,
            "tie_word_embeddings": True}


LLAMA_1B = llama(16, 2048, 8192, 32, 8, 64, 128256, tied=True,
                 scaling={"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192})
SMALL_LLAMA = llama(12, 1024, 2816, 16, 4, 64, 32000)
GPT2, GPT2_XL = gpt2(12, 768, 12), gpt2(48, 1600, 25)
GPT2_MEDIUM_PLAIN = gpt2(24, 1024, 16, dropout=0.0)

# For --quick, and for the parity of devices: a width that no kernel is tuned for, and few heads of keys.
TINY_LLAMA = llama(2, 64, 108, 4, 2, 16, 256, theta=10000.0)
# With all that Llama 3.2 has: tied tables, and wavelengths of which the longest are stretched.
TINY_LLAMA_3_2 = llama(2, 64, 108, 4, 2, 16, 256, tied=True, theta=10000.0,
                       scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 64})
TINY_GPT2 = gpt2(2, 64, 4, vocab=256, positions=256)
PARITY_LLAMA = llama(3, 128, 344, 4, 2, 32, 256, theta=10000.0)
PARITY_GPT2 = gpt2(3, 128, 4, vocab=256, positions=256)


@dataclasses.dataclass
class Recipe:
    name: str
    config: dict
    batch: int
    seq: int
    precision: str = "bfloat16"
    checkpointing: str = "none"
    others: dict = dataclasses.field(default_factory=dict)  # sections: their keys and values

    def sections(self, folder, steps):
        common = {"model": {"name": folder},
                  "training": {"local_batch_size": self.batch, "seq_len": self.seq, "steps": steps,
                               "mixed_precision_param": self.precision},
                  "activation_checkpoint": {"mode": self.checkpointing}}
        return {name: {**common.get(name, {}), **self.others.get(name, {})} for name in {**common, **self.others}}


# The most telling first: what comes late may find no time. The sizes make each peak some GiB, so that the workspaces that cuBLAS
# takes from the allocator (32 MiB on Hopper, and no tensors') stay far below one percent; all fit 80 GB.
RECIPES = [
    Recipe("llama3.2-1b bf16", LLAMA_1B, 4, 2048),
    Recipe("gpt2-xl bf16", GPT2_XL, 4, 1024),
    Recipe("llama-small bf16", SMALL_LLAMA, 16, 1024),
    Recipe("gpt2 bf16", GPT2, 16, 1024),
    Recipe("llama3.2-1b bf16 full checkpointing", LLAMA_1B, 8, 2048, checkpointing="full"),
    Recipe("gpt2-medium bf16 no dropout", GPT2_MEDIUM_PLAIN, 8, 1024),
    Recipe("gpt2-xl fp32 full checkpointing", GPT2_XL, 2, 1024, "float32", "full"),
    Recipe("llama3.2-1b fp32", LLAMA_1B, 2, 2048, "float32"),
    Recipe("llama-small fp32 full checkpointing", SMALL_LLAMA, 16, 1024, "float32", "full"),
    Recipe("gpt2 fp32", GPT2, 8, 1024, "float32"),
]

# Their memory alone is looked at: PyTorch's side (eager_model.py) does not have them.
KEEPING_OPERATORS = {"activation_checkpoint": {"selective_ac_option": "op"}}
AS_PROGRAM = {"compile": {"enable": True}}
MORE_RECIPES = [
    Recipe("llama3.2-1b bf16 selective op", LLAMA_1B, 8, 2048, checkpointing="selective", others=KEEPING_OPERATORS),
    Recipe("gpt2-xl bf16 selective op", GPT2_XL, 4, 1024, checkpointing="selective", others=KEEPING_OPERATORS),
    Recipe("llama3.2-1b bf16 as a program", LLAMA_1B, 4, 2048, others=AS_PROGRAM),
    Recipe("gpt2-xl bf16 selective op as a program", GPT2_XL, 4, 1024, checkpointing="selective",
           others={**KEEPING_OPERATORS, **AS_PROGRAM}),
    Recipe("llama3.2-1b held in bf16", LLAMA_1B, 4, 2048, others={"training": {"dtype": "bfloat16"}}),
    Recipe("llama-small bf16 Muon", SMALL_LLAMA, 16, 1024, others={"optimizer": {"name": "Muon"}}),
    Recipe("llama-small fp16", SMALL_LLAMA, 16, 1024, "float16"),
]


def tiny(recipe):
    """The same kind of recipe in seconds on a CPU."""
    config = TINY_LLAMA if recipe.config["model_type"] == "llama" else TINY_GPT2
    if recipe.config.get("attn_pdrop") == 0:
        config = {**config, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    return dataclasses.replace(recipe, name="tiny " + recipe.name, config=config, batch=2, seq=32)


def all_recipes(quick, more=False):
    chosen = RECIPES + MORE_RECIPES if more else RECIPES
    return [tiny(recipe) for recipe in chosen] if quick else chosen


def file_name(recipe):
    return "".join(c if c.isalnum() else "-" for c in recipe.name)
