"""Small random embedding models, and texts in ten scripts to embed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

LETTERS = {
    "Latin": "abcdefghijklmnopqrstuvwxyz",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "Hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "Cyrillic": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "Devanagari": "अआइईउएकखगघचछजटडतथदधनपफबभमयरलवशसह",
    "Thai": "กขคงจชซญดตถทธนบปผพฟมยรลวสหอ",
    "Chinese": "的一是不了人我在有他这中大来上国和地到以",
    "Japanese": "あいうえおかきくけこさしすせそたちつてとアイウエオ日本語",
    "Korean": "가나다라마바사아자차카타파하한국어말글",
}
ODD = [
    "",
    " ",
    "\x00\x07\x1b[0m \u200b\u202e",
    "\U0001f680\U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
    "[CLS] [PAD] <pad> <mask> </s>",
    "\ud800 lone",
    "tab\tnew\nline\r",
    "word " * 10_000,
    "的" * 10_000,
    "x" * 10_000,
]


def texts_in_ten_scripts(count: int, seed: int = 5) -> list[str]:
    """Return distinct texts: edge cases first, then one to five words in each of ten scripts."""
    dice = random.Random(seed)
    alphabets = list(LETTERS.values())
    texts = list(ODD)
    for at in range(count - len(ODD)):
        letters = alphabets[at % len(alphabets)]
        words = ("".join(dice.choices(letters, k=dice.randint(1, 4))) for _ in range(at // 10 % 5 + 1))
        texts.append(" ".join(words) + f" {at}")
    return texts


def save_model(folder: Path, *, family: str = "bert", pooling: str = "mean", parts: tuple[str, ...] = ()) -> Path:
    """Save a small random model in the format of sentence-transformers.

    Args:
        folder: Created here; its name becomes the model's name.
        family: "bert" or "xlm-roberta".
        pooling: A pooling mode of sentence-transformers.
        parts: Any of "normalize", "dense" and "sharded".
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    from transformers import AutoModel

    source = folder.with_name(f"{folder.name}-source")
    source.mkdir(parents=True)
    (_save_bert if family == "bert" else _save_roberta)(source)
    modules: list[Any] = [Transformer(str(source), max_seq_length=96)]
    modules.append(Pooling(48, pooling_mode=pooling))
    modules += [Dense(48, 24)] if "dense" in parts else []
    modules += [Normalize()] if "normalize" in parts else []
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    if "sharded" in parts:
        (folder / "model.safetensors").unlink()
        AutoModel.from_pretrained(str(source)).save_pretrained(str(folder), max_shard_size="60KB")
    return folder


def _characters() -> list[str]:
    return sorted({letter for letters in LETTERS.values() for letter in letters} | set("0123456789<>[]/."))


def _sizes(vocabulary: int) -> dict[str, int]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 80,
    }


def _save_bert(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    characters = _characters()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{character}" for character in characters)]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=128).save_pretrained(str(folder))
    torch.manual_seed(3)
    config = BertConfig(**_sizes(len(words)), max_position_embeddings=128, initializer_range=0.2)
    BertModel(config).save_pretrained(str(folder))


def _save_roberta(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram
    from tokenizers.normalizers import NFKC
    from tokenizers.pre_tokenizers import Metaspace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*((each, 0.0) for each in special), ("▁", -1.0), *((each, -5.0) for each in _characters())]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=3))
    tokenizer.normalizer = NFKC()
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>", cls_token="<s>", sep_token="</s>",
        model_max_length=128,
    ).save_pretrained(str(folder))  # fmt: skip
    torch.manual_seed(3)
    sizes = _sizes(len(pieces))
    config = XLMRobertaConfig(
        **sizes, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5,
        initializer_range=0.2,
    )  # fmt: skip
    XLMRobertaModel(config).save_pretrained(str(folder))
