"""AutoTokenizer over what is exported gives the ids that training gives: tokenizers_test.py ENCODE SMALL_TIKTOKEN."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import unittest

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import tokenizers
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../core/data/testdata"))
import make_families

ENCODE, TIKTOKEN = sys.argv.pop(1), sys.argv.pop(1)
SEED = int(os.environ.get("TEST_RANDOM_SEED", random.SystemRandom().randrange(2**31)))
TEXTS = [
    "", "a", "Hello, world!", "They're here. IT'S HERE. I'D say we'Ll see; 'tis 'S 'ſ", "1 12 123 1234 12345 3.14159 ½ ² Ⅷ ٣٤٥٦",
    "  leading and trailing  ", "line\nline\r\nline\n\n\nline   \n   line\t\ttab \n",
    "\u00a0no-break\u2003em space\u3000ideographic\u1680ogham\u2028line\u2029para\u0085next\u200bzero",
    "Größe straße ÜBUNG naïve café cafe\u0301", "日本語の文章。模型を訓練する、한국어 문장 हिन्दी में كتاب جديد Ещё раз",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪 and flags!!! ???\n\n", "def step(batch):\n    return batch   # done\n", "a" * 300, "." * 200,
    "\x00\x01\x7f\ufffd\ufeff\U0010ffff", " \t \n \u3000\n x",
]


def random_texts(rng):
    """Words, spaces of all kinds, and any character that Unicode 14 has: what is assigned later is a letter to a library that knows
    a later Unicode, and none to PCRE2 of Debian 12."""
    common = list(" \t\n\r'aAsStTdDeErRlLvVmMzZ019.,!?-_é\u00a0\u3000ßſЖ中あ한\u0301\u200d😀½٣") + [" the", "ing ", "'re", "step"]

    def character():
        if rng.random() < 0.7:
            return rng.choice(common)
        code = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)])
        return "?" if unicodedata.category(chr(code)) in ("Cn", "Cs") else chr(code)

    return ["".join(character() for _ in range(rng.randint(1, 80))) for _ in range(300)]


class ExportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))

    def check(self, tokenizer, texts, means=lambda text: text):
        """Gives AutoTokenizer's tokenizer; ids of all texts are ours, and mean the texts."""
        run = subprocess.run([ENCODE, tokenizer, self.folder], input=json.dumps(texts).encode(), capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        theirs = transformers.AutoTokenizer.from_pretrained(self.folder)
        for text, ids in zip(texts, json.loads(run.stdout)):
            self.assertEqual(theirs(text)["input_ids"], ids, f"{text!r}, seed {SEED}")
            self.assertEqual(theirs.decode(ids, skip_special_tokens=True), means(text), f"{text!r}, seed {SEED}")
        self.assertEqual(theirs.model_max_length, 4096)
        return theirs

    def texts(self):
        return TEXTS + random_texts(random.Random(SEED))

    def test_bytes_are_their_own_ids(self):
        theirs = self.check("byte", self.texts())
        self.assertEqual(theirs("é")["input_ids"], [0xC3, 0xA9])
        self.assertEqual(len(theirs), 256)
        self.assertIsNone(theirs.eos_token)
        # Bytes that are no text are shown as lego generate shows them.
        rng = random.Random(SEED)
        for _ in range(100):
            ids = [rng.randrange(256) for _ in range(rng.randint(1, 20))]
            self.assertEqual(theirs.decode(ids), bytes(ids).decode(errors="replace"))

    def test_a_tiktoken_file(self):
        theirs = self.check(TIKTOKEN, self.texts())
        self.assertEqual((theirs.bos_token_id, theirs.eos_token_id), (512, 513))
        self.assertEqual(theirs("a")["input_ids"][0], 512)

    def test_a_tokenizer_json_of_gpt2s_kind(self):
        model = tokenizers.ByteLevelBPETokenizer()
        model.train_from_iterator(TEXTS * 3, vocab_size=400, min_frequency=1, special_tokens=[], show_progress=False)
        model.add_special_tokens(["<|endoftext|>"])
        source = os.path.join(self.folder, "source.json")
        model.save(source)
        theirs = self.check(source, self.texts())
        self.assertEqual(theirs.eos_token, "<|endoftext|>")
        mine = tokenizers.Tokenizer.from_file(source)
        for text in self.texts():
            self.assertEqual(theirs(text)["input_ids"], mine.encode(text).ids, f"{text!r}, seed {SEED}")

    def test_the_families(self):
        """Files as the families have them: their own ids are ours, and those of the export."""
        for name, make in make_families.FAMILIES.items():
            source = os.path.join(self.folder, "source.json")
            make().save(source)
            mine = tokenizers.Tokenizer.from_file(source)
            texts = [text for text in self.texts() + make_families.TEXTS if text]
            # Special tokens stand in no text here; the library would find them there.
            texts = [text for text in texts if not any(special.content in text for special in
                                                       mine.get_added_tokens_decoder().values() if special.special)]
            with self.subTest(name):
                theirs = self.check(source, texts, lambda text: mine.decode(mine.encode(text).ids))
                for text in texts:
                    self.assertEqual(theirs(text)["input_ids"], mine.encode(text).ids, f"{text!r}, seed {SEED}")


if __name__ == "__main__":
    print("seed", SEED)
    unittest.main()
