#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small tokenizers of each kind with the package `tokenizers`, and what they make of texts.

Usage: tokenizers_reference.py FOLDER. For each kind: FOLDER/KIND/tokenizer.json and cases.json, a
list of {"bytes": the text in hexadecimal, "ids", "plain": ids without the special tokens around a
text, "text", "all": the text of the ids without and with special tokens}; and decodings.json, a
list of {"ids", "text", "all"} of ids that no text has: runs of bytes that are no characters among
them. No network is used.
"""

import json
import pathlib
import random
import re
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Code points of several planes of Unicode.
LETTERS = (
    "abcdefghij ABCDEFGH 0123456789 .,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`\t\n\r\v\f"
    "éàüßñøåçÉÀÜ ſſ K \u0085\u00a0\u00ad\u1680\u180e\u2000\u200a\u200b\u200c\u200d\u2028\u2029"
    "\u202f\u205f\u2060\u3000\ufeff\ufffd "
    "\u0300\u0301\u0308\u0327\u031b\u0345 ΑΒΓαβγςΩώ абвгдЖЩ אבגד "
    "שלום مرحبا ٠١٢٣ हिन्दी क्षि ไทยนี้ 한국어 각 ㄱ 日本語かなカナ㍿ 中文字符 ①②Ⅷⅷ½¾²³ ǅǈ ǆ ŉ ﬀ ﬆ İ ı "
    "😀😃🇩🇪👩‍👩‍👧‍👦👍🏽❤️✈️ 𝒜𝓑𝔠 𐍈 𠀀𪚥 \u0000\u0001\u001b\u007f▁▁Ġ ĊĂ <0x41>")
TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", " leading", "trailing ", "two  spaces   three",
    "tabs\tand\t\tmore\n\n\nlines\r\n\r\n", "I'm you're WE'LL they'd it'S don’t 'ſ",
    "3.14159 1000000 ١٢٣",
    "café cafe\u0301 ﬁ Å Å", "日本語のテキスト。", "नमस्ते दुनिया", "👩‍👩‍👧‍👦 family 🇩🇪",
    "مرحبا بالعالم",
    "def f(x):\n    return x ** 2  # square\n", "<s>in</s> the text<|endoftext|>",
    "<|endoftext|><|endoftext|>",
    "x <|mask|> y", "<|mask|>  <|mask|>", "zz<|word|>zz Café<|word|>", "▁already▁there", "▁", " ▁ ",
    "<|word|>s", "<0x41><0x0A>", "①② 12 ﬁne fine ½ 1⁄2 ㍿",
    "a\u0305\u0301e\u0305\u0301", "aab aaab'ſ'K ab1 12 .1 AB",
    "a" * 300, " " * 300, "ab" * 400, "ccddeeeeff" * 40, "\u0301\u0301", "\U0010ffff\ue000",
    "The quick brown fox jumps over the lazy dog. " * 6]
INVALID = [b"\xff", b"ab\xc3", b"\xc3(", b"\xe2\x82", b"\xf0\x9f\x98 ok \xf0\x9f\x98\x80",
           b"\xed\xa0\x80", b"\xc0\xaf", b"a\x80\x80b", b"\xf4\x90\x80\x80", b"\xe2\x28\xa1"]
CORPUS = TEXTS + ["the of and to in is that for it as was with be by on not he his but at are",
                  "Hello world hello worlds, they're running 1000 tests. "
                  "Größe naïve привет мир"] * 20


def bpe(pre_tokenizer, normalizer=None, alphabet=(), size=700, **settings) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**settings))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=list(alphabet), show_progress=False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def of_bytes(*parts, normalizer=None, prefix=False, **settings) -> Tokenizer:
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not parts or any(
        isinstance(part, pre_tokenizers.Digits) for part in parts))
    whole = pre_tokenizers.Sequence([*parts, level]) if parts else level
    return bpe(whole, normalizer, pre_tokenizers.ByteLevel.alphabet(), **settings)


def around(tokenizer: Tokenizer, first: str, last: str = "") -> None:
    tokenizer.add_special_tokens([token for token in (first, last) if token])
    single = f"{first} $A {last}".strip()
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=single, special_tokens=[
            (token, tokenizer.token_to_id(token)) for token in (first, last) if token])])


def sentencepiece(fallback: bool, **changes) -> Tokenizer:
    """As LLaMA 2's file: three special tokens, the bytes, then what was learned."""
    learned = json.loads(bpe(pre_tokenizers.Metaspace(), alphabet="abc").to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] * fallback
    names += [token for token in learned["vocab"] if token not in names]
    special = [{"id": i, "content": names[i], "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True} for i in range(3)]
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": fallback, "ignore_merges": False,
                  "vocab": {name: i for i, name in enumerate(names)},
                  "merges": learned["merges"]}} | changes))


def metaspace(scheme: str, split: bool) -> dict:
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    return {"normalizer": None, "pre_tokenizer": space, "decoder": space}


def split(regex: str, behavior: str, invert: bool = False) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def kinds() -> dict[str, Tokenizer]:
    gpt2 = of_bytes()
    gpt2.add_special_tokens(["<|endoftext|>"])
    llama3 = of_bytes(split(LLAMA3, "isolated"), ignore_merges=True)
    around(llama3, "<s>")
    qwen = of_bytes(split(QWEN, "isolated"), normalizer=normalizers.NFC())
    qwen.add_special_tokens(["<|endoftext|>"])
    qwen.add_tokens(["<|word|>", "Café"])  # the second in the normalized text
    compatible = of_bytes(normalizer=normalizers.NFKC())
    compatible.add_tokens(["①②", "ﬁne", "½", "㍿"])  # the normalizer changes these texts
    smollm = of_bytes(pre_tokenizers.Digits(individual_digits=True))
    around(smollm, "<s>", "</s>")
    from tokenizers import AddedToken
    smollm.add_tokens([AddedToken("<|mask|>", lstrip=True, rstrip=False, normalized=False),
                       AddedToken("<|word|>", lstrip=False, rstrip=True, normalized=True),
                       AddedToken("<|word|>s", lstrip=False, rstrip=True, normalized=True)])
    inverted = of_bytes(split(LLAMA3, "removed", invert=True), normalizer=normalizers.NFKD())
    prefixed = of_bytes(split(r"[\r\n]", "merged_with_previous"),
                        split(r"\s?\p{L}+", "merged_with_next"),
                        pre_tokenizers.Digits(), split(r"\p{P}", "contiguous"),
                        split(r"\t", "removed"), prefix=True)
    syntax = of_bytes(split(r"(?i:'s|'k)|a{1,2}?b|\P{L}?+\p{N}++|\p{L}+?\p{N}|[^\P{Lu}]+",
                            "isolated"))
    lazy = of_bytes(split("nothing of this", "isolated"))  # so it merges what the next one parts
    lazy.pre_tokenizer = pre_tokenizers.Sequence([
        split(r"[ab]+?b|[cd]{1,3}?d|e{2,4}?|f??f", "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return {
        "syntax": syntax, "lazy": lazy, "gpt2": gpt2, "llama3": llama3, "qwen": qwen,
        "compatible": compatible, "smollm": smollm, "inverted": inverted,
        "prefixed": prefixed, "llama2": sentencepiece(True), "unknown": sentencepiece(False),
        "mistral": sentencepiece(True, **metaspace("first", False)),
        "metaspace": sentencepiece(True, **metaspace("always", True)),
        "undecoded": sentencepiece(False, decoder=None),
        "crossing": bpe(None, normalizers.Replace(Regex(" {2,}"), "_"), size=400)}


def random_texts(count: int) -> list[str]:
    chance = random.Random(7)
    texts = []
    for _ in range(count):
        length = chance.choice([1, 3, 10, 40, 120])
        letters = chance.choice(
            [LETTERS, LETTERS[:60], "ab \n", "\u0301e\u0327 \u1100\u1161\u11a8"])
        texts.append("".join(chance.choice(letters) for _ in range(length)))
    return texts


def random_ids(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    """Lists of random ids, with a large share of tokens for bytes beyond ASCII."""
    chance = random.Random(11)
    names = {i: tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())}
    high = [i for i, name in names.items()
            if name and (len(name) == 1 and name > "\x7f" or re.match("<0x[89A-F]", name))]
    high = high or list(names)
    return [[chance.choice(high) if chance.random() < share else chance.choice(list(names))
             for _ in range(chance.choice([1, 2, 5, 20]))]
            for share in (0.3, 0.7, 0.95) for _ in range(count // 3)]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cases = [text.encode() for text in TEXTS + random_texts(400)] + INVALID
    for name, tokenizer in kinds().items():
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        results = []
        for text in cases:
            read = text.decode(errors="replace")
            ids = tokenizer.encode(read).ids
            results.append({"bytes": text.hex(), "ids": ids,
                            "plain": tokenizer.encode(read, add_special_tokens=False).ids,
                            "text": tokenizer.decode(ids),
                            "all": tokenizer.decode(ids, skip_special_tokens=False)})
        (folder / "cases.json").write_text(json.dumps(results))
        (folder / "decodings.json").write_text(json.dumps(
            [{"ids": ids, "text": tokenizer.decode(ids),
              "all": tokenizer.decode(ids, skip_special_tokens=False)}
             for ids in random_ids(tokenizer, 300)]))


if __name__ == "__main__":
    main()
