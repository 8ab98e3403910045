"""Small tokenizers of the shapes that Mistral, Gemma and Qwen released, and what the tokenizers library says of them.

Made with transformers 4.57.6 and tokenizers 0.22.2, as tools/transformers.lock pins them:
  tools/fetch_deps transformers && PYTHONPATH=.transformers python3 core/data/testdata/make_families.py
Their normalizers, pre-tokenizers, model options, post-processors, decoders and the order of their ids are those of the released
files (mistralai/Mistral-7B-v0.1 and v0.3, google/gemma-2b, Qwen/Qwen2.5-7B); vocabularies are trained on CORPUS. Merges of the
first three are made of sentencepiece's scores by transformers' own converter.
"""
import json
import random

from recorded import CORPUS, HERE, save_encodings
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import generate_merges

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = [
    "a", "Hello, world!", "They're here. IT'S HERE. I'D say we'Ll see; 'tis 'S 'ſ", "1 12 123 1234 12345 3.14159 ½ ² Ⅷ ٣٤٥٦",
    "  leading and trailing  ", " one", "line\nline\r\nline\n\n\nline   \n   line\t\ttab \n\n\n\n\n\n", "\n", " ", "   ", "\t",
    "\u00a0no-break\u2003em space\u3000ideographic\u1680ogham\u2028line\u2029para\u0085next\u200bzero",
    "Größe straße ÜBUNG naïve café cafe\u0301 \u1100\u1161\u11a8 \u0958 q\u0307\u0323 A\u030a \u212b \u2126",
    "日本語の文章。模型を訓練する、한국어 문장 हिन्दी में كتاب جديد Ещё раз", "emoji 😀👩‍👩‍👧‍👦🇩🇪 and flags!!! ???\n\n",
    "def step(batch):\n    return batch   # done\n", "a" * 100, "." * 100, "ste" * 40, f"a{SPACE}b {SPACE}{SPACE} c", SPACE,
    "<table>x</table>\n<0x41><0x0A> <think>so</think>", "\x00\x01\x7f\ufffd\ufeff\U0010ffff", " \t \n \u3000\n x",
]


def train(texts, size, alphabet):
    """Tokens and merges of the library's trainer, of words that begin with a space."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first")
    model.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    ids = json.loads(model.to_str())["model"]["vocab"]
    tokens = sorted(ids, key=ids.get)
    return [t for t in tokens if len(t) > 1], [t for t in tokens if len(t) == 1 and t not in "\n\t"]


def sentencepiece(control, user_defined, byte_tokens):
    """The model as transformers' converter makes it: control and user-defined tokens, bytes, pieces, characters."""
    joined, characters = train([CORPUS] * 3, 400, [SPACE])
    free = [piece for piece in joined + characters if piece not in user_defined and piece not in byte_tokens]
    pieces = [(piece, 0.0) for piece in control + user_defined + byte_tokens]
    pieces += [(piece, float(-i)) for i, piece in enumerate(free)]
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = generate_merges(vocab, pieces)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=piece in control) for piece in control + user_defined])
    return tokenizer


def begin_with(tokenizer, name):
    pair = (name, tokenizer.token_to_id(name))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{name} $A", pair=f"{name} $A {name} $B",
                                                             special_tokens=[pair])


def spaces_decoder(*more):
    return decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *more])


def mistral():
    tokenizer = sentencepiece(["<unk>", "<s>", "</s>"], [], BYTES)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = spaces_decoder(decoders.Strip(" ", 1, 0))
    begin_with(tokenizer, "<s>")
    return tokenizer


def mistral_v3():
    control = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + [f"[control_{i}]" for i in range(8, 20)]
    tokenizer = sentencepiece(control, [], BYTES)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
    tokenizer.decoder = spaces_decoder(decoders.Strip(" ", 1, 0))
    begin_with(tokenizer, "<s>")
    return tokenizer


def gemma():
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    user_defined = ["<mask>", *("\n" * n for n in range(1, 5)), *(SPACE * n for n in range(2, 6)), "<table>", "</table>"]
    tokenizer = sentencepiece(control, user_defined, ["\t" if name == "<0x09>" else name for name in BYTES])
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = spaces_decoder()
    begin_with(tokenizer, "<bos>")
    return tokenizer


def qwen():
    from tokenizers import Regex
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False, byte_fallback=False))
    byte_level = dict(add_prefix_space=False, use_regex=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
                                                       pre_tokenizers.ByteLevel(**byte_level, trim_offsets=False)])
    tokenizer.post_processor = processors.ByteLevel(**byte_level, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel(**byte_level, trim_offsets=False)
    tokenizer.train_from_iterator([CORPUS] * 3, trainers.BpeTrainer(vocab_size=420, show_progress=False,
                                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    added = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False),
             ("</tool_call>", False), ("<think>", False), ("</think>", False)]
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=special) for name, special in added])
    return tokenizer


FAMILIES = {"mistral": mistral, "mistral-v3": mistral_v3, "gemma": gemma, "qwen": qwen}


def random_texts(count=100):
    rng = random.Random(20261124)
    alphabet = list(" \t\n\r'aAsStTdDeE019.,!?-_é\u00a0\u3000ßЖ中あ한\u0301\u200d😀½")
    alphabet += [" the", "ing ", "'re", "step", "  ", "\n\n", SPACE]
    return ["".join(rng.choices(alphabet, k=rng.randint(1, 40))) for _ in range(count)]


def main():
    for name, make in FAMILIES.items():
        tokenizer = make()
        tokenizer.save(str(HERE / f"{name}.tokenizer.json"))
        save_encodings(name, TEXTS + random_texts() + [CORPUS], lambda text: tokenizer.encode(text).ids)


if __name__ == "__main__":
    main()
