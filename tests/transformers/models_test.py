"""The folder that training exports loads with AutoTokenizer and AutoModelForCausalLM, and `generate` gives the tokens of
`lego generate`: models_test.py LEGO SMALL_TIKTOKEN."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
import transformers

LEGO, TIKTOKEN = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 32,
         "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "hidden_act": "silu", "torch_dtype": "bfloat16"}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 520, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "n_positions": 128, "bos_token_id": 50256, "eos_token_id": 50256}

def like_llama(name, model_type, **keys):
    return {**LLAMA, "architectures": [name], "model_type": model_type, **keys}


NEW_TOKENS = 40


class ModelsTest(unittest.TestCase):
    def lego(self, *words):
        run = subprocess.run([LEGO, *words], cwd=self.folder, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout

    def train(self, config, tokenizer):
        """The exported folder of a short training."""
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        (self.folder / "config.json").write_text(json.dumps(config))
        (self.folder / "text.txt").write_text("".join(f"the quick brown fox {i * i} jumps over the lazy dog\n" for i in range(400)))
        (self.folder / "recipe.toml").write_text(
            '[job]\ndump_folder = "run"\n[model]\nname = "config.json"\n[training]\ndataset_path = "text.txt"\n'
            "local_batch_size = 2\nglobal_batch_size = 4\nseq_len = 16\nsteps = 30\n[optimizer]\nlr = 1e-2\n"
            "[lr_scheduler]\nwarmup_steps = 2\n[checkpoint]\nenable_checkpoint = true\nlast_save_in_hf = true\n")
        self.lego("train", "recipe.toml", f"--model.tokenizer_path={tokenizer}")
        return self.folder / "run" / "hf"

    def check(self, config, tokenizer, prompts):
        exported = self.train(config, tokenizer)
        theirs = transformers.AutoTokenizer.from_pretrained(exported)
        attention = "eager" if config["model_type"] == "gemma2" else None  # the only one that caps scores
        model = transformers.AutoModelForCausalLM.from_pretrained(exported, attn_implementation=attention).eval()
        self.assertEqual(model.dtype, torch.float32)
        self.assertEqual(model.generation_config.eos_token_id, theirs.eos_token_id)
        self.assertEqual(model.config.bos_token_id, theirs.bos_token_id)
        for prompt in prompts:
            said = json.loads(self.lego("generate", "run", "--prompt", prompt, "--max-new-tokens", str(NEW_TOKENS), "-o", "json"))
            inputs = theirs(prompt, return_tensors="pt")
            self.assertEqual(inputs["input_ids"][0].tolist(), said["prompt_tokens"])
            with torch.no_grad():
                out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
            new = out[0].tolist()[len(said["prompt_tokens"]):]
            self.assertEqual(new, said["tokens"], prompt)
            self.assertEqual(theirs.decode(new, skip_special_tokens=True), said["text"])

    def test_llama_of_bytes(self):
        self.check(LLAMA, "byte", ["the quick", "a", "Größe 😀"])

    def test_llama_of_a_tiktoken_file(self):
        self.check({**LLAMA, "vocab_size": 514, "tie_word_embeddings": True}, TIKTOKEN, ["the quick", "12"])

    def test_mistral_with_a_window_shorter_than_the_sequence(self):
        self.check(like_llama("MistralForCausalLM", "mistral", sliding_window=6), "byte", ["the quick", "a"])

    def test_qwen2(self):
        self.check(like_llama("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True), "byte", ["the quick"])

    def test_qwen3(self):
        self.check(like_llama("Qwen3ForCausalLM", "qwen3", head_dim=16), "byte", ["the quick"])

    def test_gemma(self):
        self.check(like_llama("GemmaForCausalLM", "gemma", head_dim=16, num_key_value_heads=1, tie_word_embeddings=True,
                              hidden_act="gelu_pytorch_tanh"), "byte", ["the quick"])

    def test_gemma2_with_a_window_shorter_than_the_sequence(self):
        self.check(like_llama("Gemma2ForCausalLM", "gemma2", head_dim=16, tie_word_embeddings=True, sliding_window=6,
                              hidden_act="gelu_pytorch_tanh", query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                              final_logit_softcapping=5.0), "byte", ["the quick", "a"])

    def test_gpt2_with_tied_embeddings(self):
        self.check(GPT2, TIKTOKEN, ["the quick", "jumps over"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
