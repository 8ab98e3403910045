"""Makes the vocabulary and the recorded encodings of tokenizer_test.cc with the tiktoken package.

Made with Python 3.11 and tiktoken 0.14.0 (and its regex 2026.11.15):
  python3 -m venv venv && venv/bin/pip install tiktoken==0.14.0 regex==2026.11.15
  venv/bin/python make_reference.py
The vocabulary is trained here on CORPUS by plain byte-pair encoding; the texts and their ids are what tiktoken says.
"""

import base64
import random

import regex
import tiktoken
from recorded import CORPUS, HERE, save_encodings

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MERGES = 256

TEXTS = [
    "",
    "a",
    "Hello, world!",
    "They're here. IT'S HERE. I'D say we'Ll see; 'tis 'S 'ſ",
    "1 12 123 1234 12345 3.14159 ½ ² Ⅷ ٣٤٥٦",
    "  leading and trailing  ",
    "line\nline\r\nline\n\n\nline   \n   line\t\ttab \n",
    "\u00a0no-break\u2003em space\u3000ideographic\u1680ogham\u2028line\u2029para\u0085next\u180emvs\u200bzero",
    "Größe straße ÜBUNG naïve café cafe\u0301",
    "日本語の文章。模型を訓練する、한국어 문장 हिन्दी में كتاب جديد Ещё раз",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪 and flags!!! ???\n\n",
    "<|begin_of_text|>not special<|end_of_text|>",
    "def step(batch):\n    loss = model(batch)\n\n    loss.backward()\n\treturn loss   # done\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "................................................................................................................",
    "\x00\x01\x7f\ufffd\ufeff\U0010ffff",
    " \t \n \u3000\n x",
]


def train():
    words = [list(bytes([b]) for b in piece.encode()) for piece in regex.findall(PATTERN, CORPUS * 3)]
    tokens = [bytes([b]) for b in range(256)]
    for _ in range(MERGES):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        tokens.append(best[0] + best[1])
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [best[0] + best[1]]
                i += 1
    return tokens


def random_texts():
    rng = random.Random(20261121)
    alphabet = list(" \t\n\r'aAsStTdDeErRlLvVmMzZ019.,!?-_é\u00a0\u3000ßſЖ中あ한\u0301\u200d😀½٣") + [" the", "ing ", "'re", "step"]
    return ["".join(rng.choices(alphabet, k=rng.randint(1, 60))) for _ in range(150)]


def main():
    tokens = train()
    (HERE / "small.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={})
    save_encodings("small", TEXTS + random_texts() + [CORPUS * 3], encoding.encode_ordinary)


if __name__ == "__main__":
    main()
