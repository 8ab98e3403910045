"""What make_families.py and make_reference.py share: the text that vocabularies are trained on, and how encodings are recorded."""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = """
Training a language model is a matter of many small steps. Each step reads a batch of text, predicts every next token, and moves
the weights a little towards what was really written. They're not certain of it, it's a guess; we'll see what it's worth, and I'd
say that you've seen the like before. 12 steps, 123 steps, 1234 steps, 2026-11-21.
Das Größte ist, daß man's übt: Übung macht den Meister. Où est la bibliothèque ? Ça va, merci. ¿Qué tal, señor? Ещё раз, пожалуйста.
日本語の文章もあります。模型を訓練する。 한국어 문장입니다.  हिन्दी में लिखा है। كتاب جديد
def step(batch):\n    loss = model(batch)\n\n    loss.backward()\n\treturn loss   # done\n
"""


def save_encodings(name, texts, encode):
    lines = ",\n".join(json.dumps({"text": text, "ids": encode(text)}, separators=(",", ":")) for text in texts)
    (HERE / f"{name}.encodings.json").write_text("[\n" + lines + "\n]\n")
